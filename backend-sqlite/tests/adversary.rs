//! Several clients acquire a few keys while another program deletes the rows of free keys.
//!
//! The adversary of the database servers must also find a swap that does not compare the version of the
//! row. SQLite needs no version, because a change reads and replaces the row in one write transaction.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend as _, Mode, Patience, StoreAdmin as _,
};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::Connection;

const CLIENTS: usize = 6;

/// The least number of grants to each client.
const GRANTS: usize = 200;

/// The least number of rows to delete during a run.
const PURGED: u64 = 100;

/// The least number of transfers to waiters during a run.
const TRANSFERS: usize = 50;

/// The number of free permits of the semaphore.
const PERMITS: u32 = 2;

/// The longest wait of a call for the busy file.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest number of attempts of a waiter before it gives up.
const TRIES: u32 = 8;

/// All tokens are ahead of the clock, so the clock does not keep them in order.
const AHEAD: &str = "UPDATE leasehold_host SET min_token = 2 * (unixepoch() + 3600) * 1000000";

/// Deletes the rows of free keys, as a purge does.
const PURGE: &str = "BEGIN IMMEDIATE;
    UPDATE leasehold_host SET min_token =
        max(min_token, (SELECT coalesce(max(token), 0) FROM leasehold_key WHERE ends <= 0));
    DELETE FROM leasehold_key WHERE ends <= 0;
    COMMIT;";

/// Deletes the rows of free keys without raising the minimum token.
const WRONG_PURGE: &str = "DELETE FROM leasehold_key WHERE ends <= 0;";

/// The grants so far.
#[derive(Default)]
struct Grants {
    /// The number of holders of each key.
    inside: HashMap<LockKey, u32>,
    last_tokens: HashMap<LockKey, u64>,
    /// The number of keys that were reserved for a waiter when the waiter repeated its claim.
    transfers: usize,
    overlaps: usize,
    out_of_order: usize,
}

impl Grants {
    fn enter(&mut self, lease: &Lease, token: u64) {
        let inside = self.inside.entry(lease.key().clone()).or_default();
        *inside += 1;
        self.overlaps += usize::from(*inside > lease.mode().limit());
        let last = self.last_tokens.entry(lease.key().clone()).or_default();
        // Two holders of permits may get here in either order.
        self.out_of_order += usize::from(lease.mode().is_mutex() && token <= *last);
        *last = token.max(*last);
    }

    fn leave(&mut self, lease: &Lease) {
        *self.inside.get_mut(lease.key()).unwrap() -= 1;
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

async fn connect(folder: &Path) -> SqliteBackend {
    let config = SqliteConfig::new(file(folder)).unwrap().timeout(PATIENCE).unwrap();
    SqliteBackend::connect_with(config).await.unwrap()
}

/// Acquires keys at random, with and without a queue entry. A waiter repeats its claim until it is
/// granted or until it gives up.
async fn client(backend: SqliteBackend, grants: Arc<Mutex<Grants>>, purged: Arc<AtomicU64>) {
    let mut granted = 0;
    while granted < GRANTS
        || purged.load(Ordering::Relaxed) < PURGED
        || grants.lock().unwrap().transfers < TRANSFERS
    {
        let (name, mode) = match fastrand::u8(..3) {
            0 => ("permits", Mode::Units { units: 1, limit: PERMITS }),
            1 => ("one", Mode::Exclusive),
            _ => ("other", Mode::Exclusive),
        };
        let key = LockKey::new(name).unwrap();
        let lease = Lease::new(&key, Duration::from_secs(60)).with_mode(mode);
        let (patience, tries) = match fastrand::u8(..4) {
            0 => (Patience::Queues(lease.ttl()), fastrand::u32(1..=TRIES)),
            1 => (Patience::Waits, fastrand::u32(1..=TRIES)),
            _ => (Patience::Leaves, 1),
        };
        let claim = Claim::new(lease.clone()).with_patience(patience);
        for attempt in 0..tries {
            if attempt > 0 {
                let inspection = backend.inspect(&key).await.unwrap();
                let mut holders = inspection.holders().iter();
                let is_reserved =
                    holders.any(|holder| holder.fingerprint() == lease.id().fingerprint());
                grants.lock().unwrap().transfers += usize::from(is_reserved);
            }
            if let Attempt::Granted(grant) = backend.acquire(&claim).await.unwrap() {
                granted += 1;
                grants.lock().unwrap().enter(&lease, grant.token());
                tokio::task::yield_now().await;
                grants.lock().unwrap().leave(&lease);
                break;
            }
        }
        // Also removes the queue entry of a claim that was not granted.
        backend.release(&lease).await.unwrap();
    }
}

/// Runs all clients next to a program that runs `purge`.
async fn run(purge: &'static str) -> Arc<Mutex<Grants>> {
    let folder = Folder::in_memory("sqlite-");
    let backend = connect(folder.path()).await;
    let connection = Connection::open(file(folder.path())).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection.execute_batch(AHEAD).unwrap();
    let (purged, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let (counts, ends) = (Arc::clone(&purged), Arc::clone(&is_over));
    let purging = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            connection.execute_batch(purge).unwrap();
            // The number of rows that the last statement has deleted.
            counts.fetch_add(connection.changes(), Ordering::Relaxed);
            thread::yield_now();
        }
    });

    let grants = Arc::<Mutex<Grants>>::default();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (grants, purged) = (Arc::clone(&grants), Arc::clone(&purged));
        clients.push(tokio::spawn(client(connect(folder.path()).await, grants, purged)));
    }
    for client in clients {
        client.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    purging.join().unwrap();
    backend.close().await;
    grants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_exclude_and_tokens_increase_while_rows_are_purged() {
    let grants = run(PURGE).await;

    let grants = grants.lock().unwrap();
    assert_eq!((grants.overlaps, grants.out_of_order), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_purge_without_a_minimum_token_repeats_tokens() {
    let grants = run(WRONG_PURGE).await;

    let grants = grants.lock().unwrap();
    assert_eq!(grants.overlaps, 0);
    assert!(grants.out_of_order > 0, "the test does not notice repeated tokens");
}
