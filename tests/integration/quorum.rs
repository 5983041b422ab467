//! A quorum of three kinds of store.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::LockBackend;
use leasehold::mysql::MysqlBackend;
use leasehold::postgres::PostgresBackend;
use leasehold::quorum::Quorum;
use leasehold::sqlite::{SqliteBackend, SqliteConfig};
use leasehold::{LockClient, LockOptions, TryLockError};
use leasehold_testbed::{Folder, MariaDb, Postgres, patiently};

/// Members have a twelfth of it to answer: longer than a busy machine takes.
const TTL: Duration = Duration::from_secs(120);

struct Stores {
    postgres: Postgres,
    mariadb: MariaDb,
    folder: Folder,
}

impl Stores {
    async fn start() -> Self {
        let (postgres, mariadb) = tokio::join!(Postgres::start(), MariaDb::start());
        Self { postgres, mariadb, folder: Folder::in_memory("sqlite-") }
    }

    async fn client(&self) -> LockClient<Quorum<Arc<dyn LockBackend>>> {
        let file = SqliteConfig::new(self.folder.path().join("locks.db")).unwrap();
        let file = SqliteBackend::connect_with(file.timeout(TTL / 12).unwrap()).await.unwrap();
        let postgres = PostgresBackend::connect(&patiently(&self.postgres.url())).await.unwrap();
        let mariadb = MysqlBackend::connect(&patiently(&self.mariadb.url())).await.unwrap();
        let members: [(_, Arc<dyn LockBackend>); 3] = [
            ("file", Arc::new(file)),
            ("postgres", Arc::new(postgres)),
            ("mariadb", Arc::new(mariadb)),
        ];
        let quorum = Quorum::builder(members).max_ttl(TTL).member_timeout(TTL).build().unwrap();
        LockClient::builder(quorum).options(LockOptions::new().ttl(TTL)).build().unwrap()
    }
}

/// Locks in one client, finds the key held in the other, releases, and returns the token.
async fn lock_in_turn<B: LockBackend>(one: &LockClient<B>, other: &LockClient<B>) -> u64 {
    let guard = one.mutex("job").unwrap().lock().await.unwrap();
    assert!(matches!(other.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    let token = guard.token().number();
    guard.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_of_different_stores_survives_the_loss_of_one() {
    let mut stores = Stores::start().await;
    let (one, other) = (stores.client().await, stores.client().await);
    let mut tokens = vec![lock_in_turn(&one, &other).await, lock_in_turn(&other, &one).await];
    let held = one.mutex("held").unwrap().lock().await.unwrap();

    stores.postgres.kill();

    assert!(matches!(other.mutex("held").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    tokens.push(lock_in_turn(&one, &other).await);
    tokens.push(lock_in_turn(&other, &one).await);
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    held.release().await.unwrap();
    lock_in_turn(&other, &one).await;
}
