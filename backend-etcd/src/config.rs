//! The settings for the connection to a cluster.

mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::ConnectOptions;
#[cfg(feature = "tls")]
use etcd_client::TlsOptions;
use leasehold_core::Error;
use leasehold_core::clock::{Clock, SystemClock};
use leasehold_settings::{REQUEST_TIMEOUT, duration_in, invalid};

use crate::error::BACKEND;
use crate::layout::Layout;

/// The interval at which an idle connection is checked with a ping. Servers treat more frequent
/// pings as an attack.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The time limit for the reply to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The cluster to use and the settings for its connections. `Debug` shows neither the user nor the
/// password.
///
/// The crate documentation contains an example.
#[derive(Clone)]
pub struct EtcdConfig {
    pub(crate) endpoints: Vec<String>,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    options: ConnectOptions,
    /// The TLS options of a URL. These options allow connections to an address while the
    /// certificate is checked against the host name.
    #[cfg(feature = "tls")]
    tls: Option<TlsOptions>,
    /// Whether a password would cross a network without encryption.
    pub(crate) exposes_password: bool,
}

impl EtcdConfig {
    /// The default time limit for a connection and for a reply.
    ///
    /// Healthy clusters reply within milliseconds, and many leader elections finish within this
    /// limit. The limit is also short enough for several renewal attempts within one TTL.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// Creates a configuration from the members' addresses and the client crate's options. An
    /// address is `http://host:port` or `https://host:port`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if there is no address.
    pub fn from_options(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        options: ConnectOptions,
    ) -> Result<Self, Error> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        if endpoints.is_empty() {
            return Err(in_backend(invalid("at least one endpoint is required")));
        }
        Ok(Self {
            endpoints,
            layout: Layout::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            clock: Arc::new(SystemClock),
            options,
            #[cfg(feature = "tls")]
            tls: None,
            exposes_password: false,
        })
    }

    /// Sets the prefix of all keys. The default is `lock/`.
    ///
    /// If several applications share a cluster, each application needs a different prefix. The
    /// prefix of one application must not start with the prefix of another application.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the prefix is empty, is longer than 128 characters or
    /// contains characters that keys cannot contain.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix)?;
        Ok(self)
    }

    /// Sets the time limit for connecting to a member and for each reply. The default is
    /// [`EtcdConfig::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the limit is less than 1 ms or more than 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        let timeout = duration_in(&REQUEST_TIMEOUT, "timeout (timeout-ms in a URL)", timeout);
        self.timeout = timeout.map_err(in_backend)?;
        Ok(self)
    }

    /// Sets the clock that measures the validity of sessions. Use the same clock as the
    /// [client](leasehold_core::Builder::clock). Network timeouts always use real time. The default
    /// is [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the client crate's options for a connection to an address of the host `name`.
    pub(crate) fn options(&self, name: &str) -> ConnectOptions {
        self.options_for(name)
            .with_connect_timeout(self.timeout)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            // Servers treat pings without a request in progress as an attack.
            .with_keep_alive_while_idle(false)
            // Without this option, requests and watches hang on a member that has lost contact with
            // the rest of the cluster.
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

    /// Returns whether connections use an address of this member instead of its name.
    pub(crate) fn is_resolved(&self, endpoint: &str) -> bool {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return true;
        }
        endpoint.starts_with("http://")
    }
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

fn in_backend(error: Error) -> Error {
    error.with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

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
        assert!(config.exposes_password);
    }

    #[test]
    fn addresses_may_be_ipv6_and_one_may_be_enough() {
        let config = EtcdConfig::from_url("etcd://[::1],[::1]:7000").unwrap();
        assert_eq!(config.endpoints, ["http://[::1]:2379", "http://[::1]:7000"]);

        let config = EtcdConfig::from_url("etcd://locker:x@localhost").unwrap();
        assert!(!config.exposes_password);
    }

    #[test]
    fn the_port_is_that_of_etcd_however_the_host_is_written() {
        for (host, endpoint) in [
            ("Etcd-1.Example", "http://etcd-1.example:2379"),
            ("Etcd-1.Example:80", "http://etcd-1.example:80"),
            ("etcd-1.example:", "http://etcd-1.example:2379"),
            ("[::0001]", "http://[::1]:2379"),
            ("[::0001]:80", "http://[::1]:80"),
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
            "etcd://u:123/S3CR3T@a",
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
