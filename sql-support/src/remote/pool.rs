//! The connections that Leasehold opens.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, mem};

use async_trait::async_trait;
use tokio::net::lookup_host;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::failure::Failure;
use crate::remote::{Preparable, Row, Run, RunError, Text, Urgency};

/// Opens connections for a [`Pool`].
///
/// The `leasehold-postgres` and `leasehold-mysql` crates contain complete implementations.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// The type of a connection.
    type Link: Link;

    /// Returns the hosts and ports of the servers, for error messages.
    fn address(&self) -> String;

    /// Opens a connection on the caller's runtime. The caller enforces the time limit by dropping
    /// the future.
    ///
    /// # Errors
    ///
    /// Returns [`RunError::not_sent`] if no connection could be opened.
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
    /// Returns whether, according to what this process knows, the caller can use the connection.
    fn is_usable(&self) -> bool;

    /// Returns whether the server still serves this connection. If the driver is not notified of
    /// closed connections, it sends a request to the server and waits for at most `limit`.
    async fn is_alive(&mut self, limit: Duration) -> bool;

    /// Runs a query batch and returns the rows of all of its statements.
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] that states whether the server may have applied the transaction.
    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError>;
}

/// Three groups of connections: several connections for acquisitions, one for releases, and one for
/// renewals. Releases have a separate connection because they may have to wait for a lock-table
/// partition. One connection is enough for renewals, because they are sent in batches.
///
/// [`Remote`](crate::Remote) creates a pool unless the application provides the connections.
pub struct Pool<C: Connector> {
    connector: Arc<C>,
    asks: Lane<C::Link>,
    releases: Lane<C::Link>,
    renews: Lane<C::Link>,
    /// Whether statements are prepared. Becomes `false` if a prepared statement is missing.
    prepares: AtomicBool,
}

/// A group of connections, which are opened on demand.
struct Lane<L> {
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<Connection<L>>>,
}

struct Connection<L> {
    link: L,
    /// The statements that are prepared on this connection.
    prepared: Vec<Arc<Preparable>>,
}

impl<C: Connector> Pool<C> {
    /// Creates a pool with `connections` connections for acquisitions.
    pub fn new(connector: Arc<C>, connections: usize) -> Self {
        let [asks, releases, renews] = [connections, 1, 1].map(Lane::new);
        Self { connector, asks, releases, renews, prepares: AtomicBool::new(true) }
    }

    /// Returns an idle connection that still works, or opens a new connection.
    async fn take(
        &self,
        lane: &Lane<C::Link>,
        limit: Duration,
    ) -> Result<Connection<C::Link>, RunError> {
        while let Some(mut connection) = lane.take_idle() {
            if connection.link.is_alive(limit / 4).await {
                return Ok(connection);
            }
            // Because one idle connection was closed, the remaining idle connections may be closed
            // too.
            lane.disconnect();
        }
        match self.connector.connect().await {
            Ok(link) => Ok(Connection { link, prepared: Vec::new() }),
            Err(error) => Err(error.at(&self.connector.address())),
        }
    }

    /// Runs a query batch on a connection of this group, until `give_up`.
    async fn run_on(
        &self,
        lane: &Lane<C::Link>,
        text: &Text,
        give_up: Instant,
    ) -> Result<Vec<Row>, RunError> {
        let left = || give_up.saturating_duration_since(Instant::now());
        let connection = timeout(left(), self.take(lane, left())).await;
        let late = |elapsed| RunError::not_sent(elapsed).at(&self.connector.address());
        let mut connection = connection.map_err(late)??;
        let (limit, prepares) = (left() * 4 / 5, self.prepares.load(Ordering::Relaxed));
        let prepared = prepares.then(|| text.prepared(limit, &mut connection.prepared)).flatten();
        let text = prepared.unwrap_or_else(|| text.at(limit));
        let reply = timeout(left(), connection.link.exchange(text)).await;
        let rows = reply.unwrap_or_else(|elapsed| Err(RunError::no_reply(elapsed)))?;
        // A connection is reused only after a complete reply without an error. In all other cases,
        // the connection may still be in a transaction.
        lane.put_back(connection);
        Ok(rows)
    }
}

#[async_trait]
impl<C: Connector> Run for Pool<C> {
    async fn run(
        &self,
        text: &Text,
        urgency: Urgency,
        limit: Duration,
    ) -> Result<Vec<Row>, RunError> {
        let give_up = Instant::now() + limit;
        let lane = match urgency {
            Urgency::Asks => &self.asks,
            Urgency::Releases => &self.releases,
            Urgency::Renews => &self.renews,
        };
        let _turn = turn(&lane.turns, limit).await?;
        let mut rows = self.run_on(lane, text, give_up).await;
        if rows.as_ref().is_err_and(|error| error.failure() == Failure::Unprepared) {
            tracing::info!(
                "a connection pooler changes connections between transactions; statements are no longer prepared"
            );
            self.prepares.store(false, Ordering::Relaxed);
            rows = self.run_on(lane, text, give_up).await;
        }
        rows.inspect_err(|error| {
            if error.failure() == Failure::Unknown {
                // The server may be down, in which case a call would time out on each remaining
                // idle connection.
                lane.disconnect();
            }
        })
    }

    fn disconnect(&self) {
        for lane in [&self.asks, &self.releases, &self.renews] {
            lane.disconnect();
        }
    }

    async fn close(&self) {
        for lane in [&self.asks, &self.releases, &self.renews] {
            lane.turns.close();
            lane.disconnect();
        }
    }
}

