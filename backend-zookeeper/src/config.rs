//! The settings for the connection to an ensemble.

mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::clock::{Clock, SystemClock};
use leasehold_settings::{REQUEST_TIMEOUT, Server, duration_in, invalid};
use zookeeper_client::{Acls, Client, Connector};

use crate::error::BACKEND;
use crate::layout::Layout;

const DEFAULT_PORT: u16 = 2181;

/// The ensemble to use and the settings for its connections. `Debug` shows neither the user nor the
/// password.
///
/// The crate documentation contains an example.
#[derive(Clone)]
pub struct ZooKeeperConfig {
    /// The servers, in the form `host:port`.
    pub(crate) servers: Vec<String>,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) tick: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    connector: Connector,
    is_secure: bool,
    has_password: bool,
    /// Whether a password would cross a network without encryption.
    pub(crate) exposes_password: bool,
}

impl ZooKeeperConfig {
    /// The default time limit for a connection and for a reply.
    ///
    /// Healthy ensembles reply within milliseconds, and many leader elections finish within this
    /// limit. The limit is also short enough for several renewal attempts within one TTL.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// The default tick, which is the `tickTime` of ZooKeeper's sample configuration.
    pub const DEFAULT_TICK: Duration = Duration::from_secs(2);

    /// The longest tick that is accepted.
    const MAX_TICK: Duration = Duration::from_secs(60);

    /// Creates a configuration from the addresses of the servers, each in the form `host:port`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the list is empty or an address is not valid.
    pub fn from_servers(
        servers: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, Error> {
        let address = |server: String| {
            Ok(Server::parse(&server, DEFAULT_PORT).map_err(in_backend)?.to_string())
        };
        let servers: Vec<String> = servers
            .into_iter()
            .map(|server| address(server.into()))
            .collect::<Result<_, Error>>()?;
        if servers.is_empty() {
            return Err(in_backend(invalid("at least one server is required")));
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
            exposes_password: false,
        })
    }

    /// Sets the parent node of all locks. With the default, `/lock`, Curator's path for the lock
    /// `job` is `/lock/job`.
    ///
    /// If several applications share an ensemble, each application needs a different prefix.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the prefix is not an absolute path, or contains characters
    /// that keys cannot contain.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix)?;
        Ok(self)
    }

    /// Sets the time limit for connecting to a server and for each reply. The default is
    /// [`ZooKeeperConfig::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the limit is less than 1 ms or more than 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        let timeout = duration_in(&REQUEST_TIMEOUT, "timeout (timeout-ms in a URL)", timeout);
        self.timeout = timeout.map_err(in_backend)?;
        Ok(self)
    }

    /// Sets the servers' `tickTime`. Sessions may expire up to one tick late. The default is
    /// [`ZooKeeperConfig::DEFAULT_TICK`].
    ///
    /// Clients cannot query this value. Waiters use the tick to estimate when a dead holder's lease
    /// expires. Mutual exclusion does not depend on the tick.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the tick is less than 1 ms or more than 60 s.
    pub fn tick(mut self, tick: Duration) -> Result<Self, Error> {
        let limits = Duration::from_millis(1)..=Self::MAX_TICK;
        let tick = duration_in(&limits, "tick (tick-ms in a URL)", tick);
        self.tick = tick.map_err(in_backend)?;
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

    /// Returns the client crate's settings for a connection to one server. The connection fails
    /// instead of reconnecting, and the session outlives the connection for the time `session`.
    pub(crate) fn connector(&self, session: Duration) -> Connector {
        self.connector.clone().with_fail_eagerly().with_session_timeout(session)
    }

    /// Returns the address of a server in the form that the client crate expects.
    pub(crate) fn endpoint(&self, server: &str) -> String {
        let scheme = if self.is_secure { "tcp+tls" } else { "tcp" };
        format!("{scheme}://{server}")
    }

    /// Returns whether the client crate receives addresses instead of names.
    pub(crate) fn resolves(&self) -> bool {
        !self.is_secure
    }

    /// Returns the access list for created nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.has_password { Acls::creator_all() } else { Acls::anyone_all() }
    }
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

fn in_backend(error: Error) -> Error {
    error.with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

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
        assert!(config.exposes_password);
        let config = ZooKeeperConfig::from_url("zookeeper://a?prefix=/app").unwrap();
        assert_eq!(config.layout.prefix(), "/app");
    }

    #[test]
    fn addresses_may_be_ipv6_and_one_may_be_enough() {
        let config = ZooKeeperConfig::from_url("zookeeper://[::1],[::1]:7000").unwrap();
        assert_eq!(config.servers, ["[::1]:2181", "[::1]:7000"]);

        let config = ZooKeeperConfig::from_url("zookeeper://locker:x@localhost/").unwrap();
        assert!(!config.exposes_password);
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
            "zookeeper://u:123/S3CR3T@a",
            "zookeeper://u:123@b/S3CR3T@a",
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
