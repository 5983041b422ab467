//! A template for a Leasehold backend, with all features except sessions and quorum membership.
//!
//! The store in this template is a table in memory with one row per key. Each operation is one
//! transaction: read the row, apply a step of [`Entry`], write the row. For your store, replace
//! `MyStore::transaction` and the notifications.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::backend::entry::{Entry, Obstacle, Step, Tokens};
use leasehold::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Feature, Fencing, Fingerprint, ForcedRelease,
    Inspection, KeyPage, KeyWatch, KeyWatches, Lease, LeaseId, LockBackend, Release, Renewal,
    Revocation, StoreAdmin, Subject,
};
use leasehold::clock::{Clock, Instant, SystemClock};
use leasehold::{Error, LockKey};

/// A client of the store. Clones share the store.
#[derive(Clone)]
pub struct MyStore {
    table: Arc<Mutex<Table>>,
    /// The clock of the store, which the suite replaces.
    clock: Arc<dyn Clock>,
    /// The watches of waiters and observers. A server notifies its clients instead.
    watches: KeyWatches,
    /// The watches of holders.
    lease_watches: KeyWatches,
}

type Row = Entry<LeaseId, Instant>;

#[derive(Default)]
struct Table {
    rows: BTreeMap<LockKey, Row>,
    /// The last token of all keys. A free key therefore does not need a row.
    last_token: u64,
}

impl Table {
    /// Applies `step` to the row of `key`, and deletes the row if the key is free.
    fn at<R>(
        &mut self,
        key: &LockKey,
        now: Instant,
        step: impl FnOnce(&mut Row, Tokens) -> R,
    ) -> R {
        let mut row = self.rows.remove(key).unwrap_or_default();
        row.expire(now);
        let reply = step(&mut row, Tokens { above: self.last_token, ..Tokens::default() });
        self.last_token = self.last_token.max(row.last_token);
        if !row.is_empty() {
            self.rows.insert(key.clone(), row);
        }
        reply
    }
}

impl MyStore {
    const KEYS_PER_PAGE: usize = 100;

    /// Creates an empty store.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// Creates an empty store that reads its time from `clock`.
    pub fn with_clock(clock: impl Clock) -> Self {
        let (watches, lease_watches) = (KeyWatches::default(), KeyWatches::default());
        Self { table: Arc::default(), clock: Arc::new(clock), watches, lease_watches }
    }

    /// Runs one transaction at the current time of the store.
    ///
    /// For your store, map each error of the client library to an [`ErrorKind`](leasehold::ErrorKind).
    fn transaction<R>(
        &self,
        work: impl FnOnce(&mut Table, Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut table = self.table.lock().expect("no transaction panics");
        work(&mut table, self.clock.now())
    }

    /// Runs one step on the row of `key`, and then notifies waiters and observers.
    fn step<R>(
        &self,
        key: &LockKey,
        step: impl FnOnce(&mut Row, Tokens, Instant) -> Result<Step<R>, Error>,
    ) -> Result<R, Error> {
        let Step { reply, is_news } = self
            .transaction(|table, now| table.at(key, now, |row, tokens| step(row, tokens, now)))?;
        if is_news {
            self.watches.notify(key.as_str());
        }
        Ok(reply)
    }
}

#[async_trait]
impl LockBackend for MyStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("my store", Fencing::Strict)
            .with(Feature::Push)
            .with(Feature::Queue)
            .with(Feature::SpareTokens)
            .with(Feature::Together)
            .with(Feature::Units)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.step(claim.key(), |row, tokens, now| row.acquire(claim.id(), claim, tokens, now))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.step(lease.key(), |row, _, now| Ok(row.renew(&lease.id(), lease, now)))
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.step(lease.key(), |row, _, now| Ok(row.release(&lease.id(), now)))
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let attempt = self.transaction(|table, now| {
            for claim in claims {
                let key = claim.key();
                match table.at(key, now, |row, _| row.obstacle(&claim.id(), claim, now)) {
                    Some(Obstacle::WrongType) => return Err(claim.wrong_type()),
                    Some(Obstacle::Held(contention)) => {
                        return Ok(AttemptAll::Held { key: key.clone(), contention });
                    }
                    None => {}
                }
            }
            let grant = |claim: &Claim| {
                let grant = |row: &mut Row, tokens| row.grant(claim.id(), claim, tokens, now).reply;
                table.at(claim.key(), now, grant)
            };
            Ok(AttemptAll::Granted(claims.iter().map(grant).collect()))
        })?;
        if let AttemptAll::Granted(_) = attempt {
            // A claim for permits may have acquired a key that observers watch.
            claims.iter().for_each(|claim| self.watches.notify(claim.key().as_str()));
        }
        Ok(attempt)
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Lease(lease) => self.lease_watches.watch(lease.key()),
            subject => self.watches.watch(subject.key()),
        }
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }
}

#[async_trait]
impl StoreAdmin for MyStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.transaction(|table, now| {
            let inspection = table.at(key, now, |row, _| row.inspect(now));
            Ok(inspection.with_last_token((table.last_token > 0).then_some(table.last_token)))
        })
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.transaction(|table, now| {
            let is_in_use = |row: &Row| row.ends().is_some_and(|ends| now < ends);
            let is_wanted = |key: &LockKey| {
                key.as_str().starts_with(prefix) && after.is_none_or(|after| key.as_str() > after)
            };
            let rows = table.rows.iter().filter(|(key, row)| is_wanted(key) && is_in_use(row));
            let keys: Vec<_> = rows.map(|(key, _)| key.clone()).take(Self::KEYS_PER_PAGE).collect();
            let next = keys.last().filter(|_| keys.len() == Self::KEYS_PER_PAGE);
            let next = next.map(|key| key.as_str().to_owned());
            Ok(KeyPage::new(keys).with_next(next))
        })
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let forced = self.step(key, |row, tokens, now| Ok(row.force_release(only, tokens, now)))?;
        self.lease_watches.notify(key.as_str());
        Ok(forced)
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let revocation = self.transaction(|table, now| {
            Ok(table.at(key, now, |row, _| row.request_revocation(only)))
        })?;
        self.lease_watches.notify(key.as_str());
        Ok(revocation)
    }
}

impl Default for MyStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Lease ids are secrets, so `Debug` must not print the rows. The suite checks this.
impl fmt::Debug for MyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MyStore").finish_non_exhaustive()
    }
}
