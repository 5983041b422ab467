//! Opens, uses and closes connections.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold_core::backend::Dial;
use leasehold_sql_support::remote::{self, Row, RunError};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::error;
use crate::servers::Servers;

/// How long a connection may be idle before it is checked on its next use. The server may have
/// closed the connection in the meantime, and a statement sent on it would have an unknown outcome.
const FRESH: Duration = Duration::from_secs(1);

/// Opens connections to the database.
///
/// The crate's example shows how to connect to a server.
#[derive(Debug)]
pub struct Connector {
    servers: Servers,
    timeout: Duration,
    dial: Dial<Option<IpAddr>>,
}

/// A connection. Dropping a connection closes it immediately, even while a reply is arriving.
///
/// [`Connector`] opens connections. The crate's example shows how to connect to a server.
#[derive(Debug)]
pub struct Link {
    /// The connection, or `None` while the link is being dropped.
    conn: Option<Conn>,
    /// The runtime that drives the connection.
    runtime: Id,
    used: Instant,
}

impl Connector {
    pub(crate) fn new(servers: Servers, timeout: Duration) -> Self {
        Self { servers, timeout, dial: Dial::new() }
    }
}

#[async_trait]
impl remote::Connector for Connector {
    type Link = Link;

    fn address(&self) -> String {
        self.servers.address()
    }

    async fn connect(&self) -> Result<Link, RunError> {
        let begun_at = Instant::now();
        let resolved = timeout(self.timeout, self.servers.addresses()).await;
        let addresses = resolved.map_err(RunError::not_sent)??;
        let left = self.timeout.saturating_sub(begun_at.elapsed());
        let connect = async |address| {
            let options = self.servers.driver_options(address);
            Conn::new(options).await.map_err(error::connect)
        };
        let conn =
            self.dial.first(addresses, left, connect).await.map_err(remote::no_connection)?;
        Ok(Link { conn: Some(conn), runtime: Handle::current().id(), used: Instant::now() })
    }
}

#[async_trait]
impl remote::Link for Link {
    /// A connection of a different runtime ends with that runtime, so it is not used.
    fn is_usable(&self) -> bool {
        self.runtime == Handle::current().id()
    }

    async fn is_alive(&mut self, limit: Duration) -> bool {
        self.used.elapsed() < FRESH
            || timeout(limit, self.conn().ping()).await.is_ok_and(|ping| ping.is_ok())
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        let mut rows = Vec::new();
        match self.read(text, &mut rows).await {
            Ok(()) => {
                self.used = Instant::now();
                Ok(rows)
            }
            Err(error) => Err(error::exchange(error, &rows)),
        }
    }
}

impl Link {
    async fn read(&mut self, text: String, rows: &mut Vec<Row>) -> Result<(), mysql_async::Error> {
        let mut result = self.conn().query_iter(text).await?;
        while !result.is_empty() {
            while let Some(row) = result.next().await? {
                rows.push(row.unwrap().into_iter().map(column).collect());
            }
        }
        // This call reports an error of the last statement.
        result.drop_result().await
    }

    fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("it is not dropped")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A single poll sends the goodbye message if possible, after which the connection is
        // closed. On its own, the driver would wait in a task for the rest of a reply.
        if let Some(conn) = self.conn.take() {
            drop(conn.disconnect().now_or_never());
        }
    }
}

fn column(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        // The text protocol does not have further value types.
        other => Some(other.as_sql(true)),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_sql_support::remote::{Connector as _, Settings};
    use leasehold_testbed::MariaDb;
    use tokio::net::TcpListener;

    use super::*;

    const TIME: Duration = Duration::from_secs(4);

    #[tokio::test]
    async fn address_that_says_nothing_leaves_time_for_the_next() {
        let server = MariaDb::start().await;
        let mute = TcpListener::bind(("127.0.0.2", server.port())).await.unwrap();
        let url = server.url().replace("127.0.0.1", "db.example");
        let servers = Servers::from_url(&url, &mut Settings::new(TIME)).unwrap();
        let addresses = ["127.0.0.2", "127.0.0.1"].map(|it| it.parse().unwrap());
        let connector = Connector::new(servers.resolved_to(addresses.to_vec()), TIME);

        let mut link = connector.connect().await.unwrap();

        assert!(link.conn().ping().await.is_ok());
        assert!(mute.accept().await.is_ok(), "the first address was tried");
    }
}
