//! The part of a driver: how it connects, and how its server gets ready.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::Fencing;

use crate::layout::Layout;
use crate::news::News;
use crate::remote::{Connector, Run, Settings, Statements};

/// The driver of one kind of server, for [`Remote`](crate::Remote).
#[async_trait]
pub trait Driver: Send + Sync + Sized + 'static {
    /// How errors and logs name the backend.
    const NAME: &'static str;

    /// How long a call may take in all, if the application does not say.
    const DEFAULT_TIMEOUT: Duration;

    /// The servers to connect to, and how. `Debug` shows neither user nor password.
    type Servers: Clone + Debug + Send + Sync + 'static;

    /// Connects to them.
    type Connector: Connector;

    /// Reads a URL, and has `settings` read the parameters that are its own.
    ///
    /// # Errors
    ///
    /// As [`Database::read_url`](crate::Database::read_url).
    fn read_url(url: &str, settings: &mut Settings) -> Result<Self::Servers, Error>;

    /// The statements that create the tables.
    fn migration(layout: &Layout) -> String;

    /// Creates the connector to the servers. A call takes `timeout` at most.
    fn connector(servers: Self::Servers, timeout: Duration) -> Self::Connector;

    /// Finds out whether the tables are there, and creates them where it may. `connector` is missing if the connections of `run` are the
    /// application's.
    ///
    /// # Errors
    ///
    /// As [`Database::open`](crate::Database::open).
    async fn open(
        run: &dyn Run,
        connector: Option<Arc<Self::Connector>>,
        settings: &Settings,
    ) -> Result<Opened<Self>, Error>;

    /// Closes connections that are not of the pool.
    fn close(&self) {}
}

/// A driver whose server tells of changes.
pub trait Hears: Driver {}

/// A database that is ready.
#[derive(Debug)]
pub struct Opened<D> {
    /// The driver.
    pub driver: D,
    /// The texts for its tables.
    pub statements: Box<dyn Statements>,
    /// How far its tokens are in order.
    pub fencing: Fencing,
    /// Where its clients hear of changes.
    pub news: News,
}
