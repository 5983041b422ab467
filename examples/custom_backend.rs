//! A complete backend for your own store, and the report of the conformance suite:
//! `cargo run --example custom_backend`.
//!
//! The store in this example is a table in memory with one row per key. Each operation is one
//! transaction: read the row, apply a step of `Entry`, write the row. `Entry` contains the rules.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::entry::{Entry, Tokens};
use leasehold::backend::{
    Attempt, Capabilities, Claim, Feature, Fencing, Lease, LeaseId, LockBackend, Release, Renewal,
};
use leasehold::clock::{Clock, Instant, ManualClock, SystemClock};
use leasehold::{Error, Holder, LockKey};
use leasehold_conformance::{Harness, Time, report};

/// A row of the table. It remains when the key is free, because it contains the last token.
type Row = Entry<LeaseId, Instant>;

#[derive(Clone)]
struct TableBackend {
    rows: Arc<Mutex<HashMap<LockKey, Row>>>,
    /// The clock of the store, which the suite replaces.
    clock: Arc<dyn Clock>,
}

impl TableBackend {
    fn new(clock: impl Clock) -> Self {
        Self { rows: Arc::default(), clock: Arc::new(clock) }
    }

    /// Runs one transaction on the row of `key`, at the current time of the store.
    fn transaction<R>(&self, key: &LockKey, step: impl FnOnce(&mut Row, Instant) -> R) -> R {
        let mut rows = self.rows.lock().expect("no transaction panics");
        let (row, now) = (rows.entry(key.clone()).or_default(), self.clock.now());
        row.expire(now);
        step(row, now)
    }
}

/// Lease ids are secrets, so `Debug` must not print the rows. The suite checks this.
impl fmt::Debug for TableBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableBackend")
    }
}

#[async_trait]
impl LockBackend for TableBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("table", Fencing::Strict)
            .with(Feature::Queue)
            .with(Feature::SpareTokens)
            .with(Feature::Units)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.transaction(claim.key(), |row, now| {
            Ok(row.acquire(claim.id(), claim, Tokens::default(), now)?.reply)
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        Ok(self.transaction(lease.key(), |row, now| row.renew(&lease.id(), lease, now).reply))
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        Ok(self.transaction(lease.key(), |row, now| row.release(&lease.id(), now).reply))
    }
}

/// Starts the store for the suite, connects to the store, and reads holders directly.
struct OneTable {
    backend: TableBackend,
    clock: ManualClock,
}

#[async_trait]
impl Harness for OneTable {
    type Backend = TableBackend;

    const NAME: &str = "table";
    // The suite advances the store's clock instead of waiting. Without driven time, the strictest
    // cases, which compare the store with a model, do not run.
    const TIME: Time = Time::Driven;

    async fn start() -> Self {
        let clock = ManualClock::new();
        Self { backend: TableBackend::new(clock.clone()), clock }
    }

    async fn connect(&self) -> TableBackend {
        self.backend.clone()
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        let found = self.backend.transaction(key, |row, now| row.inspect(now));
        found.holders().first().cloned()
    }

    async fn advance_store(&self, by: Duration) {
        self.clock.advance(by);
    }
}

fn main() -> Result<(), Error> {
    let report = report::<OneTable>();
    println!("{report}");
    assert_eq!(report.failed(), 0);

    // An application uses the backend like this.
    let client = leasehold::blocking::LockClient::new(TableBackend::new(SystemClock))?;
    client.mutex("invoice:42")?.run(|guard| println!("held with token {}", guard.token()))?;
    client.shutdown(Duration::from_secs(1))
}
