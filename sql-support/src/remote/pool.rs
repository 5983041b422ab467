//! Connections of our own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, mem};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::failure::Failure;
use crate::remote::{Row, Run, RunError, Text, Urgency};

/// Makes connections.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// A connection.
    type Link: Link;

    /// The hosts and ports of the servers, for errors.
    fn address(&self) -> String;

    /// Makes a connection on the caller's runtime. The caller limits the time by dropping the future.
    ///
    /// # Errors
    ///
    /// A [`RunError`] of a text that was not sent.
    async fn connect(&self) -> Result<Self::Link, RunError>;
}

/// A host and a port, as URLs have them.
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A connection. It is closed when dropped, also in mid-reply.
#[async_trait]
pub trait Link: Send + 'static {
    /// Whether the caller may use it, as far as this process knows.
    fn is_usable(&self) -> bool;

    /// Whether the server is there. A driver that is not told of its end asks the server, within `limit`.
    async fn is_alive(&mut self, limit: Duration) -> bool;

    /// Runs a text, and gives all rows of all of its statements.
    ///
    /// # Errors
    ///
    /// As [`Run::run`].
    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError>;
}

/// Many connections for acquisitions, one for releases, which may wait for a stripe, and one for renewals, which come in batches.
pub struct Pool<C: Connector> {
    connector: Arc<C>,
    asks: Lane<C::Link>,
    releases: Lane<C::Link>,
    renews: Lane<C::Link>,
}

/// Some connections, made when they are needed.
struct Lane<L> {
    turns: Semaphore,
    idle: Mutex<Vec<L>>,
}

impl<C: Connector> Pool<C> {
    /// Creates a pool with so many `connections` for acquisitions.
    pub fn new(connector: Arc<C>, connections: usize) -> Self {
        let [asks, releases, renews] = [connections, 1, 1].map(Lane::new);
        Self { connector, asks, releases, renews }
    }

    /// Takes an idle connection that is still there, or makes one.
    async fn take(&self, lane: &Lane<C::Link>, limit: Duration) -> Result<C::Link, RunError> {
        while let Some(mut link) = lane.take_idle() {
            if link.is_alive(limit / 4).await {
                return Ok(link);
            }
            // It ended: so may have the others.
            lane.disconnect();
        }
        let connected = self.connector.connect().await;
        connected.map_err(|error| error.at(&self.connector.address()))
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
        let left = || give_up.saturating_duration_since(Instant::now());
        let lane = match urgency {
            Urgency::Asks => &self.asks,
            Urgency::Releases => &self.releases,
            Urgency::Renews => &self.renews,
        };
        let busy =
            |elapsed| RunError::new(Failure::NotApplied, "no connection was free in time", elapsed);
        let turn = timeout(limit, lane.turns.acquire()).await.map_err(busy)?;
        let closed = |closed| RunError::new(Failure::NotApplied, "the backend is closed", closed);
        let _turn = turn.map_err(closed)?;
        let link = timeout(left(), self.take(lane, left())).await;
        let late = |elapsed| RunError::not_sent(elapsed).at(&self.connector.address());
        let mut link = link.map_err(late)??;
        let text = text.at(left() * 4 / 5);
        let reply = timeout(left(), link.exchange(text)).await;
        let rows = reply.unwrap_or_else(|elapsed| Err(RunError::no_reply(elapsed)));
        let rows = rows.inspect_err(|error| {
            if error.failure() == Failure::Unknown {
                // The server may be gone: each of the others would cost a call all of its time.
                lane.disconnect();
            }
        })?;
        // Only one that has answered in full, without an error, is used again: another may be in a transaction.
        lane.put_back(link);
        Ok(rows)
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

impl<L: Link> Lane<L> {
    fn new(connections: usize) -> Self {
        Self { turns: Semaphore::new(connections), idle: Mutex::default() }
    }

    fn take_idle(&self) -> Option<L> {
        let mut idle = self.idle();
        idle.retain(Link::is_usable);
        idle.pop()
    }

    fn put_back(&self, link: L) {
        if !self.turns.is_closed() {
            self.idle().push(link);
        }
    }

    /// Closes all connections that are idle.
    fn disconnect(&self) {
        let idle = mem::take(&mut *self.idle());
        // Not locked any more: a connection may tell others of its end.
        drop(idle);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<L>> {
        // It is as it should be between any two statements.
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

    /// Makes connections that answer nothing but `renew`.
    struct Hanging;

    #[async_trait]
    impl Connector for Hanging {
        type Link = Self;

        fn address(&self) -> String {
            "nowhere:1".to_owned()
        }

        async fn connect(&self) -> Result<Self, RunError> {
            Ok(Self)
        }
    }

    #[async_trait]
    impl Link for Hanging {
        fn is_usable(&self) -> bool {
            true
        }

        async fn is_alive(&mut self, _limit: Duration) -> bool {
            true
        }

        async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
            if text == "renew" { Ok(Vec::new()) } else { pending().await }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquisitions_that_hang_keep_no_connection_from_a_renewal() {
        let limit = Duration::from_secs(1);
        let pool = Pool::new(Arc::new(Hanging), 2);
        let text = |body: &str| Text::new(|_| String::new(), body.to_owned());
        let (acquire, release, renew) = (text("acquire"), text("release"), text("renew"));
        // The connections of the first two are free no earlier than the third gives up.
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
        let pool = Pool::new(Arc::new(Hanging), 3);
        for lane in [&pool.asks, &pool.asks, &pool.asks, &pool.renews] {
            lane.put_back(Hanging);
        }
        let text = Text::new(|_| String::new(), "acquire".to_owned());

        let reply = pool.run(&text, Urgency::Asks, Duration::from_secs(1)).await;

        assert_eq!(reply.unwrap_err().failure(), Failure::Unknown);
        assert_eq!((pool.asks.idle().len(), pool.renews.idle().len()), (0, 1));
    }
}
