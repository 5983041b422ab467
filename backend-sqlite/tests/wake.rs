//! Tests of the sockets next to the file, which wake waiting processes.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, KeyWatch, Lease, LockBackend as _, Mode, Patience, Release, Subject,
};
use leasehold_core::{ErrorKind, LockKey};
use leasehold_entry::tag;
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::Connection;
use tokio::time::timeout;

/// Much longer than a datagram takes.
const SOON: Duration = Duration::from_secs(10);

fn file(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

fn socket(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("locks.db-wake-{number}"))
}

async fn backend(folder: &Path) -> SqliteBackend {
    SqliteBackend::connect_with(SqliteConfig::new(file(folder)).unwrap()).await.unwrap()
}

async fn hold(backend: &SqliteBackend) -> Lease {
    let lease = Lease::new(&LockKey::new("job").unwrap(), SOON);
    let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    lease
}

fn claim() -> Claim {
    let lease = Lease::new(&LockKey::new("job").unwrap(), SOON);
    Claim::new(lease).with_patience(Patience::Waits)
}

async fn queue(backend: &SqliteBackend, claim: &Claim) {
    let attempt = backend.acquire(claim).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
}

async fn is_notified(watch: &mut KeyWatch) -> bool {
    timeout(SOON, watch.changed()).await.is_ok()
}

/// Returns the number of the socket in the first queue entry.
fn queued_socket(folder: &Path) -> Option<u32> {
    socket_in_queue(folder, 0)
}

/// Returns the number of the socket in the queue entry at this position.
fn socket_in_queue(folder: &Path, position: usize) -> Option<u32> {
    let text = format!("SELECT document ->> '$.queue[{position}].socket' FROM leasehold_key");
    Connection::open(file(folder)).unwrap().query_row(&text, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_datagram_wakes_the_claim_that_it_names() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(folder.path()).await, backend(folder.path()).await);
    hold(&one).await;
    let claim = claim();
    let mut watch = other.watch(Subject::Claim(&claim));
    // The first poll of a key notifies its watch. Later polls do not, because nothing changes.
    assert!(is_notified(&mut watch).await);
    queue(&other, &claim).await;

    let tag = tag(&claim.id().secret());
    let sender = UnixDatagram::unbound().unwrap();
    for noise in [&b""[..], b"x", &[7; 16], &[7; 100]] {
        sender.send_to(noise, socket(folder.path(), 0)).unwrap();
    }
    sender.send_to(tag.as_bytes(), socket(folder.path(), 0)).unwrap();

    assert!(is_notified(&mut watch).await);
}

#[tokio::test]
async fn a_release_sends_the_tag_of_the_next_claim() {
    let folder = Folder::in_memory("sqlite-");
    let receiver = UnixDatagram::bind(socket(folder.path(), 0)).unwrap();
    receiver.set_read_timeout(Some(SOON)).unwrap();
    let (one, other) = (backend(folder.path()).await, backend(folder.path()).await);
    let held = hold(&one).await;
    let claim = claim();
    queue(&other, &claim).await;
    assert_eq!(queued_socket(folder.path()), Some(1), "the first socket is in use");
    let moved =
        r#"UPDATE leasehold_key SET document = replace(document, '"socket":1', '"socket":0')"#;
    Connection::open(file(folder.path())).unwrap().execute(moved, []).unwrap();

    assert_eq!(one.release(&held).await.unwrap(), Release::Released);

    let mut received = [0; 17];
    let length = receiver.recv(&mut received).unwrap();
    assert_eq!(received[..length], tag(&claim.id().secret()).as_bytes()[..]);
}

#[tokio::test]
async fn the_number_of_a_deleted_socket_is_not_used_again_while_a_claim_with_it_is_queued() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(folder.path()).await, backend(folder.path()).await);
    let third = backend(folder.path()).await;
    hold(&one).await;
    queue(&other, &claim()).await;

    fs::remove_file(socket(folder.path(), 0)).unwrap();
    queue(&third, &claim()).await;

    assert_eq!([0, 1].map(|position| socket_in_queue(folder.path(), position)), [Some(0), Some(1)]);
}

#[tokio::test]
async fn a_socket_that_a_killed_process_left_is_replaced_and_then_removed() {
    let folder = Folder::in_memory("sqlite-");
    let path = socket(folder.path(), 0);
    drop(UnixDatagram::bind(&path).unwrap());
    let (one, other) = (backend(folder.path()).await, backend(folder.path()).await);
    hold(&one).await;

    queue(&other, &claim()).await;

    assert_eq!(queued_socket(folder.path()), Some(0));
    UnixDatagram::unbound().unwrap().connect(&path).unwrap();
    other.close().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn claims_wait_without_a_socket_if_the_path_is_too_long() {
    let folder = Folder::in_memory("sqlite-");
    let long = folder.path().join("x".repeat(100));
    fs::create_dir(&long).unwrap();
    let (one, other) = (backend(&long).await, backend(&long).await);
    let held = hold(&one).await;
    let claim = claim();
    let mut watch = other.watch(Subject::Claim(&claim));
    queue(&other, &claim).await;
    assert_eq!(queued_socket(&long), None);

    one.release(&held).await.unwrap();

    assert!(is_notified(&mut watch).await);
    let attempt = other.acquire(&claim).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
}

#[tokio::test]
async fn a_claim_for_another_lock_type_does_not_close_the_file() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(folder.path()).await, backend(folder.path()).await);
    hold(&one).await;
    queue(&other, &claim()).await;
    let inode = || fs::metadata(socket(folder.path(), 0)).unwrap().ino();
    let before = inode();

    let permits = claim().lease().clone().with_mode(Mode::Units { units: 1, limit: 2 });
    let error = other.acquire(&Claim::new(permits)).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(inode(), before, "the socket of the waiting claim was removed");
}

#[tokio::test]
async fn a_socket_has_the_mode_of_the_database() {
    let folder = Folder::in_memory("sqlite-");
    let (one, other) = (backend(folder.path()).await, backend(folder.path()).await);
    fs::set_permissions(file(folder.path()), fs::Permissions::from_mode(0o660)).unwrap();
    hold(&one).await;

    queue(&other, &claim()).await;

    let mode = fs::metadata(socket(folder.path(), 0)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}
