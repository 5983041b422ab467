//! Opens, uses and closes connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold_core::backend::Dial;
use leasehold_sql_support::mysql::{Message, Parameter, Session};
use leasehold_sql_support::remote::{self, Reply, Row, RunError};
use leasehold_sql_support::{Call, Failure};
use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Conn, QueryResult, Statement, Value};
use tokio::time::timeout;

use crate::error;
use crate::servers::Servers;

/// How long a connection may be idle before it is checked on its next use. The server may have
/// closed the connection in the meantime, and the outcome of the next statement would be unknown.
const FRESH: Duration = Duration::from_secs(1);

const UNPREPARED: &str = "cannot prepare a statement, which a Galera cluster requires; raise max_prepared_stmt_count, or use a proxy that supports prepared statements";

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
    session: Session,
    /// The prepared statements, by their text.
    statements: HashMap<String, Statement>,
    /// Whether the next statement needs another connection, because a transaction may be open, a reply
    /// has not arrived completely, or another connection may lead to another server.
    is_spent: bool,
    /// Whether the server is a node of a Galera cluster.
    is_in_cluster: bool,
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
        let session = Session::new(self.timeout);
        let begin = async |address| {
            let options = self.servers.driver_options(address);
            let mut conn = Conn::new(options).await?;
            let mut rows = Vec::new();
            read(conn.query_iter(session.settings()).await?, &mut rows).await?;
            let more = Session::more_settings(&rows);
            if let Some(more) = more {
                conn.query_drop(more).await?;
            }
            Ok((conn, more.is_some()))
        };
        let connect = async |address| begin(address).await.map_err(error::connect);
        let (conn, is_in_cluster) =
            self.dial.first(addresses, left, connect).await.map_err(remote::no_connection)?;
        Ok(Link {
            conn: Some(conn),
            session,
            statements: HashMap::new(),
            is_spent: false,
            is_in_cluster,
            used: Instant::now(),
        })
    }
}

#[async_trait]
impl remote::Link for Link {
    fn is_usable(&self) -> bool {
        !self.is_spent
    }

    async fn is_alive(&mut self, limit: Duration) -> bool {
        self.used.elapsed() < FRESH
            || timeout(limit, self.conn().ping()).await.is_ok_and(|ping| ping.is_ok())
    }

    async fn execute(&mut self, call: &Call, left: Duration) -> Result<Reply, RunError> {
        let begun_at = Instant::now();
        // The next statement would read a reply that has not arrived completely.
        self.is_spent = true;
        if let Some(limits) = self.session.limits(left) {
            let changed = timeout(left, self.conn().query_drop(limits)).await;
            changed.map_err(RunError::not_sent)?.map_err(error::before)?;
        }
        let mut rows = Vec::new();
        let executed = match self.session.message(call) {
            Message::Prepared(text, parameters) => {
                let left = left.saturating_sub(begun_at.elapsed());
                let prepared = timeout(left, self.prepare(text)).await;
                let prepared = prepared.map_err(RunError::not_sent)?.map_err(error::before);
                let statement = prepared.map_err(|error| self.unless_in_cluster(error))?;
                let parameters: Vec<_> = parameters.into_iter().map(value).collect();
                let executed = async {
                    read(self.conn().exec_iter(&statement, parameters).await?, &mut rows).await
                };
                executed.await
            }
            Message::Statement(text) => {
                let executed = async { read(self.conn().query_iter(text).await?, &mut rows).await };
                executed.await
            }
            Message::Batch(text) => return self.execute_batch(call, text).await,
        };
        let (changed, insert_id) = executed.map_err(|error| {
            self.is_spent = !error::is_passing(&error);
            self.unless_in_cluster(error::exchange(error, &[]))
        })?;
        (self.is_spent, self.used) = (false, Instant::now());
        Ok(Reply { rows, changed, insert_id })
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        // The transaction may be open until the whole reply has arrived.
        self.is_spent = true;
        let mut rows = Vec::new();
        let exchanged = async {
            let result = self.conn().query_iter(text).await?;
            read(result, &mut rows).await
        };
        match exchanged.await {
            Ok(_) => {
                (self.is_spent, self.used) = (false, Instant::now());
                Ok(rows)
            }
            Err(error) => Err(error::exchange(error, &rows)),
        }
    }
}

impl Link {
    /// Executes several statements. A conflict may leave the transaction open, so the client rolls back.
    async fn execute_batch(&mut self, call: &Call, text: String) -> Result<Reply, RunError> {
        let rows = remote::Link::exchange(self, text).await;
        let failure = rows.as_ref().err().map(RunError::failure);
        if matches!(failure, Some(Failure::Conflict | Failure::Changed)) {
            self.is_spent = self.conn().query_drop(Session::ROLLBACK).await.is_err();
        }
        call.reply(rows?)
    }

    /// Returns the prepared statement, and prepares it first if necessary.
    async fn prepare(&mut self, text: &str) -> Result<Statement, mysql_async::Error> {
        if let Some(statement) = self.statements.get(text) {
            return Ok(statement.clone());
        }
        let statement = self.conn().prep(text).await?;
        self.statements.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Prevents that the pool sends complete query batches to a node of a Galera cluster, which does
    /// not report every aborted query batch.
    fn unless_in_cluster(&self, error: RunError) -> RunError {
        if self.is_in_cluster && error.failure() == Failure::Unprepared {
            return RunError::new(Failure::NotApplied, UNPREPARED, error);
        }
        error
    }

    fn conn(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("it is not dropped")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A single poll sends the goodbye message if possible, after which the connection is
        // closed. On its own, the driver would wait in a task for the remaining part of a reply.
        if let Some(conn) = self.conn.take() {
            drop(conn.disconnect().now_or_never());
        }
    }
}

/// Reads a complete reply. Returns the number of changed rows and the insert id of the last
/// statement.
async fn read<P: Protocol>(
    mut result: QueryResult<'_, '_, P>,
    rows: &mut Vec<Row>,
) -> Result<(u64, i64), mysql_async::Error> {
    while !result.is_empty() {
        while let Some(row) = result.next().await? {
            rows.push(row.unwrap().into_iter().map(column).collect());
        }
    }
    let (changed, insert_id) = (result.affected_rows(), result.last_insert_id());
    // This call reports an error of the last statement.
    result.drop_result().await?;
    Ok((changed, insert_id.and_then(|id| id.try_into().ok()).unwrap_or(0)))
}

fn value(parameter: Parameter) -> Value {
    match parameter {
        Parameter::Null => Value::NULL,
        Parameter::Int(number) => Value::Int(number),
        Parameter::Bytes(bytes) => Value::Bytes(bytes),
    }
}

fn column(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        // Numbers of prepared statements.
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
