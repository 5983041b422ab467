//! Which cluster, and how to speak to it.

mod url;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::ConnectOptions;
#[cfg(feature = "tls")]
use etcd_client::TlsOptions;
use leasehold_core::clock::{Clock, SystemClock};
use leasehold_core::{Error, ErrorKind};

use crate::error::BACKEND;
use crate::layout::Layout;

/// How often the server is asked whether it is still there, on an idle connection. It takes more for an attack.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long its answer may take.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Which cluster to use, and how. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct EtcdConfig {
    pub(crate) endpoints: Vec<String>,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    options: ConnectOptions,
    /// The TLS options of a URL: with them, certificates can be compared with names while connections go to addresses.
    #[cfg(feature = "tls")]
    tls: Option<TlsOptions>,
    has_password: bool,
}

impl EtcdConfig {
    /// Long for a healthy cluster, where a reply takes milliseconds, and as long as many elections take; short enough that a
    /// renewal is tried several times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// Reads a URL: `etcd://[user[:password]@]host[:port][,host[:port]…][/]`, `etcds://…` for TLS.
    ///
    /// Without a port, it is 2379. Parameters, after `?`: `prefix` and `timeout-ms` as the methods of those names; with TLS
    /// `ca`, `cert` and `key`, the paths of PEM files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be understood, [`ErrorKind::Unsupported`] for TLS without
    /// the Cargo feature `tls`. Neither shows the URL, which may hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::read(url)
    }

    /// Takes the members' addresses, `http://host:port` or `https://host:port`, and the client crate's own options.
    ///
    /// The backend requires a leader and pings idle connections, even if the options say otherwise.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] without any address.
    pub fn from_options(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        options: ConnectOptions,
    ) -> Result<Self, Error> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        if endpoints.is_empty() {
            return Err(invalid("at least one endpoint is required"));
        }
        Ok(Self {
            endpoints,
            layout: Layout::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            clock: Arc::new(SystemClock),
            options,
            #[cfg(feature = "tls")]
            tls: None,
            has_password: false,
        })
    }

    /// The prefix of all keys. Default: `lock/`.
    ///
    /// Applications that share a cluster keep apart by prefixes of which none begins with another.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless it has 1 to 128 of the characters that keys may have.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix)?;
        Ok(self)
    }

    /// How long to wait for a connection, and for a reply. Default: [`EtcdConfig::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is less than a millisecond or more than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if timeout < Duration::from_millis(1) || timeout > Duration::from_secs(60) {
            return Err(invalid(format!(
                "timeout (timeout-ms in a URL) must be between 1 ms and 60 s, not {} ms",
                timeout.as_millis()
            )));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// The clock on which the backend counts how long its sessions are good: that of the
    /// [client](leasehold_core::Builder::clock). Timeouts of the network are counted in real time. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The client crate's options for each connection.
    /// The options for a connection to an address of the host `name`.
    pub(crate) fn options(&self, name: &str) -> ConnectOptions {
        self.options_for(name)
            .with_connect_timeout(self.timeout)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            // The server takes pings without a request under way for an attack.
            .with_keep_alive_while_idle(false)
            // Else requests and watches hang on a member that is cut off from the others.
            .with_require_leader(true)
    }

    #[cfg(feature = "tls")]
    fn options_for(&self, name: &str) -> ConnectOptions {
        match &self.tls {
            Some(tls) => self.options.clone().with_tls(tls.clone().domain_name(name)),
            None => self.options.clone(),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn options_for(&self, _: &str) -> ConnectOptions {
        self.options.clone()
    }

    /// Whether connections can go to an address of this member in place of its name.
    pub(crate) fn is_resolved(&self, endpoint: &str) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return true;
        }
        endpoint.starts_with("http://")
    }

    /// Whether a password would cross a network in the clear.
    pub(crate) fn exposes_password(&self) -> bool {
        self.has_password && self.endpoints.iter().any(|endpoint| !is_private(endpoint))
    }
}

/// Whether traffic to `endpoint` is encrypted or stays on this machine.
fn is_private(endpoint: &str) -> bool {
    let Some(authority) = endpoint.strip_prefix("http://") else {
        return true;
    };
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("layout", &self.layout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The error of an impossible setting.
fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> Error {
        EtcdConfig::from_url(url).unwrap_err()
    }

    #[test]
    fn urls_say_everything() {
        let url = "etcd://locker:S3CR3T@a.example,b.example:7000/?prefix=app/&timeout-ms=250";
        let config = EtcdConfig::from_url(url).unwrap();

        assert_eq!(config.endpoints, ["http://a.example:2379", "http://b.example:7000"]);
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert!(format!("{config:?}").contains("app/"));
        assert!(config.exposes_password());
    }

    #[test]
    fn addresses_may_be_ipv6_and_one_may_be_enough() {
        let config = EtcdConfig::from_url("etcd://[::1],[::1]:7000").unwrap();
        assert_eq!(config.endpoints, ["http://[::1]:2379", "http://[::1]:7000"]);

        let config = EtcdConfig::from_url("etcd://locker:x@localhost").unwrap();
        assert!(!config.exposes_password());
    }

    #[test]
    fn the_port_is_that_of_etcd_however_the_host_is_written() {
        for (host, endpoint) in [
            ("Etcd-1.Example", "http://etcd-1.example:2379"),
            ("Etcd-1.Example:80", "http://etcd-1.example:80"),
            ("etcd-1.example:", "http://etcd-1.example:2379"),
            ("[::0001]", "http://[::1]:2379"),
            ("[::0001]:80", "http://[::1]:80"),
            ("0x7f.1", "http://127.0.0.1:2379"),
        ] {
            let config = EtcdConfig::from_url(&format!("etcd://{host}")).unwrap();
            assert_eq!(config.endpoints, [endpoint], "{host}");
        }
    }

    #[test]
    fn refused_timeouts_are_named_with_those_that_are_possible() {
        let said = "timeout (timeout-ms in a URL) must be between 1 ms and 60 s, not 0 ms";
        assert!(refusal("etcd://a/?timeout-ms=0").to_string().ends_with(said));
    }

    #[test]
    fn urls_that_make_no_sense_are_refused_without_showing_them() {
        for url in [
            "",
            "S3CR3T",
            "etcd://",
            "etcd:///",
            "http://S3CR3T",
            "etcd://u:S3CR3T@",
            "etcd://u:S3CR3T@a,,b",
            "etcd://u:S3CR3T@a:x",
            "etcd://u:S3CR3T@a:99999",
            "etcd://u:S3CR3T@a/path",
            "etcd://u:S3CR3T@a/?prefix=%20",
            "etcd://u:S3CR3T@a/?timeout-ms=x",
            "etcd://u:S3CR3T@a/?timeout-ms=0",
            "etcd://u:S3CR3T@a/?S3CR3T#",
            "etcd://u:pass?S3CR3T@a",
            "etcd://u:S3CR3T@a/#S3CR3T",
            "etcd://u:S3CR3T@a/?ca=/x",
        ] {
            let error = refusal(url);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn unreadable_file_is_not_named() {
        let error = refusal("etcds://u:pass?ca=S3CR3T@a");

        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error} {error:?}").contains("S3CR3T"), "{error:?}");
    }

    #[test]
    fn nothing_shows_the_password() {
        let config = EtcdConfig::from_url("etcd://locker:S3CR3T@host").unwrap();

        assert!(!format!("{config:?}").contains("S3CR3T"));
        assert!(!format!("{config:?}").contains("locker"));
    }
}
