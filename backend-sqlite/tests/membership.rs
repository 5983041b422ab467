//! Tests of files that are members of a quorum.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, JoinRequest, Lease, LockBackend as _, Member as _, QuorumConfiguration,
    StoreId, Vote,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_sqlite::{Host, SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::Connection;

/// A file on a machine whose clock the test advances.
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

fn configuration() -> QuorumConfiguration {
    QuorumConfiguration::new(["a", "b", "c"], Duration::from_secs(60))
}

/// Makes the file a member, and returns its identity.
async fn join(backend: &SqliteBackend) -> StoreId {
    let store = backend.status(StoreId::new()).await.unwrap().store();
    let joined = backend.join(&JoinRequest::new(store, configuration())).await.unwrap();
    assert_eq!(joined.configuration(), Some(&configuration()));
    store
}

async fn vote(backend: &SqliteBackend) -> Result<Attempt, Error> {
    let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(10));
    backend.vote(&Vote::new(Claim::new(lease), configuration())).await
}

#[tokio::test]
async fn restart_of_the_machine_ends_the_membership() {
    let scene = Scene::new();
    let before = scene.connect("boot").await;
    let store = join(&before).await;
    vote(&before).await.unwrap();
    before.close().await;

    let after = scene.connect("another boot").await;

    assert_eq!(vote(&after).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let late = after.join(&JoinRequest::new(store, configuration())).await.unwrap();
    assert_ne!(late.store(), store, "the identity belonged to the lost data");
    assert_eq!((late.configuration(), late.age()), (None, Duration::ZERO));
    join(&after).await;
    vote(&after).await.unwrap();
}

#[tokio::test]
async fn another_connection_finds_the_same_member() {
    let scene = Scene::new();
    let one = scene.connect("boot").await;
    let store = join(&one).await;
    scene.micros.fetch_add(5_000_000, Ordering::SeqCst);

    let other = scene.connect("boot").await;

    let found = other.status(StoreId::new()).await.unwrap();
    assert_eq!((found.store(), found.configuration()), (store, Some(&configuration())));
    assert_eq!(found.age(), Duration::from_secs(5));
    vote(&other).await.unwrap();
}

#[tokio::test]
async fn new_file_is_not_a_member() {
    let scene = Scene::new();
    let backend = scene.connect("boot").await;
    let store = join(&backend).await;

    for beside in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{beside}", scene.path().display())).unwrap();
    }

    assert_eq!(vote(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let found = backend.status(StoreId::new()).await.unwrap();
    assert_ne!(found.store(), store);
    assert_eq!(found.configuration(), None);
}

#[tokio::test]
async fn file_without_a_member_table_can_join() {
    let scene = Scene::new();
    scene.connect("boot").await.close().await;
    scene.execute("DROP TABLE leasehold_member");

    let backend = scene.connect("boot").await;

    join(&backend).await;
    vote(&backend).await.unwrap();
}

#[tokio::test]
async fn file_on_a_machine_without_a_boot_id_cannot_join() {
    let scene = Scene::new();
    let backend = scene.connect("").await;

    let error = backend.status(StoreId::new()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn file_without_the_row_of_its_machine_cannot_join() {
    let scene = Scene::new();
    let backend = scene.connect("boot").await;
    scene.execute("DELETE FROM leasehold_host");

    let error = backend.status(StoreId::new()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}
