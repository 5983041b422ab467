//! Tests of files that are deleted, replaced, truncated or restored while processes use them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Renewal, StoreAdmin as _};
use leasehold_core::{
    Error, ErrorKind, LockClient, LockGuard, LockKey, LockOptions, LossReason, TryLockError,
};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::{Folder, until};
use rusqlite::Connection;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::processes::{Process, client, file, folder_of_the_test, increment, rest};

const PROCESSES: u32 = 4;

/// The number of increments between two faults.
const TURNS: u32 = 4;

/// Longer than any wait for a file that a test has changed, and much shorter than the time to the next
/// renewal of a [`LONG`] lease.
const PATIENCE: Duration = Duration::from_secs(30);

const LONG: Duration = Duration::from_secs(3600);

fn next_to(folder: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(file(folder));
    path.push(suffix);
    path.into()
}

fn delete(folder: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        // An earlier fault may have deleted the file.
        drop(fs::remove_file(next_to(folder, suffix)));
    }
}

fn truncate(path: &Path) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
}

/// The number of times that each process opens the file and increments the counter.
const INCREMENTS: u32 = 40;

/// The default TTL of a lease.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// Increments the counter in a process that a test has started. Otherwise, this test does nothing.
#[tokio::test]
async fn opens_and_increments() {
    let Some(folder) = folder_of_the_test() else { return };
    let opening = fs::File::open(folder.join("counter")).unwrap();
    for _ in 0..INCREMENTS {
        let backend = connect_without_faults(&opening, &folder).await;
        increment(&LockClient::new(backend), &folder).await;
    }
}

/// Connects while the test deletes no files. If files are deleted within the 0.1 ms in which SQLite
/// opens them, SQLite creates new files, and a lock may be lost.
async fn connect_without_faults(opening: &fs::File, folder: &Path) -> SqliteBackend {
    // The machine may be slow.
    let config = SqliteConfig::new(file(folder)).unwrap().timeout(PATIENCE).unwrap();
    opening.lock_shared().unwrap();
    let backend = SqliteBackend::connect_with(config).await;
    opening.unlock().unwrap();
    backend.unwrap()
}

/// Starts processes that increment a counter, and calls `disturb` repeatedly in the meantime. Fails if
/// an increment is lost.
fn assert_counts_exactly(disturb: impl Fn(&Path)) {
    let folder = Folder::in_memory("sqlite-");
    let counter = folder.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let start = |_| Process::start("replaced::opens_and_increments", folder.path());
    let mut processes: Vec<Process> = (0..PROCESSES).map(start).collect();

    let opening = fs::File::open(&counter).unwrap();
    let (mut faults, mut last, mut since) = (0, 0, Instant::now());
    while processes.iter_mut().any(Process::is_running) {
        // The counter is empty while a process writes it.
        let count = fs::read_to_string(&counter).unwrap().parse().unwrap_or(last);
        if count >= last + TURNS {
            opening.lock().unwrap();
            disturb(folder.path());
            opening.unlock().unwrap();
            (faults, last, since) = (faults + 1, count, Instant::now());
        }
        // If a process exits while the outcome of its release is unknown, its lease remains for its TTL.
        assert!(since.elapsed() < DEFAULT_TTL + PATIENCE, "no increment after fault {faults}");
        thread::sleep(Duration::from_millis(1));
    }

    assert!(processes.iter_mut().all(Process::succeeds));
    let count = fs::read_to_string(counter).unwrap();
    assert_eq!(count, (PROCESSES * INCREMENTS).to_string(), "{faults} faults");
    assert!(faults > 10, "{faults}");
}

#[test]
fn a_deleted_index_neither_loses_a_lock_nor_admits_a_second_holder() {
    assert_counts_exactly(|folder| delete(folder, &["-shm"]));
}

#[test]
fn a_deleted_log_neither_loses_a_lock_nor_admits_a_second_holder() {
    assert_counts_exactly(|folder| delete(folder, &["-wal"]));
}

#[test]
fn a_deleted_log_and_index_neither_lose_a_lock_nor_admit_a_second_holder() {
    assert_counts_exactly(|folder| delete(folder, &["-shm", "-wal"]));
}

/// Holds a lock in a process that a test has started. Otherwise, this test does nothing.
#[tokio::test]
async fn holds_for_long() {
    let Some(folder) = folder_of_the_test() else { return };
    let client = client(&folder, LockOptions::new().ttl(LONG)).await;
    let _guard = client.mutex("job").unwrap().lock().await.unwrap();
    rest().await;
}

/// Opens the file in a process that a test has started, and then does nothing.
#[tokio::test]
async fn idles() {
    let Some(folder) = folder_of_the_test() else { return };
    let _client = client(&folder, LockOptions::new()).await;
    rest().await;
}

async fn connect(folder: &Path) -> Result<SqliteBackend, Error> {
    SqliteBackend::connect_with(SqliteConfig::new(file(folder)).unwrap()).await
}

