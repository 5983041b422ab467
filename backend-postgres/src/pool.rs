//! Our own connections.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_sql_support::remote::{Row, Text};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::connector::Connector;
use crate::error::{self, RunError};
use crate::run::{Run, Urgency};

/// Many connections for acquisitions, one for releases, which may wait for a stripe, and one for renewals, which come in batches.
pub(crate) struct Pool {
    connector: Arc<Connector>,
    asks: Lane,
    releases: Lane,
    renews: Lane,
}

/// Some connections, made when they are needed.
struct Lane {
    turns: Semaphore,
    idle: Mutex<Vec<Client>>,
}

impl Pool {
    pub(crate) fn new(connector: Arc<Connector>, connections: usize) -> Self {
        let [asks, releases, renews] = [connections, 1, 1].map(Lane::new);
        Self { connector, asks, releases, renews }
    }

    /// Takes an idle connection, or makes one.
    async fn take(&self, lane: &Lane, limit: Duration) -> Result<Client, RunError> {
        match lane.take_idle() {
            Some(client) => Ok(client),
            None => self.connector.connect(limit).await,
        }
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
        let lane = match urgency {
            Urgency::Asks => &self.asks,
            Urgency::Releases => &self.releases,
            Urgency::Renews => &self.renews,
        };
        let turn = timeout(limit, lane.turns.acquire()).await.map_err(RunError::not_sent)?;
        let _turn = turn.map_err(|_closed| RunError::not_sent("the backend is closed"))?;
        let client = self.take(lane, give_up - Instant::now()).await?;
        let left = give_up.saturating_duration_since(Instant::now());
        let text = text.at(left * 4 / 5);
        let reply = timeout(left, client.simple_query(&text)).await;
        let messages = reply.map_err(RunError::no_reply)?.map_err(error::exchange)?;
        // Only one that has answered in full, without an error, is used again.
        lane.put_back(client);
        Ok(messages.iter().filter_map(row).collect())
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

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle();
        // The server, or the runtime that drove it, may have ended it meanwhile.
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }

    fn put_back(&self, client: Client) {
        if !self.turns.is_closed() {
            self.idle().push(client);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        // It is as it should be between any two statements.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn row(message: &SimpleQueryMessage) -> Option<Row> {
    let column = |row: &SimpleQueryRow, i| row.get(i).map(str::to_owned);
    match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| column(row, i)).collect()),
        _ => None,
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.asks.idle().len()).finish_non_exhaustive()
    }
}
