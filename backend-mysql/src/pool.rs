//! Our own connections.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_sql_support::remote::{Row, Text};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::connector::{Connector, Link};
use crate::error::RunError;
use crate::run::{Run, Urgency};

/// Many connections for acquisitions, one for releases, which may wait for a stripe, and one for renewals, which come in batches.
pub(crate) struct Pool {
    connector: Connector,
    asks: Lane,
    releases: Lane,
    renews: Lane,
}

/// Some connections, made when they are needed.
struct Lane {
    turns: Semaphore,
    idle: Mutex<Vec<Link>>,
}

impl Pool {
    pub(crate) fn new(connector: Connector, connections: usize) -> Self {
        let [asks, releases, renews] = [connections, 1, 1].map(Lane::new);
        Self { connector, asks, releases, renews }
    }

    /// Takes an idle connection that is still there, or makes one.
    async fn take(&self, lane: &Lane, limit: Duration) -> Result<Link, RunError> {
        while let Some(mut link) = lane.take_idle() {
            if link.is_alive(limit / 4).await {
                return Ok(link);
            }
            // It ended: so may have the others.
            lane.idle().clear();
        }
        self.connector.connect(limit).await
    }
}

#[async_trait]
impl Run for Pool {
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
        let turn = timeout(limit, lane.turns.acquire()).await.map_err(RunError::not_sent)?;
        let _turn = turn.map_err(|_closed| RunError::not_sent("the backend is closed"))?;
        let link = timeout(left(), self.take(lane, left())).await;
        let mut link = link.map_err(RunError::not_sent)??;
        let text = text.at(left() * 4 / 5);
        let reply = timeout(left(), link.exchange(text)).await;
        let rows = reply.map_err(RunError::no_reply)??;
        // Only one that has answered in full, without an error, is used again: another may be in a transaction.
        lane.put_back(link);
        Ok(rows)
    }

    async fn close(&self) {
        for lane in [&self.asks, &self.releases, &self.renews] {
            lane.turns.close();
            lane.idle().clear();
        }
    }
}

impl Lane {
    fn new(connections: usize) -> Self {
        Self { turns: Semaphore::new(connections), idle: Mutex::default() }
    }

    /// Those that other runtimes drive are closed: they may be gone, and their connections with them.
    fn take_idle(&self) -> Option<Link> {
        let mut idle = self.idle();
        idle.retain(Link::is_driven_here);
        idle.pop()
    }

    fn put_back(&self, link: Link) {
        if !self.turns.is_closed() {
            self.idle().push(link);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        // It is as it should be between any two statements.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.asks.idle().len()).finish_non_exhaustive()
    }
}
