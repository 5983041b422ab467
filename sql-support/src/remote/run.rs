//! The interface between calls and the connections that execute them.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::call::Call;
use crate::remote::{Reply, Row, RunError};

/// Runs query batches on the application's connections, for example from a pool of any crate.
///
/// Each query batch ([`Call::at`]) must be sent unchanged, in *one message*, on a connection that is
/// not in a transaction. The message is specified in the documentation of the database's crate. The
/// example in the `leasehold-postgres` crate implements this trait.
#[async_trait]
pub trait Run: Debug + Send + Sync + 'static {
    /// Runs the query batch of a call within `limit`. Returns the rows of all of its statements.
    ///
    /// The server must give up before the client. Pass the time limit for the server to
    /// [`Call::at`].
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] that states whether the server may have applied the transaction.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe. A connection may be reused only after its reply has
    /// been read completely.
    async fn run(
        &self,
        call: &Call,
        urgency: Urgency,
        limit: Duration,
    ) -> Result<Vec<Row>, RunError>;
}

/// Executes calls on connections.
#[async_trait]
pub(crate) trait Connections: Debug + Send + Sync + 'static {
    /// Executes a call within `limit`.
    async fn run(&self, call: &Call, urgency: Urgency, limit: Duration) -> Result<Reply, RunError>;

    /// Keeps a connection for the renewal and the release of leases with this TTL, which were just
    /// granted or renewed.
    fn keep_for_renewals(&self, _ttl: Duration) {}

    /// Drops the connections that Leasehold has opened. Later calls open new connections.
    fn disconnect(&self) {}

    /// Closes the connections that Leasehold has opened. Later calls fail.
    async fn close(&self) {}
}

/// The connections of the application.
#[derive(Debug)]
pub(crate) struct Theirs(pub(crate) Arc<dyn Run>);

#[async_trait]
impl Connections for Theirs {
    async fn run(&self, call: &Call, urgency: Urgency, limit: Duration) -> Result<Reply, RunError> {
        call.reply(self.0.run(call, urgency, limit).await?)
    }
}

/// The urgency of a transaction.
///
/// [`Run::run`] receives this value, so that an implementation can reserve connections for
/// renewals.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Urgency {
    /// An acquisition or a read. The transaction may wait for a connection.
    Asks,
    /// A release. Acquisitions must not occupy its connection, no matter how many acquisitions
    /// there are.
    Releases,
    /// A renewal. Neither acquisitions nor releases may occupy the connection that renewals use, unless
    /// the server accepts no more connections and the lock could not be released otherwise.
    Renews,
}
