//! Which servers, and how to speak to them.

mod url;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Clock, SystemClock};
use leasehold_core::{Error, ErrorKind};

use crate::address::{Address, Endpoints};
use crate::driver::{Access, Driver, Protocol};
use crate::layout::Layout;

/// Which servers to use with the driver `D`, and how. `Debug` shows neither users nor passwords.
#[derive(Clone)]
pub struct Config<D> {
    pub(crate) driver: D,
    pub(crate) topology: Endpoints,
    pub(crate) access: Access,
    /// Sentinels have users of their own.
    pub(crate) sentinel_access: Access,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) push: bool,
    pub(crate) protocol: Protocol,
    pub(crate) replicas: Replicas,
    pub(crate) replicas_timeout: Duration,
}

/// How many replicas must have a grant before it counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Replicas {
    /// It counts at once.
    #[default]
    None,
    /// So many.
    AtLeast(u8),
    /// So many that they and the primary are a majority. Only sentinels and clusters know how many replicas there are.
    Majority,
}

impl<D: Driver> Config<D> {
    /// Long for a server in the same region, where a reply takes milliseconds; short enough that
    /// a renewal is tried several times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(500);

    /// Takes the servers, credentials and TLS settings of `native`; Leasehold makes connections of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if it says something that has no meaning here.
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

    /// The prefix of all keys. Default: `lock:`.
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

    /// How long to wait for a connection, and for a reply. Default: [`Config::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is less than a millisecond or more than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        self.timeout = a_millisecond_to_a_minute("timeout (timeout-ms in a URL)", timeout)?;
        Ok(self)
    }

    /// The clock on which the backend counts how long a server behind sentinels or in a cluster is believed: that of the
    /// [client](leasehold_core::Builder::clock). Timeouts of the network are counted in real time. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Does not ask the servers for news: waiters poll.
    #[must_use]
    pub fn without_push(mut self) -> Self {
        self.push = false;
        self
    }

    /// Speaks RESP2, for proxies that know no other protocol: waiters poll.
    ///
    /// A server that refuses RESP3 is spoken to in RESP2 anyway.
    #[must_use]
    pub fn resp2(mut self) -> Self {
        self.protocol = Protocol::Resp2;
        self
    }

    /// Has every grant acknowledged by so many `replicas` within `timeout`, by `WAIT`; one that is not is released again, and
    /// the acquisition fails with [`NotWritable`](ErrorKind::NotWritable). Default: none.
    ///
    /// This narrows the time in which a failover loses a grant, and does not close it: a replica that has not acknowledged may be
    /// promoted, and one that has may lose its memory. The fencing token keeps data right then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a timeout of less than a millisecond or more than a minute,
    /// [`ErrorKind::Unsupported`] for a majority on a single server, which does not know how many replicas there should be.
    pub fn wait_replicas(mut self, replicas: Replicas, timeout: Duration) -> Result<Self, Error> {
        if replicas == Replicas::Majority && matches!(self.topology, Endpoints::Single(_)) {
            let message = "wait-replicas must be a number for a single server, which does not know how many replicas it \
                           should have";
            return Err(Error::new(ErrorKind::Unsupported, message).with_backend(D::NAME));
        }
        self.replicas = match replicas {
            Replicas::AtLeast(0) => Replicas::None,
            replicas => replicas,
        };
        self.replicas_timeout = a_millisecond_to_a_minute("wait-replicas-ms", timeout)?;
        Ok(self)
    }

    /// The credentials for sentinels that ask for some. Default: none.
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

fn a_millisecond_to_a_minute(name: &str, time: Duration) -> Result<Duration, Error> {
    if time < Duration::from_millis(1) || time > Duration::from_secs(60) {
        let message = format!("{name} must be between 1 ms and 60 s, not {} ms", time.as_millis());
        return Err(invalid(message));
    }
    Ok(time)
}

/// The error of an impossible setting.
fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
