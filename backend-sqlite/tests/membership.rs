//! Files as members of a quorum.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{Attempt, Charter, Claim, Enlistment, Lease, LockBackend, StoreId};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_sqlite::{Host, SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::Connection;

/// A file on a machine with a clock that the test moves.
struct Scene {
    folder: Folder,
    micros: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Self {
        Self { folder: Folder::in_memory("sqlite-"), micros: Arc::new(AtomicU64::new(1_000_000)) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    async fn connect(&self, boot: &str) -> SqliteBackend {
        let micros = Arc::clone(&self.micros);
        let clock = move || Duration::from_micros(micros.load(Ordering::SeqCst));
        let config = SqliteConfig::new(self.path()).unwrap();
        SqliteBackend::connect_with(config.host(Host::new("machine", boot, clock))).await.unwrap()
    }

    fn execute(&self, text: &str) {
        Connection::open(self.path()).unwrap().execute_batch(text).unwrap();
    }
}

fn charter() -> Charter {
    Charter::new(["a", "b", "c"], Duration::from_secs(60))
}

async fn enlist(backend: &SqliteBackend) -> StoreId {
    let store = backend.standing(StoreId::new()).await.unwrap().store();
    let enlisted = backend.enlist(&Enlistment::new(store, charter())).await.unwrap();
    assert_eq!(enlisted.charter(), Some(&charter()));
    store
}

async fn claim(backend: &SqliteBackend) -> Result<Attempt, Error> {
    let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(10));
    backend.try_acquire(&Claim::new(lease).with_charter(charter())).await
}

#[tokio::test]
async fn restart_of_the_machine_ends_the_membership() {
    let scene = Scene::new();
    let before = scene.connect("boot").await;
    let store = enlist(&before).await;
    claim(&before).await.unwrap();
    before.close().await;

    let after = scene.connect("another boot").await;

    assert_eq!(claim(&after).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let late = after.enlist(&Enlistment::new(store, charter())).await.unwrap();
    assert_ne!(late.store(), store, "the identity is that of lost data");
    assert_eq!((late.charter(), late.age()), (None, Duration::ZERO));
    enlist(&after).await;
    claim(&after).await.unwrap();
}

#[tokio::test]
async fn another_connection_finds_the_same_member() {
    let scene = Scene::new();
    let one = scene.connect("boot").await;
    let store = enlist(&one).await;
    scene.micros.fetch_add(5_000_000, Ordering::SeqCst);

    let other = scene.connect("boot").await;

    let found = other.standing(StoreId::new()).await.unwrap();
    assert_eq!((found.store(), found.charter()), (store, Some(&charter())));
    assert_eq!(found.age(), Duration::from_secs(5));
    claim(&other).await.unwrap();
}

#[tokio::test]
async fn new_file_is_no_member() {
    let scene = Scene::new();
    let backend = scene.connect("boot").await;
    let store = enlist(&backend).await;

    for beside in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{beside}", scene.path().display())).unwrap();
    }

    assert_eq!(claim(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let found = backend.standing(StoreId::new()).await.unwrap();
    assert_ne!(found.store(), store);
    assert_eq!(found.charter(), None);
}

#[tokio::test]
async fn file_from_before_there_were_members_becomes_one() {
    let scene = Scene::new();
    scene.connect("boot").await.close().await;
    scene.execute("DROP TABLE leasehold_member");

    let backend = scene.connect("boot").await;

    enlist(&backend).await;
    claim(&backend).await.unwrap();
}

#[tokio::test]
async fn machine_without_a_boot_id_has_no_member() {
    let scene = Scene::new();
    let backend = scene.connect("").await;

    let error = backend.standing(StoreId::new()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn stripes_that_are_missing_make_no_member() {
    let scene = Scene::new();
    let backend = scene.connect("boot").await;
    scene.execute("DELETE FROM leasehold_stripe WHERE stripe = 7");

    let error = backend.standing(StoreId::new()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}
