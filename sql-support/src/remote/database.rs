//! The operations of the store, each of which is one transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{
    Enlistment, Fencing, Finding, Fingerprint, Standing, StoreId, check_io,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::database::Database;
use crate::failure::Failure;
use crate::news::News;
use crate::remote::config::Source;
use crate::remote::pool::turn;
use crate::remote::under_way::UnderWay;
use crate::remote::{Config, Driver, Opened, Pool, Rows, Run, RunError, Statements, Text, Urgency};
use crate::reply::{Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed};
use crate::request::{Acquire, Key, List, Named, Renew};

/// A database that stores leases on a server.
///
/// The `leasehold-postgres` and `leasehold-mysql` crates use this type with their drivers.
pub struct Remote<D> {
    driver: D,
    run: Arc<dyn Run>,
    /// As many acquisitions may be in progress as there are connections for them.
    turns: Arc<Semaphore>,
    under_way: UnderWay,
    statements: Box<dyn Statements>,
    timeout: Duration,
    fencing: Fencing,
    news: News,
}

impl<D: Driver> Remote<D> {
    async fn ask(&self, text: Text) -> Result<Rows, RunError> {
        run(&*self.run, &text, Urgency::Asks, self.timeout).await
    }

    /// Runs an acquisition in a task, which continues even if the caller is dropped. Without the
    /// task, a release on a different connection could overtake an acquisition whose caller was
    /// dropped.
    ///
    /// If the caller is dropped while the acquisition still waits for a connection, the acquisition
    /// ends. If such acquisitions continued, a loop that drops and repeats a call would delay all
    /// later calls.
    async fn acquire_to_the_end(&self, claims: &[Acquire], text: Text) -> Result<Rows, RunError> {
        let give_up = Instant::now() + self.timeout;
        let turn = turn(&self.turns, self.timeout).await?;
        let left = give_up.saturating_duration_since(Instant::now());
        let runs = Arc::clone(&self.run);
        let under_way = self.under_way.begin(claims.iter().map(|claim| claim.lease.tag));
        let asking = tokio::spawn(async move {
            let rows = run(&*runs, &text, Urgency::Asks, left).await;
            drop((under_way, turn));
            rows
        });
        // An error means that the runtime has ended.
        asking.await.unwrap_or_else(|error| Err(RunError::no_reply(error)))
    }

    /// Renews leases with one query batch, without retries.
    async fn renew_once(&self, leases: &[Renew], give_up: Instant) -> Result<Rows, RunError> {
        let left = give_up.saturating_duration_since(Instant::now());
        let text = self.statements.renew(leases);
        // A renewal with a minimum token waits for its partition, so renewals without one must not
        // wait behind it.
        let has_floor = leases.iter().any(|lease| lease.floor > 0);
        let urgency = if has_floor { Urgency::Asks } else { Urgency::Renews };
        self.run.run(&text, urgency, left).await.map(Rows)
    }

    /// Renews a single lease. Waits for a transaction that has locked its row, within the remaining
    /// time.
    async fn renew_alone(&self, lease: &Renew, give_up: Instant) -> Result<Renewed, Error> {
        let is_kept =
            || Failure::NotApplied.error("another transaction has locked the lease's row");
        if Instant::now() >= give_up {
            return Err(Failure::NotApplied.error("no time was left to renew the lease separately"));
        }
        let lease = std::slice::from_ref(lease);
        let mut renewed = self.renew_once(lease, give_up).await?.renewed(lease)?;
        renewed.pop().flatten().ok_or_else(is_kept)
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
        let (run, connector, turns): (Arc<dyn Run>, _, _) = match source {
            Source::Own(servers) => {
                check_io()?;
                let connector = Arc::new(D::connector(servers, timeout));
                let pool = Pool::new(Arc::clone(&connector), settings.connections);
                (Arc::new(pool), Some(connector), settings.connections)
            }
            Source::Theirs(run) => (run, None, Semaphore::MAX_PERMITS),
        };
        let opened = D::open(&*run, connector, &settings).await?;
        let Opened { driver, statements, fencing, news } = opened;
        let (turns, under_way) = (Arc::new(Semaphore::new(turns)), UnderWay::default());
        Ok(Self { driver, run, turns, under_way, statements, timeout, fencing, news })
    }

