//! The seam between the texts of transactions and the connections that run them.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_sql_support::remote::{Row, Text};

use crate::error::RunError;

/// Runs the texts of transactions: connections that the application has, in a pool of any crate.
///
/// Each text goes to the server as it is, in *one message of the simple query protocol* (`tokio_postgres::Client::simple_query`,
/// `sqlx::raw_sql`), on a connection that is outside of a transaction. Connections may be those of a pooler in transaction mode.
///
/// ```no_run
/// use std::time::Duration;
///
/// use leasehold_postgres::tokio_postgres::{Client, SimpleQueryMessage};
/// use leasehold_postgres::{PostgresBackend, PostgresConfig, Row, Run, RunError, Text, Urgency};
///
/// /// One connection, which the application makes and drives.
/// struct Mine(Client);
/// # impl std::fmt::Debug for Mine {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Mine") }
/// # }
///
/// #[async_trait::async_trait]
/// impl Run for Mine {
///     async fn run(&self, text: &Text, _: Urgency, limit: Duration) -> Result<Vec<Row>, RunError> {
///         let reply = self.0.simple_query(&text.at(limit * 4 / 5)).await;
///         let messages = reply.map_err(|error| match error.code().map(|code| code.code().to_owned()) {
///             Some(code) => RunError::reported(&code, error),
///             None => RunError::no_reply(error),
///         })?;
///         let rows = messages.iter().filter_map(|message| match message {
///             SimpleQueryMessage::Row(row) => Some(row),
///             _ => None,
///         });
///         let columns = |row: &tokio_postgres::SimpleQueryRow| (0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect();
///         Ok(rows.map(columns).collect())
///     }
/// }
///
/// # async fn example(client: Client) -> Result<(), leasehold_core::Error> {
/// let backend = PostgresBackend::connect_with(PostgresConfig::from_run(Mine(client))).await?;
/// # Ok(())
/// # }
/// # use leasehold_postgres::tokio_postgres;
/// ```
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
