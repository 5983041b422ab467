//! Which ensemble, and how to speak to it.

mod url;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Clock, SystemClock};
use leasehold_core::{Error, ErrorKind};
use zookeeper_client::{Acls, Client, Connector};

use crate::error::BACKEND;
use crate::layout::Layout;

/// Which ensemble to use, and how. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct ZooKeeperConfig {
    /// Each `host:port`.
    pub(crate) servers: Vec<String>,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) tick: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    connector: Connector,
    is_secure: bool,
    has_password: bool,
}

impl ZooKeeperConfig {
    /// Long for a healthy ensemble, where a reply takes milliseconds, and as long as many elections take; short enough that a
    /// renewal is tried several times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// The `tickTime` of the server's own sample configuration.
    pub const DEFAULT_TICK: Duration = Duration::from_secs(2);

    /// The longest time that a server may count in.
    const MAX_TICK: Duration = Duration::from_secs(60);

    /// Reads a URL: `zookeeper://[user:password@]host[:port][,host[:port]…][/prefix]`, `zookeepers://…` for TLS.
    ///
    /// Without a port, it is 2181. User and password are those of ZooKeeper's scheme `digest`: all nodes are this user's alone. Parameters,
    /// after `?`: `prefix`, `timeout-ms` and `tick-ms` as the methods of those names; `auth=sasl` for users of SASL (DIGEST-MD5); with TLS
    /// `ca`, `cert` and `key`, the paths of PEM files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be understood, [`ErrorKind::Unsupported`] for TLS or SASL without
    /// the Cargo feature of that name. Neither shows the URL, which may hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::read(url)
    }

    /// Takes the servers' addresses, each `host:port`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] without any address, and for one that is none.
    pub fn from_servers(
        servers: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, Error> {
        let servers: Vec<String> = servers
            .into_iter()
            .map(|server| url::address(&server.into()))
            .collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(invalid("at least one server is required"));
        }
        Ok(Self {
            servers,
            layout: Layout::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            tick: Self::DEFAULT_TICK,
            clock: Arc::new(SystemClock),
            connector: Client::connector(),
            is_secure: false,
            has_password: false,
        })
    }

    /// The node below which all locks lie. Default: `/lock`. Curator's path of the lock `job` is `/lock/job` then.
    ///
    /// Applications that share an ensemble keep apart by prefixes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless it is an absolute path of the characters that keys may have.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix)?;
        Ok(self)
    }

    /// How long to wait for a connection, and for a reply. Default: [`ZooKeeperConfig::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is less than a millisecond or more than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if timeout < Duration::from_millis(1) || timeout > Duration::from_secs(60) {
            return Err(invalid(format!("timeout must be between 1 ms and 60 s, not {timeout:?}")));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// The servers' `tickTime`: they end a session up to that much late. Default: [`ZooKeeperConfig::DEFAULT_TICK`].
    ///
    /// Servers do not tell it. Waiters expect the end of a dead holder's lease by it; exclusion and belief do not depend on it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is less than a millisecond or more than a minute.
    pub fn tick(mut self, tick: Duration) -> Result<Self, Error> {
        if tick < Duration::from_millis(1) || tick > Self::MAX_TICK {
            return Err(invalid(format!("tick must be between 1 ms and 60 s, not {tick:?}")));
        }
        self.tick = tick;
        Ok(self)
    }

    /// The clock on which the backend counts how long its sessions are good: that of the
    /// [client](leasehold_core::Builder::clock). Timeouts of the network are counted in real time. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The client crate's settings for a connection to one server, which fails rather than try again, and a session that lasts so
    /// long without it.
    pub(crate) fn connector(&self, session: Duration) -> Connector {
        self.connector.clone().with_fail_eagerly().with_session_timeout(session)
    }

    /// The address of a server, as the client crate takes it.
    pub(crate) fn endpoint(&self, server: &str) -> String {
        let scheme = if self.is_secure { "tcp+tls" } else { "tcp" };
        format!("{scheme}://{server}")
    }

    /// Whether the client crate is given addresses, and not names.
    pub(crate) fn resolves(&self) -> bool {
        !self.is_secure
    }

    /// The access list of our nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.has_password { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// Whether a password would cross a network in the clear.
    pub(crate) fn exposes_password(&self) -> bool {
        self.has_password
            && !self.is_secure
            && self.servers.iter().any(|server| !is_private(server))
    }
}

/// Whether requests to `server` stay on this machine.
fn is_private(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

impl fmt::Debug for ZooKeeperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperConfig")
            .field("servers", &self.servers)
            .field("layout", &self.layout)
            .field("timeout", &self.timeout)
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}

/// Of a setting that cannot be.
fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> Error {
        ZooKeeperConfig::from_url(url).unwrap_err()
    }

    #[test]
    fn urls_say_everything() {
        let url = "zookeeper://locker:S3CR3T@a.example,b.example:7000/app/locks?timeout-ms=250&tick-ms=500";
        let config = ZooKeeperConfig::from_url(url).unwrap();

        assert_eq!(config.servers, ["a.example:2181", "b.example:7000"]);
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!(config.tick, Duration::from_millis(500));
        assert!(format!("{config:?}").contains("/app/locks"));
        assert!(config.exposes_password());
        let config = ZooKeeperConfig::from_url("zookeeper://a?prefix=/app").unwrap();
        assert_eq!(config.layout.prefix(), "/app");
    }

    #[test]
    fn addresses_may_be_ipv6_and_one_may_be_enough() {
        let config = ZooKeeperConfig::from_url("zookeeper://[::1],[::1]:7000").unwrap();
        assert_eq!(config.servers, ["[::1]:2181", "[::1]:7000"]);

        let config = ZooKeeperConfig::from_url("zookeeper://locker:x@localhost/").unwrap();
        assert!(!config.exposes_password());
    }

    #[test]
    fn urls_that_make_no_sense_are_refused_without_showing_them() {
        for url in [
            "",
            "S3CR3T",
            "zookeeper://",
            "zookeeper:///",
            "http://S3CR3T",
            "zookeeper://u:S3CR3T@",
            "zookeeper://u:S3CR3T@a,,b",
            "zookeeper://u:S3CR3T@a:x",
            "zookeeper://u:S3CR3T@a:99999",
            "zookeeper://u:S3CR3T@a:0",
            "zookeeper://S3CR3T@a",
            "zookeeper://u:S3CR3T@a/%20",
            "zookeeper://u:S3CR3T@a//x",
            "zookeeper://u:S3CR3T@a/../x",
            "zookeeper://u:S3CR3T@a/zookeeper",
            "zookeeper://u:S3CR3T@a/x?prefix=/y",
            "zookeeper://u:S3CR3T@a/?prefix=y",
            "zookeeper://u:S3CR3T@a/?timeout-ms=x",
            "zookeeper://u:S3CR3T@a/?timeout-ms=0",
            "zookeeper://u:S3CR3T@a/?tick-ms=0",
            "zookeeper://u:S3CR3T@a/?auth=none",
            "zookeeper://a/?auth=sasl",
            "zookeeper://u:S3CR3T@a/?S3CR3T#",
            "zookeeper://u:pass?S3CR3T@a",
            "zookeeper://u:S3CR3T@a/#S3CR3T",
            "zookeeper://u:S3CR3T@a/?ca=/x",
        ] {
            let error = refusal(url);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[test]
    fn nothing_shows_the_password() {
        let config = ZooKeeperConfig::from_url("zookeeper://locker:S3CR3T@host").unwrap();

        assert!(!format!("{config:?}").contains("S3CR3T"));
        assert!(!format!("{config:?}").contains("locker"));
    }
}