    fn fencing(&self) -> Fencing {
        self.fencing
    }

    fn news(&self) -> &News {
        &self.news
    }

    async fn acquire(&self, claim: Acquire) -> Result<Acquired, Error> {
        let text = self.statements.acquire(&claim);
        self.acquire_to_the_end(&[claim], text).await?.acquired()
    }

    async fn acquire_all(&self, claims: Vec<Acquire>) -> Result<AcquiredAll, Error> {
        let text = self.statements.acquire_all(&claims);
        self.acquire_to_the_end(&claims, text).await?.acquired_all(claims.len())
    }

    async fn renew(&self, leases: Vec<Renew>) -> Vec<Result<Renewed, Error>> {
        let give_up = Instant::now() + self.timeout;
        let (together, give_up) = match self.renew_once(&leases, give_up).await {
            // A single lease may have caused all renewals to fail.
            Err(error) if matches!(error.failure(), Failure::Conflict | Failure::Unexpected) => {
                (Ok(vec![None; leases.len()]), give_up)
            }
            // The results of all leases are delayed until the locked rows have been renewed.
            rows => (
                rows.map_err(Error::from).and_then(|rows| rows.renewed(&leases)),
                give_up.min(Instant::now() + self.timeout / 4),
            ),
        };
        let together = match together {
            Ok(together) => together,
            Err(error) => return leases.iter().map(|_| Err(error.repeated())).collect(),
        };
        let mut renewed = Vec::with_capacity(leases.len());
        for (lease, one) in leases.iter().zip(together) {
            renewed.push(match one {
                Some(one) => Ok(one),
                None => self.renew_alone(lease, give_up).await,
            });
        }
        renewed
    }

    async fn release(&self, lease: Named) -> Result<Released, Error> {
        let give_up = Instant::now() + self.timeout;
        let ended = timeout_at(give_up, self.under_way.ended(lease.tag)).await;
        ended.map_err(|elapsed| {
            RunError::new(
                Failure::NotApplied,
                "the acquisition of the lock did not complete in time",
                elapsed,
            )
        })?;
        let left = give_up.saturating_duration_since(Instant::now());
        let text = self.statements.release(&lease);
        run(&*self.run, &text, Urgency::Releases, left).await?.released()
    }

    async fn request_revocation(
        &self,
        key: Key,
        only: Option<Fingerprint>,
    ) -> Result<Asked, Error> {
        self.ask(self.statements.request_revocation(&key, only)).await?.asked()
    }

    async fn force_release(&self, key: Key, only: Option<Fingerprint>) -> Result<Forced, Error> {
        self.ask(self.statements.force_release(&key, only)).await?.forced()
    }

    async fn inspect(&self, key: Key) -> Result<Inspected, Error> {
        self.ask(self.statements.inspect(&key)).await?.inspected()
    }

    async fn list(&self, list: List) -> Result<Vec<String>, Error> {
        self.ask(self.statements.list(&list)).await?.listed()
    }

    async fn standing(
        &self,
        fresh: StoreId,
        enlistment: Option<Enlistment>,
    ) -> Result<Standing, Error> {
        let text = self.statements.standing(fresh, enlistment.as_ref());
        self.ask(text).await?.standing()
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let rows = self.ask(self.statements.diagnose()).await.map_err(RunError::harmless)?;
        self.statements.findings(&rows)
    }

    fn disconnect(&self) {
        self.run.disconnect();
    }

    async fn close(&self) {
        self.driver.close();
        self.turns.close();
        self.run.close().await;
    }
}

/// The maximum number of runs of a query batch. A database rolls back a deadlock victim completely.
/// Under contention, InnoDB may choose the same victim several times in a row.
const TRIES: usize = 5;

/// Runs a query batch. Retries the batch if it was rolled back because of a conflict.
async fn run(
    run: &dyn Run,
    text: &Text,
    urgency: Urgency,
    limit: Duration,
) -> Result<Rows, RunError> {
    let give_up = Instant::now() + limit;
    let mut tries = 1;
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        match run.run(text, urgency, left).await {
            Err(error) if error.failure() == Failure::Conflict && tries < TRIES => tries += 1,
            rows => return rows.map(Rows),
        }
    }
}

impl<D> fmt::Debug for Remote<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("run", &self.run)
            .field("statements", &self.statements)
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}
