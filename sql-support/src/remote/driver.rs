//! The interface of a driver, which connects to servers and prepares the database.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::Fencing;

use crate::layout::Layout;
use crate::news::News;
use crate::remote::{Connector, Execute, Settings, Table};

/// The driver for one type of server, which [`Remote`](crate::Remote) uses.
///
/// The `leasehold-postgres` and `leasehold-mysql` crates contain complete implementations.
#[async_trait]
pub trait Driver: Send + Sync + Sized + 'static {
    /// The name of the backend in errors and logs.
    const NAME: &'static str;

    /// The default time limit for a call.
    const DEFAULT_TIMEOUT: Duration;

    /// The servers and the options for connections. `Debug` must show neither the user nor the
    /// password.
    type Servers: Clone + Debug + Send + Sync + 'static;

    /// The type that opens connections.
    type Connector: Connector;

    /// Reads a URL. The driver passes parameters that it does not recognize to `settings`.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid. The error
    /// does not show the URL, because it may contain a password.
    fn read_url(url: &str, settings: &mut Settings) -> Result<Self::Servers, Error>;

    /// Returns the statements that create the tables.
    fn migration(layout: &Layout) -> String;

    /// Creates a connector for the servers. `timeout` is the time limit for a call.
    fn connector(servers: Self::Servers, timeout: Duration) -> Self::Connector;

    /// Checks whether the tables exist, and creates missing tables if `settings` allows it.
    /// `connector` is `None` if the application provides the connections.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Database::open`](crate::rows::Database::open).
    async fn open(
        run: &dyn Execute,
        connector: Option<Arc<Self::Connector>>,
        settings: &Settings,
    ) -> Result<Opened<Self>, Error>;

    /// Closes connections outside of the pool.
    fn close(&self) {}
}

/// A driver whose server sends notifications about changes, and can commit a single transaction
/// without waiting for the disk.
///
/// [`Config::without_push`](super::Config::without_push) and
/// [`Config::with_lazy_releases`](super::Config::with_lazy_releases) are available for these drivers.
pub trait Hears: Driver {}

/// A database that is ready for use.
///
/// [`Driver::open`] returns this type.
#[derive(Debug)]
pub struct Opened<D> {
    /// The driver.
    pub driver: D,
    /// The statements on the database's table of keys.
    pub table: Arc<dyn Table>,
    /// The strength of the database's fencing tokens.
    pub fencing: Fencing,
    /// The source of change notifications for the database's clients.
    pub news: News,
}
