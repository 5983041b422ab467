//! The operations of the store, each of which is one statement or a comparison and a swap.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Fencing, Finding, JoinRequest, MemberStatus, StoreId, check_io};
use leasehold_core::batch::{Alone, Batcher, InOrder, SendBatch};
use leasehold_core::{Error, LockKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::Call;
use crate::failure::Failure;
use crate::news::News;
use crate::remote::by_key::{Changes, KeyQueues, longest_lease};
use crate::remote::config::Source;
use crate::remote::continued::Continued;
use crate::remote::per_runtime::PerRuntime;
use crate::remote::purge::Purge;
use crate::remote::runner::Runner;
use crate::remote::table::nonsense;
use crate::remote::together::{Acquirer, Acquisitions, Parts, Releases, batcher};
use crate::remote::{
    Config, Connections, Driver, Execute, Opened, Pool, Reply, Rows, RunError, Theirs, Urgency,
};
use crate::request::{List, span};
use crate::rows::{Acquire, Change, Clock, Database, Granted, Named, Renew, State};
use crate::values::HeldLease;

/// A database that stores leases on a server.
///
/// The `leasehold-postgres` and `leasehold-mysql` crates use this type with their drivers.
pub struct Remote<D> {
    driver: D,
    runner: Runner,
    acquisitions: Batcher<Acquisitions>,
    releases: Batcher<Releases>,
    changes: Arc<Changes>,
    fencing: Fencing,
    news: News,
}

/// Executes the statements that prepare a database.
#[derive(Debug)]
struct Opening<'a> {
    connections: &'a dyn Connections,
    limit: Duration,
}

#[async_trait]
impl Execute for Opening<'_> {
    async fn execute(&self, call: &Call) -> Result<Reply, RunError> {
        self.connections.run(call, Urgency::Asks, self.limit).await
    }
}

#[async_trait]
impl<D: Driver> Database for Remote<D> {
    type Config = Config<D>;

    const NAME: &str = D::NAME;

    fn read_url(url: &str) -> Result<Config<D>, Error> {
        Config::from_url(url)
    }

    async fn open(Config { source, settings }: Config<D>) -> Result<Self, Error> {
        let timeout = settings.timeout;
        let (connections, connector, turns): (Arc<dyn Connections>, _, [usize; 2]) = match source {
            Source::Own(servers) => {
                check_io()?;
                let connector = Arc::new(D::connector(servers, timeout));
                let pool = Pool::new(Arc::clone(&connector), settings.connections, timeout);
                (Arc::new(pool), Some(connector), [settings.connections, 1])
            }
            Source::Theirs(run) => (Arc::new(Theirs(run)), None, [Semaphore::MAX_PERMITS; 2]),
        };
        let opening = Opening { connections: &*connections, limit: timeout };
        let opened = D::open(&opening, connector, &settings).await?;
        let Opened { driver, table, fencing, news } = opened;
        let runner = Runner { connections, table, timeout };
        let [turns, release_turns] =
            turns.map(|turns| PerRuntime::new(move || Semaphore::new(turns)));
        let (in_order, purge) = (Arc::new(InOrder::new()), Purge::new());
        let acquirer = Acquirer { runner: runner.clone(), in_order, purge };
        let queues = PerRuntime::new(KeyQueues::default);
        let changes = Arc::new(Changes { acquirer: acquirer.clone(), news: news.clone(), queues });
        let acquisitions = Acquisitions { acquirer, turns };
        let releases = Releases { runner: runner.clone(), turns: release_turns };
        Ok(Self {
            driver,
            acquisitions: batcher(D::NAME, &runner, acquisitions),
            releases: batcher(D::NAME, &runner, releases),
            changes,
            runner,
            fencing,
            news,
        })
    }

    fn fencing(&self) -> Fencing {
        self.fencing
    }

    fn news(&self) -> &News {
        &self.news
    }

    async fn acquire_free(&self, claim: &Acquire) -> Result<Option<Granted>, Error> {
        if let Some((_alone, turn)) = self.alone(&self.acquisitions) {
            let acquirer = self.acquisitions.sender().acquirer.clone();
            // If the caller leaves, a release still has to wait for the end of the acquisition.
            return Continued::new(acquirer.acquire_alone(claim.clone(), turn)).await;
        }
        self.acquisitions.submit(claim.clone())?.reply().await?
    }

    async fn release_simple(&self, lease: &Named) -> Result<Option<bool>, Error> {
        self.wait_for_acquisitions(&[lease.tag.id]).await?;
        if let Some((_alone, _turn)) = self.alone(&self.releases) {
            // The release follows the acquisition, so both can use the same connection.
            let running = self.runner.within_limit(Urgency::Asks);
            let leases = [(lease.key.as_str(), lease.tag.id)];
            match self.runner.table.release_simple(&running, &leases).await {
                // Other connections may still work.
                Err(error) if error.failure() == Failure::NotApplied => {}
                released => return Ok(released?.pop().expect("one reply for each")),
            }
        }
        self.releases.submit(lease.clone())?.reply().await?
    }

