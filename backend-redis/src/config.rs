//! Which server, and how to speak to it.

mod url;

use std::fmt;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::Layout;
use redis::{Client, ConnectionAddr, ProtocolVersion};

use crate::error;

/// Which server to use, and how. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) push: Push,
    pub(crate) protocol: ProtocolVersion,
}

/// Whether the server is asked to tell of changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Push {
    /// If it can.
    Wanted,
    /// No: those who wait poll.
    Off,
}

impl RedisConfig {
    /// Long for a server in the same region, where a reply takes milliseconds; short enough that
    /// a renewal is tried several times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

    /// Reads a URL: `redis://[user[:password]@]host[:port][/database]`, `rediss://…` for TLS,
    /// `unix:///path/to/socket[?db=n&user=…&pass=…]`.
    ///
    /// Parameters, after `?`: `prefix` and `timeout-ms` as the methods of those names; `push=off`
    /// to poll; `protocol=resp2` for proxies that know no other, which polls too; with TLS `ca`,
    /// `cert` and `key`, the paths of PEM files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be understood, [`ErrorKind::Unsupported`] for TLS without
    /// the Cargo feature `tls`. Neither shows the URL, which may hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::read(url)
    }

    /// Takes the address, credentials and TLS settings of `client`, with a connection of our own.
    pub fn from_client(client: Client) -> Self {
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) {
            // Without the feature, whoever made the client has seen to it.
            drop(url::ensure_tls());
        }
        Self {
            client,
            layout: Layout::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            push: Push::Wanted,
            protocol: ProtocolVersion::RESP3,
        }
    }

    /// What all keys begin with. Default: `lock:`.
    ///
    /// Applications that share a server keep apart by prefixes of which none begins with another.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless it has 1 to 128 of the characters that keys may have.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix)?;
        Ok(self)
    }

    /// How long to wait for a connection, and for a reply. Default: [`RedisConfig::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is less than a millisecond or more than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if timeout < Duration::from_millis(1) || timeout > Duration::from_secs(60) {
            return Err(invalid(format!("timeout: 1 ms to 60 s are possible, not {timeout:?}")));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// Does not ask the server to tell of changes: those who wait poll.
    #[must_use]
    pub fn without_push(mut self) -> Self {
        self.push = Push::Off;
        self
    }

    /// Speaks RESP2, for proxies that know no other protocol: those who wait poll.
    ///
    /// A server that refuses RESP3 is spoken to in RESP2 anyway.
    #[must_use]
    pub fn resp2(mut self) -> Self {
        self.protocol = ProtocolVersion::RESP2;
        self
    }

    /// Where the server is, without credentials.
    pub(crate) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Whether a password would cross a network in the clear.
    pub(crate) fn exposes_password(&self) -> bool {
        let info = self.client.get_connection_info();
        let ConnectionAddr::Tcp(host, _) = info.addr() else {
            return false;
        };
        let loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        info.redis_settings().password().is_some() && !loopback
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("address", &self.address())
            .field("layout", &self.layout)
            .field("timeout", &self.timeout)
            .field("push", &self.push)
            .finish_non_exhaustive()
    }
}

/// Of a setting that cannot be.
fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_backend(error::BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> Error {
        RedisConfig::from_url(url).unwrap_err()
    }

    #[test]
    fn urls_say_everything() {
        let url = "redis://locker:S3CR3T@db.example:7000/3?prefix=app:&timeout-ms=250&push=off";
        let config = RedisConfig::from_url(url).unwrap();

        assert_eq!(config.address(), "db.example:7000");
        assert_eq!(config.layout, Layout::new("app:").unwrap());
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!(config.push, Push::Off);
        let settings = config.client.get_connection_info().redis_settings().clone();
        assert_eq!((settings.db(), settings.username()), (3, Some("locker")));
        assert_eq!(settings.password(), Some("S3CR3T"));
        assert!(config.exposes_password());
        assert!(!format!("{config:?}").contains("S3CR3T"));
    }

    #[test]
    fn sockets_are_addresses_too() {
        let config = RedisConfig::from_url("unix:///run/redis.sock?db=2&pass=S3CR3T").unwrap();

        assert_eq!(config.address(), "/run/redis.sock");
        assert!(!config.exposes_password());
    }

    #[test]
    fn what_cannot_be_understood_is_refused_without_showing_it() {
        for url in [
            "S3CR3T",
            "redis://:S3CR3T@",
            "redis://:S3CR3T@host:port",
            "redis://:S3CR3T@host/database",
            "redis://:S3CR3T@host?tiemout-ms=5",
            "redis://:S3CR3T@host?timeout-ms=soon",
            "redis://:S3CR3T@host?timeout-ms=0",
            "redis://:S3CR3T@host?push=maybe",
            "redis://:S3CR3T@host?prefix=a*",
            "redis://:S3CR3T@host?ca=/ca.pem",
            "redis://:S3CR3T@host#insecure",
            "redis://:S3CR3T@0.0.0.0",
            "http://:S3CR3T@host",
        ] {
            let error = refusal(url);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!format!("{error} {error:?}").contains("S3CR3T"), "{error:?}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_asks_for_its_feature() {
        assert_eq!(refusal("rediss://host").kind(), ErrorKind::Unsupported);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_files_are_read_at_once() {
        assert_eq!(refusal("rediss://host?ca=/nowhere/ca.pem").kind(), ErrorKind::Invalid);
        assert_eq!(refusal("rediss://host?cert=/nowhere/c.pem").kind(), ErrorKind::Invalid);
        RedisConfig::from_url("rediss://host").unwrap();
    }
}
