//! Stores leases in a lock file.

use async_trait::async_trait;
use leasehold_core::backend::{Fencing, Finding, JoinRequest, MemberStatus, StoreId};
use leasehold_core::{Error, LockKey};
use leasehold_sql_support::News;
use leasehold_sql_support::remote::Urgency;
use leasehold_sql_support::request::List;
use leasehold_sql_support::rows::{Acquire, Change, Clock, Database, Granted, Named, Renew, State};

use crate::config::SqliteConfig;
use crate::error::BACKEND;
use crate::store::Store;
use crate::tables::Tables;
use crate::worker::Worker;

/// The lock file behind [`SqliteBackend`](crate::SqliteBackend).
///
/// The crate's example shows how to connect to a file.
#[derive(Debug)]
pub struct Sqlite {
    worker: Worker,
    news: News,
}

#[async_trait]
impl Database for Sqlite {
    type Config = SqliteConfig;

    const NAME: &str = BACKEND;

    /// The error contains the file's path, which is more helpful than the store's name.
    fn connecting(error: Error) -> Error {
        error
    }

    fn read_url(url: &str) -> Result<SqliteConfig, Error> {
        SqliteConfig::from_url(url)
    }

    async fn open(config: SqliteConfig) -> Result<Self, Error> {
        let (worker, news) = Worker::start(config)?;
        // The first call opens the file.
        worker.call(|_, _| Ok(())).await?;
        Ok(Self { worker, news })
    }

    fn fencing(&self) -> Fencing {
        Fencing::Strict
    }

    fn news(&self) -> &News {
        &self.news
    }

    async fn acquire_free(&self, claim: &Acquire) -> Result<Option<Granted>, Error> {
        let claim = claim.clone();
        let acquire = move |tables: &Tables, clock| tables.acquire(&claim, clock);
        self.worker.write(Urgency::Asks, acquire).await
    }

    async fn release_simple(&self, lease: &Named) -> Result<Option<bool>, Error> {
        let lease = lease.clone();
        let release = move |tables: &Tables, clock: Clock| tables.release(&lease, clock.now);
        self.worker.write(Urgency::Releases, release).await
    }

    async fn renew_simple(&self, leases: &[Renew]) -> Vec<Result<bool, Error>> {
        let (count, leases) = (leases.len(), leases.to_vec());
        let renew = move |tables: &Tables, clock: Clock| {
            let renewed = leases.iter().map(|renewal| tables.renew(renewal, clock.now));
            renewed.collect::<Result<Vec<_>, _>>()
        };
        match self.worker.write(Urgency::Renews, renew).await {
            Ok(renewed) => renewed.into_iter().map(Ok).collect(),
            // The whole transaction failed, so the error applies to all leases.
            Err(error) => (0..count).map(|_| Err(error.repeated())).collect(),
        }
    }

    async fn change<T, F>(&self, change: Change, mut step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send + 'static,
    {
        let urgency = change.urgency;
        let change = move |tables: &Tables, clock| tables.change(&change, &mut step, clock);
        self.worker.write(urgency, change).await
    }

    async fn read(&self, key: &LockKey) -> Result<(State, Clock), Error> {
        let key = key.clone();
        let read = move |store: &mut Store, until| {
            store.read(until, |tables, clock| Ok((tables.read(&key, clock)?, clock)))
        };
        self.worker.call(read).await
    }

    async fn list(&self, list: List) -> Result<Vec<String>, Error> {
        let list = move |store: &mut Store, until| {
            store.read(until, |tables, clock| Ok(tables.list(&list, clock.now)?))
        };
        self.worker.call(list).await
    }

    async fn member_status(
        &self,
        fresh: StoreId,
        request: Option<JoinRequest>,
    ) -> Result<MemberStatus, Error> {
        let status = move |tables: &Tables, clock: Clock| {
            let found = tables.member_status(fresh, clock.now)?;
            let Some(request) = &request else { return Ok(found) };
            tables.join(request)?;
            tables.member_status(fresh, clock.now)
        };
        self.worker.write(Urgency::Asks, status).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let journal = self.worker.call(|store, _| store.journal()).await?;
        let persistence =
            format!("the journal mode is {journal}; a restart of the machine frees all locks");
        Ok(vec![
            Finding::ok("version", format!("SQLite {}", rusqlite::version())),
            Finding::ok("persistence", persistence),
        ])
    }

    async fn close(&self) {
        self.worker.close().await;
    }
}