/// Waits until fewer calls than permits are in progress.
pub(super) async fn turn(
    turns: &Arc<Semaphore>,
    limit: Duration,
) -> Result<OwnedSemaphorePermit, RunError> {
    let busy =
        |elapsed| RunError::new(Failure::NotApplied, "no connection became free in time", elapsed);
    let closed = |closed| RunError::new(Failure::NotApplied, "the backend is closed", closed);
    let turn = timeout(limit, Arc::clone(turns).acquire_owned()).await;
    turn.map_err(busy)?.map_err(closed)
}

impl<L: Link> Lane<L> {
    fn new(connections: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(connections)), idle: Mutex::default() }
    }

    fn take_idle(&self) -> Option<Connection<L>> {
        let mut idle = self.idle();
        idle.retain(|connection| connection.link.is_usable());
        idle.pop()
    }

    fn put_back(&self, connection: Connection<L>) {
        if !self.turns.is_closed() {
            self.idle().push(connection);
        }
    }

    /// Closes all idle connections.
    fn disconnect(&self) {
        let idle = mem::take(&mut *self.idle());
        // The mutex is unlocked first, because dropping a connection may run arbitrary code.
        drop(idle);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection<L>>> {
        // The list is consistent after every statement, so a panic cannot corrupt it.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.asks.idle().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// The reply to a query batch, if there is one.
    type Answer = Option<Result<Vec<Row>, RunError>>;

    /// Connections to a server that records query batches.
    #[derive(Clone)]
    struct Server {
        texts: Arc<Mutex<Vec<String>>>,
        answer: fn(&str) -> Answer,
    }

    impl Server {
        fn new(answer: fn(&str) -> Answer) -> Self {
            Self { texts: Arc::default(), answer }
        }

        /// Returns a server that replies only to `renew`.
        fn that_hangs() -> Self {
            Self::new(|text| (text == "renew").then(|| Ok(Vec::new())))
        }
    }

    #[async_trait]
    impl Connector for Server {
        type Link = Self;

        fn address(&self) -> String {
            "nowhere:1".to_owned()
        }

        async fn connect(&self) -> Result<Self, RunError> {
            Ok(self.clone())
        }
    }

    #[async_trait]
    impl Link for Server {
        fn is_usable(&self) -> bool {
            true
        }

        async fn is_alive(&mut self, _limit: Duration) -> bool {
            true
        }

        async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
            let answer = (self.answer)(&text);
            self.texts.lock().unwrap().push(text);
            match answer {
                Some(answer) => answer,
                None => pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquisitions_that_hang_keep_no_connection_from_a_renewal() {
        let limit = Duration::from_secs(1);
        let pool = Pool::new(Arc::new(Server::that_hangs()), 2);
        let text = |body: &str| Text::new(|_| String::new(), body.to_owned());
        let (acquire, release, renew) = (text("acquire"), text("release"), text("renew"));
        // The connections of the first two calls become free only after the third call has timed
        // out.
        let hang = |limit| pool.run(&acquire, Urgency::Asks, limit);
        let hanging = futures_util::future::join_all([limit, limit, limit / 2].map(hang));
        let started = Instant::now();

        let (failed, released, renewed) = tokio::join!(
            hanging,
            pool.run(&release, Urgency::Releases, limit),
            pool.run(&renew, Urgency::Renews, limit),
        );

        assert!(renewed.is_ok() && released.is_err());
        let failures: Vec<Failure> =
            failed.into_iter().map(|reply| reply.unwrap_err().failure()).collect();
        assert_eq!(failures, [Failure::Unknown, Failure::Unknown, Failure::NotApplied]);
        assert_eq!(started.elapsed(), limit);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_missing_closes_the_idle_connections_of_its_lane() {
        let pool = Pool::new(Arc::new(Server::that_hangs()), 3);
        for lane in [&pool.asks, &pool.asks, &pool.asks, &pool.renews] {
            lane.put_back(Connection { link: Server::that_hangs(), prepared: Vec::new() });
        }
        let text = Text::new(|_| String::new(), "acquire".to_owned());

        let reply = pool.run(&text, Urgency::Asks, Duration::from_secs(1)).await;

        assert_eq!(reply.unwrap_err().failure(), Failure::Unknown);
        assert_eq!((pool.asks.idle().len(), pool.renews.idle().len()), (0, 1));
    }

    /// Returns the query batches of three transactions with the same numbered statements.
    async fn texts_of_three(server: Server) -> Vec<String> {
        let texts = Arc::clone(&server.texts);
        let pool = Pool::new(Arc::new(server), 1);
        let statements = Arc::new(Preparable {
            statements: "all :n".to_owned(),
            preparation: "prepare, ".to_owned(),
            execution: "execute :n".to_owned(),
        });
        for n in 1..=3 {
            let values = vec![("n", n.to_string())];
            let text = Text::preparable(|_| String::new(), &statements, values);
            pool.run(&text, Urgency::Asks, Duration::from_secs(1)).await.unwrap();
        }
        texts.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_prepares_statements_once() {
        let texts = texts_of_three(Server::new(|_| Some(Ok(Vec::new())))).await;

        assert_eq!(texts, ["prepare, execute 1", "execute 2", "execute 3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_whose_sessions_change_prepares_no_more() {
        let server = Server::new(|text| {
            let unknown = || RunError::new(Failure::Unprepared, "no such statement", "unknown");
            Some(if text == "execute 2" { Err(unknown()) } else { Ok(Vec::new()) })
        });

        let texts = texts_of_three(server).await;

        assert_eq!(texts, ["prepare, execute 1", "execute 2", "all 2", "all 3"]);
    }
}
