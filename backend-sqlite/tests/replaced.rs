//! Files that are removed, replaced, cut off or put back while processes use them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Renewal};
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

/// How many turns the processes have between two disturbances.
const TURNS: u32 = 4;

/// Longer than any wait for a file that was disturbed, and far shorter than the time to the next renewal of a [`LONG`] lease.
const PATIENCE: Duration = Duration::from_secs(30);

const LONG: Duration = Duration::from_secs(3600);

fn next_to(folder: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(file(folder));
    path.push(suffix);
    path.into()
}

fn remove(folder: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        // Another disturbance may have removed it a moment ago.
        drop(fs::remove_file(next_to(folder, suffix)));
    }
}

fn cut_off(path: &Path) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
}

/// How often each process opens the file and increments a counter.
const INCREMENTS: u32 = 40;

/// The part of a process that takes turns; it does nothing when it is run like any test.
#[tokio::test]
async fn opens_and_increments() {
    let Some(folder) = folder_of_the_test() else { return };
    let opening = fs::File::open(folder.join("counter")).unwrap();
    for _ in 0..INCREMENTS {
        let backend = connect_undisturbed(&opening, &folder).await;
        increment(&LockClient::new(backend), &folder).await;
    }
}

/// Connects while no files are removed. If files are removed within the 0.1 ms in which SQLite opens them, SQLite creates new ones, and a
/// lock may be lost.
async fn connect_undisturbed(opening: &fs::File, folder: &Path) -> SqliteBackend {
    // However slow the machine is.
    let config = SqliteConfig::new(file(folder)).unwrap().timeout(PATIENCE).unwrap();
    opening.lock_shared().unwrap();
    let backend = SqliteBackend::connect_with(config).await;
    opening.unlock().unwrap();
    backend.unwrap()
}

/// Has processes take turns, in which each of them increments a counter, and disturbs them all the while.
fn assert_counts_exactly(disturb: impl Fn(&Path)) {
    let folder = Folder::in_memory("sqlite-");
    let counter = folder.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let start = |_| Process::start("replaced::opens_and_increments", folder.path());
    let mut processes: Vec<Process> = (0..PROCESSES).map(start).collect();

    let opening = fs::File::open(&counter).unwrap();
    let (mut disturbances, mut last, mut since) = (0, 0, Instant::now());
    while processes.iter_mut().any(Process::is_running) {
        // A process may be about to write it.
        let count = fs::read_to_string(&counter).unwrap().parse().unwrap_or(last);
        if count >= last + TURNS {
            opening.lock().unwrap();
            disturb(folder.path());
            opening.unlock().unwrap();
            (disturbances, last, since) = (disturbances + 1, count, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "no turn after disturbance {disturbances}");
        thread::sleep(Duration::from_millis(1));
    }

    assert!(processes.iter_mut().all(Process::succeeds));
    let count = fs::read_to_string(counter).unwrap();
    assert_eq!(count, (PROCESSES * INCREMENTS).to_string(), "{disturbances} disturbances");
    assert!(disturbances > 10, "{disturbances}");
}

#[test]
fn an_index_that_is_removed_costs_no_lock_and_lets_no_two_processes_hold_one() {
    assert_counts_exactly(|folder| remove(folder, &["-shm"]));
}

#[test]
fn a_log_that_is_removed_costs_no_lock_and_lets_no_two_processes_hold_one() {
    assert_counts_exactly(|folder| remove(folder, &["-wal"]));
}

#[test]
fn a_log_and_an_index_that_are_removed_cost_no_lock_and_let_no_two_processes_hold_one() {
    assert_counts_exactly(|folder| remove(folder, &["-shm", "-wal"]));
}

/// The part of a process that holds a lock; it does nothing when it is run like any test.
#[tokio::test]
async fn holds_for_long() {
    let Some(folder) = folder_of_the_test() else { return };
    let client = client(&folder, LockOptions::new().ttl(LONG)).await;
    let _guard = client.mutex("job").unwrap().lock().await.unwrap();
    rest().await;
}

/// The part of a process that has opened the file and does nothing.
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
async fn a_new_client_waits_for_a_holder_that_has_the_removed_log_and_then_finds_its_lease() {
    let folder = Folder::in_memory("sqlite-");
    let holder = Process::start("replaced::holds_for_long", folder.path()).until_ready();
    holder.signal(Signal::STOP);
    remove(folder.path(), &["-shm", "-wal"]);

    let error = connect(folder.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("locks.db-wal"), "{error}");

    holder.signal(Signal::CONT);
    until("the holder lets go of the removed files", async || connect(folder.path()).await.is_ok())
        .await;
    let client = client(folder.path(), LockOptions::new()).await;
    assert!(
        matches!(client.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))),
        "two holders"
    );
}