#[tokio::test]
async fn a_new_client_waits_for_a_holder_with_a_deleted_log_and_then_finds_its_lease() {
    let folder = Folder::in_memory("sqlite-");
    let holder = Process::start("replaced::holds_for_long", folder.path()).until_ready();
    holder.signal(Signal::STOP);
    delete(folder.path(), &["-shm", "-wal"]);

    let error = connect(folder.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("locks.db-wal"), "{error}");

    holder.signal(Signal::CONT);
    until("the holder closes the deleted files", async || connect(folder.path()).await.is_ok())
        .await;
    let client = client(folder.path(), LockOptions::new()).await;
    assert!(
        matches!(client.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))),
        "two holders"
    );
}

#[tokio::test]
async fn an_idle_process_does_not_keep_other_processes_from_creating_new_files() {
    let folder = Folder::in_memory("sqlite-");
    let _idle = Process::start("replaced::idles", folder.path()).until_ready();
    delete(folder.path(), &["-shm"]);

    until("the idle process closes the deleted file", async || {
        connect(folder.path()).await.is_ok()
    })
    .await;
}

async fn held(folder: &Path) -> (SqliteBackend, Lease) {
    let backend = connect(folder).await.unwrap();
    let lease = Lease::new(&LockKey::new("job").unwrap(), LONG);
    let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    (backend, lease)
}

#[tokio::test]
async fn a_truncated_index_does_not_lose_a_lease() {
    let folder = Folder::in_memory("sqlite-");
    let (backend, lease) = held(folder.path()).await;

    truncate(&next_to(folder.path(), "-shm"));

    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Renewed);
    let other = client(folder.path(), LockOptions::new()).await;
    assert!(
        matches!(other.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))),
        "two holders"
    );
}

#[tokio::test]
async fn a_truncated_log_loses_only_the_leases_in_the_log() {
    let folder = Folder::in_memory("sqlite-");
    let (backend, lease) = held(folder.path()).await;

    truncate(&next_to(folder.path(), "-wal"));

    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Vanished);
    let other = client(folder.path(), LockOptions::new()).await;
    other.mutex("job").unwrap().try_lock().await.unwrap().release().await.unwrap();
    assert_is_intact(folder.path());
}

fn assert_is_intact(folder: &Path) {
    let connection = Connection::open(file(folder)).unwrap();
    let check = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    assert_eq!(connection.query_row("PRAGMA integrity_check", [], check).unwrap(), "ok");
}

/// Calls `disturb` while a client holds a lock that need not be renewed soon. Fails if the client is
/// not notified.
async fn assert_is_notified(disturb: impl AsyncFn(&Path)) {
    let folder = Folder::in_memory("sqlite-");
    let locks = folder.path().join("locks");
    let client = client(&locks, LockOptions::new().ttl(LONG)).await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    disturb(&locks).await;

    assert_vanishes(&guard).await;
    // The client then uses the new file.
    client.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();
    assert_is_intact(&locks);
}

async fn assert_vanishes(guard: &LockGuard) {
    let lost = timeout(PATIENCE, guard.lost()).await.expect("the client polls the file");
    assert_eq!(lost, Some(LossReason::Vanished));
}

#[tokio::test]
async fn holders_are_notified_if_the_file_is_deleted() {
    assert_is_notified(async |folder| delete(folder, &["", "-shm", "-wal"])).await;
}

#[tokio::test]
async fn holders_are_notified_if_the_file_is_deleted_without_its_log() {
    assert_is_notified(async |folder| delete(folder, &[""])).await;
}

#[tokio::test]
async fn holders_are_notified_if_the_directory_is_deleted() {
    assert_is_notified(async |folder| fs::remove_dir_all(folder).unwrap()).await;
}

/// Moves a different lock file to the path.
async fn replace(folder: &Path) {
    let other = folder.with_file_name("other");
    connect(&other).await.unwrap().close().await;
    fs::rename(file(&other), file(folder)).unwrap();
}

#[tokio::test]
async fn holders_are_notified_if_the_file_is_replaced() {
    assert_is_notified(async |folder| {
        delete(folder, &["-shm", "-wal"]);
        replace(folder).await;
    })
    .await;
}

#[tokio::test]
async fn the_log_of_a_replaced_file_is_not_applied_to_the_new_file() {
    assert_is_notified(replace).await;
}

#[tokio::test]
async fn holders_are_notified_if_the_file_is_truncated() {
    assert_is_notified(async |folder| truncate(&file(folder))).await;
}

#[tokio::test]
async fn holders_are_notified_if_an_older_version_of_the_file_is_restored() {
    let folder = Folder::in_memory("sqlite-");
    let client = client(folder.path(), LockOptions::new().ttl(LONG)).await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    // When the client is notified, the client has polled the file.
    let other = connect(folder.path()).await.unwrap();
    other.request_revocation(&LockKey::new("job").unwrap(), None).await.unwrap();
    assert!(guard.revocation_requested().await);

    let connection = Connection::open(file(folder.path())).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection.execute_batch("DELETE FROM leasehold_key").unwrap();

    assert_vanishes(&guard).await;
}
