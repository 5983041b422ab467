//! The settings for the connection to servers.

mod url;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Clock, SystemClock};
use leasehold_core::{Error, ErrorKind};
use leasehold_settings::{REQUEST_TIMEOUT, duration_in};

use crate::address::{Address, Endpoints};
use crate::driver::{Access, Driver, Protocol};
use crate::layout::Layout;

/// The servers to connect to with the driver `D`, and the options for the connections. `Debug`
/// shows neither users nor passwords.
///
/// The `leasehold-redis` and `leasehold-fred` crates define type aliases for this type and contain
/// examples.
#[derive(Clone)]
pub struct Config<D> {
    pub(crate) driver: D,
    pub(crate) topology: Endpoints,
    pub(crate) access: Access,
    /// Sentinels have separate credentials.
    pub(crate) sentinel_access: Access,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) push: bool,
    pub(crate) protocol: Protocol,
    pub(crate) replicas: Replicas,
    pub(crate) replicas_timeout: Duration,
}

/// The number of replicas that must acknowledge a grant.
///
/// [`Config::wait_replicas`] takes an argument of this type.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Replicas {
    /// A grant is valid immediately.
    #[default]
    None,
    /// At least this number of replicas.
    AtLeast(u8),
    /// Enough replicas to form a majority together with the primary. Only sentinels and clusters
    /// know the number of replicas.
    Majority,
}

impl<D: Driver> Config<D> {
    /// The default time limit for a connection and for a reply.
    ///
    /// The limit is generous, because a server in the same region replies within milliseconds. The
    /// limit is also short enough for several renewal attempts within one TTL.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

    /// Creates a configuration with the servers, the credentials and the TLS settings of `native`.
    /// Leasehold opens its own connections.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if `native` has a setting that Leasehold does not
    /// support.
    pub fn from_client(native: D::Native) -> Result<Self, Error> {
        let (driver, topology, access) = D::adopt(native)?;
        Ok(Self::new(driver, topology, access))
    }

    pub(crate) fn new(driver: D, topology: Endpoints, access: Access) -> Self {
        Self {
            driver,
            topology,
            access,
            sentinel_access: Access::default(),
            layout: Layout::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            clock: Arc::new(SystemClock),
            push: true,
            protocol: Protocol::Resp3,
            replicas: Replicas::None,
            replicas_timeout: Self::DEFAULT_TIMEOUT,
        }
    }

    /// Sets the prefix of all keys. The default is `lock:`.
    ///
    /// If several applications share a server, each application needs a different prefix. The
    /// prefix of one application must not start with the prefix of another application.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the prefix is empty, is longer than 128 characters or
    /// contains characters that keys cannot contain.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix)?;
        Ok(self)
    }

    /// Sets the time limit for connecting to a server and for each reply. The default is
    /// [`Config::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the limit is less than 1 ms or more than 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        self.timeout = duration_in(&REQUEST_TIMEOUT, "timeout (timeout-ms in a URL)", timeout)?;
        Ok(self)
    }

    /// Sets the clock that measures how long replies from sentinels or a cluster are valid. Use the
    /// same clock as the [client](leasehold_core::Builder::clock). Network timeouts always use real
    /// time. The default is [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Disables notifications from the servers, so that waiters poll.
    #[must_use]
    pub fn without_push(mut self) -> Self {
        self.push = false;
        self
    }

    /// Uses the RESP2 protocol, for proxies that do not support RESP3. With RESP2, waiters poll.
    ///
    /// If a server does not support RESP3, the backend uses RESP2 automatically.
    #[must_use]
    pub fn resp2(mut self) -> Self {
        self.protocol = Protocol::Resp2;
        self
    }

    /// Requires that replicas acknowledge every grant within `timeout`, with the `WAIT` command. If
    /// too few replicas acknowledge a grant, the grant is released and the acquisition returns
    /// [`NotWritable`](ErrorKind::NotWritable). The default is [`Replicas::None`].
    ///
    /// Waiting for replicas reduces the risk that a failover loses a grant, but does not eliminate
    /// the risk. A failover may promote a replica that has not acknowledged the grant, and a
    /// replica that has acknowledged the grant may still lose it. If a failover loses a grant, only
    /// the fencing token protects the data.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the timeout is less than 1 ms or more than 60 s. Returns
    /// [`ErrorKind::Unsupported`] if a majority of replicas is required on a single server, because
    /// a single server does not know how many replicas it should have.
    pub fn wait_replicas(mut self, replicas: Replicas, timeout: Duration) -> Result<Self, Error> {
        if replicas == Replicas::Majority && matches!(self.topology, Endpoints::Single(_)) {
            let message = "wait-replicas must be a number for a single server, because the server does not know how many replicas it should have";
            return Err(Error::new(ErrorKind::Unsupported, message).with_backend(D::NAME));
        }
        self.replicas = match replicas {
            Replicas::AtLeast(0) => Replicas::None,
            replicas => replicas,
        };
        self.replicas_timeout = duration_in(&REQUEST_TIMEOUT, "wait-replicas-ms", timeout)?;
        Ok(self)
    }

    /// Sets the credentials for sentinels. By default, no credentials are sent to sentinels.
    #[must_use]
    pub fn sentinel_access(
        mut self,
        user: Option<impl Into<String>>,
        password: impl Into<String>,
    ) -> Self {
        let user = user.map(Into::into);
        self.sentinel_access = Access { user, password: Some(password.into()), database: 0 };
        self
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Single(address) => address.fmt(f),
            Self::Sentinel { sentinels, master } => write!(f, "{}/{master}", list(sentinels)),
            Self::Cluster { seeds } => f.write_str(&list(seeds)),
        }
    }
}

impl<D> fmt::Debug for Config<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("topology", &format_args!("{}", self.topology))
            .field("layout", &self.layout)
            .field("timeout", &self.timeout)
            .field("push", &self.push)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