    async fn renew_simple(&self, leases: &[Renew]) -> Vec<Result<bool, Error>> {
        let running = self.runner.within_limit(Urgency::Renews);
        let held: Vec<_> = leases.iter().map(held).collect();
        let longest = leases.iter().map(|lease| lease.ttl).max().unwrap_or_default();
        self.runner.connections.keep_for_renewals(longest);
        let mut parts = Parts::new(&held);
        while let Some(leases) = parts.next() {
            let renewed = self.runner.table.renew_simple(&running, leases).await;
            parts.answer(leases, renewed.map(|renewed| renewed.into_iter().map(Ok)));
        }
        parts.replies()
    }

    async fn change<T, F>(&self, change: Change, mut step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send + 'static,
    {
        let Acquisitions { turns, acquirer } = self.acquisitions.sender();
        let is_acquisition = change.urgency == Urgency::Asks && !change.leases.is_empty();
        if !is_acquisition {
            self.wait_for_acquisitions(&change.leases).await?;
        }
        // The swap of a quorum's claim has a condition of its own, and renewals have a shorter limit.
        if change.keys.len() == 1 && !change.leases.is_empty() && change.membership.is_none() {
            return self.changes.change(change, turns.current()?, step).await;
        }
        let mut running = self.runner.within_limit(change.urgency);
        if change.urgency == Urgency::Renews {
            // A row that stays locked must not occupy the only connection for renewals.
            running.give_up = Instant::now() + self.runner.timeout / 4;
        }
        if !is_acquisition {
            return running.change(&change, None, step).await;
        }
        let turn = turns.turn(self.runner.timeout).await?;
        let (leases, purge) = (change.leases.clone(), acquirer.purge.clone());
        let acquisition = async move {
            let _turn = turn;
            let mut longest = None;
            let step = |states: &mut [State], clock: Clock| {
                let done = step(states, clock)?;
                longest = longest_lease(states, &change.leases, clock);
                Ok(done)
            };
            let changed = running.change(&change, None, step).await?;
            if let Some(longest) = longest {
                running.runner.connections.keep_for_renewals(longest);
                purge.count(&change.keys, &running.runner);
            }
            Ok(changed)
        };
        acquirer.in_order.acquire(leases, acquisition).await?
    }

    async fn read(&self, key: &LockKey) -> Result<(State, Clock), Error> {
        let running = self.runner.within_limit(Urgency::Asks);
        let readings = self.runner.table.read(&running, &[key.as_str()]).await;
        let mut readings = readings.map_err(RunError::harmless)?;
        let reading = readings.pop().ok_or_else(nonsense)?;
        let clock = Clock { now: reading.now, wall: reading.now };
        Ok((State::new(key.clone(), reading.row, reading.min_token, clock), clock))
    }

    async fn list(&self, list: List) -> Result<Vec<String>, Error> {
        let running = self.runner.within_limit(Urgency::Asks);
        Ok(self.runner.table.list(&running, &list).await.map_err(RunError::harmless)?)
    }

    async fn member_status(
        &self,
        fresh: StoreId,
        request: Option<JoinRequest>,
    ) -> Result<MemberStatus, Error> {
        let running = self.runner.within_limit(Urgency::Asks);
        let status = self.runner.table.member_status(&running, fresh, request.as_ref()).await;
        // A new identity may be lost together with its reply, because nobody knows it.
        Ok(if request.is_some() { status } else { status.map_err(RunError::harmless) }?)
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let running = self.runner.within_limit(Urgency::Asks);
        let reply = running.execute(&self.runner.table.diagnose()).await;
        self.runner.table.findings(&Rows(reply.map_err(RunError::harmless)?.rows))
    }

    fn disconnect(&self) {
        self.runner.connections.disconnect();
    }

    async fn close(&self) {
        self.driver.close();
        for turns in [&self.acquisitions.sender().turns, &self.releases.sender().turns] {
            turns.close().iter().for_each(|turns| turns.close());
        }
        self.runner.connections.close().await;
    }
}

impl<D: Driver> Remote<D> {
    /// Registers a caller that sends its request without a batch, which is faster if no other request is
    /// in progress. Returns `None` if the caller must submit its request.
    ///
    /// A caller that is not polled keeps its connection for acquisitions. At least one of these
    /// connections is therefore left to the batches.
    fn alone<'a, S: SendBatch>(
        &self,
        batcher: &'a Batcher<S>,
    ) -> Option<(Alone<'a, S>, OwnedSemaphorePermit)> {
        if !self.acquisitions.is_idle() || !self.releases.is_idle() {
            return None;
        }
        let alone = batcher.alone()?;
        let turns = self.acquisitions.sender().turns.current().ok()?;
        let mut turns = turns.try_acquire_many_owned(2).ok()?;
        Some((alone, turns.split(1)?))
    }

    /// Waits until no acquisition of these leases is running, because a release uses a different
    /// connection.
    async fn wait_for_acquisitions(&self, leases: &[Uuid]) -> Result<(), Error> {
        let give_up = Instant::now() + self.runner.timeout;
        for lease in leases {
            let left = give_up.saturating_duration_since(Instant::now());
            let in_order = &self.acquisitions.sender().acquirer.in_order;
            in_order.wait_for_acquisitions(lease, left).await?;
        }
        Ok(())
    }
}

fn held(lease: &Renew) -> HeldLease<'_> {
    HeldLease {
        key: lease.lease.key.as_str(),
        generation: 0,
        tag: lease.lease.tag.id,
        ttl: span(lease.ttl),
        description: lease.description.as_deref(),
    }
}

impl<D> fmt::Debug for Remote<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("runner", &self.runner)
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}
