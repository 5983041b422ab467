//! How connections are made, used and closed.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use leasehold_sql_support::remote::Row;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Value};
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::error::{self, RunError};

/// After this time without use, a connection is asked whether it is still there: the server may have ended it meanwhile, and a text sent over
/// it would have an outcome that nobody knows.
const FRESH: Duration = Duration::from_secs(1);

/// How often the operating system asks for the other end of an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The driver asks the server for its own limit otherwise. Texts are shorter than that of any server's.
const MAX_PACKET: usize = 64 * 1024 * 1024;

/// Makes connections.
pub(crate) struct Connector(Opts);

/// A connection. When dropped it is closed at once, whatever it is at.
pub(crate) struct Link {
    /// `None` only while it is dropped.
    conn: Option<Conn>,
    /// The runtime that drives it.
    runtime: Id,
    used: Instant,
}

impl Connector {
    pub(crate) fn new(options: OptsBuilder) -> Self {
        let options = options
            .tcp_keepalive(Some(KEEPALIVE))
            // Another way to the server would be tried unasked.
            .prefer_socket(false)
            .max_allowed_packet(Some(MAX_PACKET))
            // It is for the driver's own pool.
            .wait_timeout(Some(28_800))
            .stmt_cache_size(0);
        Self(options.into())
    }

    /// Makes a connection on the caller's runtime.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Link, RunError> {
        let conn = timeout(limit, Conn::new(self.0.clone())).await;
        let conn = conn.map_err(RunError::not_sent)?.map_err(error::connect)?;
        Ok(Link { conn: Some(conn), runtime: Handle::current().id(), used: Instant::now() })
    }
}

impl Link {
    /// Whether the caller's runtime drives it. Another one may be gone.
    pub(crate) fn is_driven_here(&self) -> bool {
        self.runtime == Handle::current().id()
    }

    /// Whether it is there, as far as one can tell.
    pub(crate) async fn is_alive(&mut self, limit: Duration) -> bool {
        self.used.elapsed() < FRESH
            || timeout(limit, self.conn().ping()).await.is_ok_and(|ping| ping.is_ok())
    }

    /// Runs a text, and gives all rows of all of its statements.
    pub(crate) async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        let mut rows = Vec::new();
        match self.read(text, &mut rows).await {
            Ok(()) => {
                self.used = Instant::now();
                Ok(rows)
            }
            Err(error) => Err(error::exchange(error, &rows)),
        }
    }

    async fn read(&mut self, text: String, rows: &mut Vec<Row>) -> Result<(), mysql_async::Error> {
        let mut result = self.conn().query_iter(text).await?;
        while !result.is_empty() {
            while let Some(row) = result.next().await? {
                rows.push(row.unwrap().into_iter().map(column).collect());
            }
        }
        // Here it tells of an error of the last statement.
        result.drop_result().await
    }

    fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("it is not dropped")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Polled once it says goodbye if it can, and is closed: the driver would wait for the rest of a reply, in a task.
        if let Some(conn) = self.conn.take() {
            drop(conn.disconnect().now_or_never());
        }
    }
}

fn column(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        // The protocol of texts has no others.
        other => Some(other.as_sql(true)),
    }
}
