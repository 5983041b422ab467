//! The interface of a driver's connections.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::lookup_host;

use crate::call::Call;
use crate::remote::{Reply, Row, RunError};

/// Opens connections for a [`Pool`](crate::remote::Pool).
///
/// The `leasehold-postgres` and `leasehold-mysql` crates contain complete implementations.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// The type of a connection.
    type Link: Link;

    /// Returns the hosts and ports of the servers, for error messages.
    fn address(&self) -> String;

    /// Opens a connection on the current runtime.
    ///
    /// # Errors
    ///
    /// Returns [`RunError::not_sent`] if no connection could be opened, and the error of the server if
    /// it has rejected the connection.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the connection must be closed.
    async fn connect(&self) -> Result<Self::Link, RunError>;
}

/// Formats a host and a port as in a URL.
///
/// ```
/// use leasehold_sql_support::remote::host_and_port;
///
/// assert_eq!(host_and_port("::1", 5432), "[::1]:5432");
/// ```
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns the addresses of a host, without duplicates.
///
/// # Errors
///
/// Returns [`RunError::not_sent`] if the name cannot be resolved.
pub async fn addresses_of(host: &str) -> Result<Vec<IpAddr>, RunError> {
    let found = lookup_host((host, 0)).await.map_err(RunError::not_sent)?;
    let mut addresses = Vec::new();
    for address in found.map(|found| found.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Returns the error to report if none of several addresses accepted a connection. The error is the
/// last failure, or a timeout if no attempt has failed.
///
/// The connectors of the `leasehold-postgres` and `leasehold-mysql` crates call this function.
pub fn no_connection(mut failures: Vec<RunError>) -> RunError {
    let late = || RunError::not_sent(io::Error::from(io::ErrorKind::TimedOut));
    failures.pop().unwrap_or_else(late)
}

/// A connection to a database. Dropping a connection closes it, even while a reply is arriving.
///
/// The `leasehold-postgres` and `leasehold-mysql` crates contain complete implementations.
#[async_trait]
pub trait Link: Send + 'static {
    /// Returns whether, according to what this process knows, the caller can use the connection. A
    /// connection cannot be used if a transaction may be open, or if an error shows that another
    /// connection may succeed.
    fn is_usable(&self) -> bool;

    /// Returns whether the server still serves this connection. If the driver is not notified of
    /// closed connections, it sends a request to the server and waits for at most `limit`.
    async fn is_alive(&mut self, limit: Duration) -> bool;

    /// Executes a call in the session of this connection, which has Leasehold's settings and prepared
    /// statements. The server should give up before `left` has passed. The caller enforces a time limit by
    /// dropping the future.
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] that states whether the server may have applied the transaction. After
    /// any error except [`Failure::Unknown`](crate::Failure::Unknown), the pool uses the connection
    /// again if it [`is_usable`](Self::is_usable).
    ///
    /// Returns [`Failure::Unprepared`](crate::Failure::Unprepared) if the session does not have the
    /// settings or cannot prepare statements. The pool then sends complete query batches.
    async fn execute(&mut self, call: &Call, left: Duration) -> Result<Reply, RunError>;

    /// Runs a query batch and returns the rows of all of its statements.
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] that states whether the server may have applied the transaction.
    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError>;
}