#[tokio::test]
async fn a_process_that_does_nothing_does_not_keep_others_from_files_anew() {
    let folder = Folder::in_memory("sqlite-");
    let _idle = Process::start("replaced::idles", folder.path()).until_ready();
    remove(folder.path(), &["-shm"]);

    until("the idle process lets go of the removed file", async || {
        connect(folder.path()).await.is_ok()
    })
    .await;
}

async fn held(folder: &Path) -> (SqliteBackend, Lease) {
    let backend = connect(folder).await.unwrap();
    let lease = Lease::new(&LockKey::new("job").unwrap(), LONG);
    let attempt = backend.try_acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    (backend, lease)
}

#[tokio::test]
async fn an_index_that_is_cut_off_costs_no_lease() {
    let folder = Folder::in_memory("sqlite-");
    let (backend, lease) = held(folder.path()).await;

    cut_off(&next_to(folder.path(), "-shm"));

    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Renewed);
    let other = client(folder.path(), LockOptions::new()).await;
    assert!(
        matches!(other.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))),
        "two holders"
    );
}

#[tokio::test]
async fn a_log_that_is_cut_off_costs_the_leases_in_it_and_not_the_file() {
    let folder = Folder::in_memory("sqlite-");
    let (backend, lease) = held(folder.path()).await;

    cut_off(&next_to(folder.path(), "-wal"));

    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Vanished);
    let other = client(folder.path(), LockOptions::new()).await;
    other.mutex("job").unwrap().try_lock().await.unwrap().release().await.unwrap();
    assert_is_whole(folder.path());
}

fn assert_is_whole(folder: &Path) {
    let connection = Connection::open(file(folder)).unwrap();
    let check = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    assert_eq!(connection.query_row("PRAGMA integrity_check", [], check).unwrap(), "ok");
}

/// Has a client hold a lock that it would not renew soon, and disturbs the file.
async fn assert_is_notified(disturb: impl AsyncFn(&Path)) {
    let folder = Folder::in_memory("sqlite-");
    let locks = folder.path().join("locks");
    let client = client(&locks, LockOptions::new().ttl(LONG)).await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    disturb(&locks).await;

    assert_vanishes(&guard).await;
    // The client then uses the new file.
    client.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();
    assert_is_whole(&locks);
}

async fn assert_vanishes(guard: &LockGuard) {
    let lost = timeout(PATIENCE, guard.lost()).await.expect("the client looks at the file");
    assert_eq!(lost, Some(LossReason::Vanished));
}

#[tokio::test]
async fn the_holders_in_a_file_that_is_deleted_are_notified() {
    assert_is_notified(async |folder| remove(folder, &["", "-shm", "-wal"])).await;
}

#[tokio::test]
async fn the_holders_in_a_file_that_is_deleted_without_its_log_are_notified() {
    assert_is_notified(async |folder| remove(folder, &[""])).await;
}

#[tokio::test]
async fn the_holders_in_a_directory_that_is_deleted_are_notified() {
    assert_is_notified(async |folder| fs::remove_dir_all(folder).unwrap()).await;
}

/// Puts another file of locks at the path.
async fn replace(folder: &Path) {
    let other = folder.with_file_name("other");
    connect(&other).await.unwrap().close().await;
    fs::rename(file(&other), file(folder)).unwrap();
}

#[tokio::test]
async fn the_holders_in_a_file_that_another_one_replaces_are_notified() {
    assert_is_notified(async |folder| {
        remove(folder, &["-shm", "-wal"]);
        replace(folder).await;
    })
    .await;
}

#[tokio::test]
async fn a_file_that_replaces_another_one_does_not_get_its_log() {
    assert_is_notified(replace).await;
}

#[tokio::test]
async fn the_holders_in_a_file_that_is_cut_off_are_notified() {
    assert_is_notified(async |folder| cut_off(&file(folder))).await;
}

#[tokio::test]
async fn holders_are_notified_if_an_earlier_content_of_the_file_is_put_back() {
    let folder = Folder::in_memory("sqlite-");
    let client = client(folder.path(), LockOptions::new().ttl(LONG)).await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    // Once it is notified of this, it has looked at the file.
    let other = connect(folder.path()).await.unwrap();
    other.request_revocation(&LockKey::new("job").unwrap(), None).await.unwrap();
    assert!(guard.revocation_requested().await);

    let connection = Connection::open(file(folder.path())).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    let earlier = "DELETE FROM leasehold_lease; UPDATE leasehold_stripe SET token = token / 2";
    connection.execute_batch(earlier).unwrap();

    assert_vanishes(&guard).await;
}
