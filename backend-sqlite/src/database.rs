//! Stores leases in a lock file.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::backend::{Enlistment, Fencing, Finding, Fingerprint, Standing, StoreId};
use leasehold_core::{Error, LockKey};
use leasehold_sql_support::reply::{
    Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed,
};
use leasehold_sql_support::request::{Acquire, Key, List, Named, Renew};
use leasehold_sql_support::{Database, News};

use crate::config::SqliteConfig;
use crate::error::BACKEND;
use crate::steps;
use crate::store::Store;
use crate::worker::{Lane, Line, Worker};

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
        let line = Arc::<Line>::default();
        let wakes = Arc::clone(&line);
        let news = News::when_watched(move || wakes.wake());
        let worker = Worker::start(config, line, news.clone())?;
        // The first call opens the file.
        worker.call(Lane::Then, Vec::new(), |_, _| Ok(())).await?;
        Ok(Self { worker, news })
    }

    fn fencing(&self) -> Fencing {
        Fencing::Strict
    }

    fn news(&self) -> &News {
        &self.news
    }

    async fn acquire(&self, claim: Acquire) -> Result<Acquired, Error> {
        let keys = vec![claim.lease.key.key.clone()];
        let acquire = move |store: &mut Store, until| {
            store.write(until, |tables, now| steps::acquire(tables, now, &claim))
        };
        self.worker.call(Lane::Then, keys, acquire).await
    }

    async fn acquire_all(&self, claims: Vec<Acquire>) -> Result<AcquiredAll, Error> {
        let keys = claims.iter().map(|claim| claim.lease.key.key.clone()).collect();
        let acquire = move |store: &mut Store, until| {
            store.write(until, |tables, now| steps::acquire_all(tables, now, &claims))
        };
        self.worker.call(Lane::Then, keys, acquire).await
    }

    async fn renew(&self, leases: Vec<Renew>) -> Vec<Result<Renewed, Error>> {
        let count = leases.len();
        // A renewal can only return permits.
        let units = leases.iter().filter(|renewal| !renewal.whole);
        let keys: Vec<LockKey> = units.map(|renewal| renewal.lease.key.key.clone()).collect();
        let renew = move |store: &mut Store, until| {
            store.write(until, |tables, now| steps::renew(tables, now, &leases))
        };
        match self.worker.call(Lane::First, keys, renew).await {
            Ok(renewed) => renewed.into_iter().map(Ok).collect(),
            // The file failed, so the error applies to all leases.
            Err(error) => {
                let mut errors: Vec<_> = (1..count).map(|_| Err(error.repeated())).collect();
                errors.push(Err(error));
                errors
            }
        }
    }

    async fn release(&self, lease: Named) -> Result<Released, Error> {
        let keys = vec![lease.key.key.clone()];
        let release = move |store: &mut Store, until| {
            store.write(until, |tables, now| steps::release(tables, now, &lease))
        };
        self.worker.call(Lane::First, keys, release).await
    }

    async fn request_revocation(
        &self,
        key: Key,
        only: Option<Fingerprint>,
    ) -> Result<Asked, Error> {
        let ask = move |store: &mut Store, until| {
            store.write(until, |tables, now| steps::request_revocation(tables, now, &key, only))
        };
        self.worker.call(Lane::Then, Vec::new(), ask).await
    }

    async fn force_release(&self, key: Key, only: Option<Fingerprint>) -> Result<Forced, Error> {
        let keys = vec![key.key.clone()];
        let force = move |store: &mut Store, until| {
            store.write(until, |tables, now| steps::force_release(tables, now, &key, only))
        };
        self.worker.call(Lane::Then, keys, force).await
    }

    async fn inspect(&self, key: Key) -> Result<Inspected, Error> {
        let inspect = move |store: &mut Store, until| {
            store.read(until, |tables, now| tables.inspect(&key, now))
        };
        self.worker.call(Lane::Then, Vec::new(), inspect).await
    }

    async fn list(&self, list: List) -> Result<Vec<String>, Error> {
        let list = move |store: &mut Store, until| {
            store.read(until, |tables, now| Ok(tables.list(&list, now.us)?))
        };
        self.worker.call(Lane::Then, Vec::new(), list).await
    }

    async fn standing(
        &self,
        fresh: StoreId,
        enlistment: Option<Enlistment>,
    ) -> Result<Standing, Error> {
        let stand = move |store: &mut Store, until| {
            store.write(until, |tables, now| {
                steps::standing(tables, now, fresh, enlistment.as_ref())
            })
        };
        self.worker.call(Lane::Then, Vec::new(), stand).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let journal = self.worker.call(Lane::Then, Vec::new(), |store, _| store.journal()).await?;
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
