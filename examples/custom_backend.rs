//! A complete backend for your own store, and the report of the conformance suite:
//! `cargo run --example custom_backend`.
//!
//! The store in this example is a table in memory. Each operation is one transaction, as it would
//! be in a database.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::{
    Attempt, Capabilities, Claim, Contention, Fencing, Fingerprint, Grant, Lease, LockBackend,
    Release, Renewal,
};
use leasehold::clock::{Clock, Instant, ManualClock, SystemClock};
use leasehold::{Error, Holder, LockKey};
use leasehold_conformance::{Harness, Time, report};

/// A row of the table: the lease id of the holder, and the time when the lease expires.
struct Row {
    lease_id: String,
    ends: Instant,
}

impl Row {
    /// The backend knows another client's lease only by the lease id in this column.
    fn holder(&self, now: Instant) -> Holder {
        let left = self.ends.since(now);
        Holder::new(Fingerprint::of(self.lease_id.as_bytes())).with_remaining(Some(left))
    }
}

struct Table {
    rows: HashMap<String, Row>,
    last_token: u64,
    /// The clock of the store, which the suite replaces.
    clock: Arc<dyn Clock>,
}

impl Table {
    /// `SELECT … WHERE key = $1 AND ends > now()`
    fn in_force(&self, key: &LockKey) -> Option<&Row> {
        self.rows.get(key.as_str()).filter(|row| row.ends > self.clock.now())
    }

    /// `INSERT … ON CONFLICT (key) DO UPDATE …`
    fn put(&mut self, lease: &Lease) {
        let row = Row { lease_id: lease.id().secret(), ends: self.clock.now() + lease.ttl() };
        self.rows.insert(lease.key().to_string(), row);
    }
}

/// Declares the capabilities of the store and implements three methods. Each method is one atomic
/// step in the store.
#[derive(Clone)]
struct TableBackend(Arc<Mutex<Table>>);

impl TableBackend {
    fn new(clock: impl Clock) -> Self {
        let table = Table { rows: HashMap::new(), last_token: 0, clock: Arc::new(clock) };
        Self(Arc::new(Mutex::new(table)))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("no transaction panics")
    }
}

/// Lease ids are secrets, so `Debug` must not print them. The suite checks this.
impl fmt::Debug for TableBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TableBackend")
    }
}

#[async_trait]
impl LockBackend for TableBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("table", Fencing::Strict)
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let mut table = self.table();
        match table.in_force(claim.key()) {
            // If the reply to a claim was lost, the client sends the claim again. The claim must
            // not be refused because of its own lease.
            Some(row) if row.lease_id != claim.id().secret() => {
                Ok(Attempt::Held(Contention::new().with_holder(row.holder(table.clock.now()))))
            }
            _ => {
                table.last_token += 1;
                table.put(claim.lease());
                let token = NonZeroU64::new(table.last_token).expect("it has grown");
                Ok(Attempt::Granted(Grant::new(token)))
            }
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let mut table = self.table();
        match table.in_force(lease.key()) {
            None => Ok(Renewal::Vanished),
            Some(row) if row.lease_id != lease.id().secret() => Ok(Renewal::Taken),
            Some(_) => {
                table.put(lease);
                Ok(Renewal::Renewed)
            }
        }
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let mut table = self.table();
        match table.in_force(lease.key()) {
            Some(row) if row.lease_id == lease.id().secret() => {
                table.rows.remove(lease.key().as_str());
                Ok(Release::Released)
            }
            _ => Ok(Release::NotHeld),
        }
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

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        let table = self.backend.table();
        table.in_force(key).map(|row| row.holder(table.clock.now()))
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
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    runtime.block_on(async {
        let client = leasehold::LockClient::new(TableBackend::new(SystemClock));
        let mutex = client.mutex("invoice:42")?;
        mutex.run(async |guard| println!("held with token {}", guard.token())).await?;
        client.shutdown(Duration::from_secs(1)).await
    })
}
