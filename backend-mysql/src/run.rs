//! The seam between the texts of transactions and the connections that run them.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_sql_support::remote::{Row, Text};

use crate::error::RunError;

/// Runs the texts of transactions: connections that the application has, in a pool of any crate.
///
/// Each text goes to the server as it is, in *one message*, a query of several statements (`mysql_async::Queryable::query_iter`,
/// `sqlx::raw_sql`), on a connection that is outside of a transaction. A connection on which a text failed must be *closed*: its
/// transaction may be open.
///
/// A text sets the time zone, the modes and the limits of time of its session, and variables such as `@now`. A pool that others use, too, resets the
/// session between two uses, as that of `mysql_async` does.
#[async_trait]
pub trait Run: Debug + Send + Sync + 'static {
    /// Runs a text within `limit`, and gives the rows of all of its statements.
    ///
    /// The server is to give up before: [`Text::at`] takes the limit that it is told.
    ///
    /// # Errors
    ///
    /// What is known about the transaction, see the constructors of [`RunError`].
    ///
    /// # Cancel safety
    ///
    /// Must be safe to drop: the connection is used again only when its reply was read to the end.
    async fn run(
        &self,
        text: &Text,
        urgency: Urgency,
        limit: Duration,
    ) -> Result<Vec<Row>, RunError>;

    /// Closes connections that are not the application's.
    async fn close(&self) {}
}

/// How urgent a transaction is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Urgency {
    /// An acquisition, a look: it may wait for a connection.
    Asks,
    /// A release: acquisitions must not keep connections from it, however many there are.
    Releases,
    /// A renewal: neither acquisitions nor releases must keep connections from it.
    Renews,
}
