//! Tests of files from the version with one row per lease.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend as _, Mode, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::{ErrorKind, LockKey};
use leasehold_entry::tag;
use leasehold_sqlite::{Host, SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::{Connection, params};

const TTL: Duration = Duration::from_secs(10);

/// The time on the clock of the machine.
const NOW: i64 = 1_000_000;

/// The last token of all keys, which is ahead of the clock.
const LAST_TOKEN: i64 = 9_000_000_000_000_000;

const PERMITS: Mode = Mode::Units { units: 1, limit: 2 };

/// The statements with which the earlier version created its tables.
const EARLIER: &str = "
CREATE TABLE leasehold_stripe (stripe INTEGER PRIMARY KEY, token INTEGER NOT NULL) STRICT;
INSERT INTO leasehold_stripe WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 255) SELECT n, 9000000000000000 FROM n;
CREATE TABLE leasehold_lease (
  key TEXT NOT NULL,
  tag TEXT NOT NULL,
  place INTEGER,
  whole INTEGER NOT NULL,
  units INTEGER NOT NULL,
  capacity INTEGER NOT NULL,
  patience INTEGER,
  ends INTEGER NOT NULL,
  asked INTEGER NOT NULL,
  token INTEGER,
  fingerprint TEXT NOT NULL,
  description TEXT,
  PRIMARY KEY (key, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX leasehold_lease_ends ON leasehold_lease (ends);
CREATE TABLE leasehold_host (
  layout INTEGER NOT NULL,
  machine TEXT NOT NULL,
  boot TEXT NOT NULL,
  ceiling INTEGER NOT NULL,
  alarms INTEGER NOT NULL
) STRICT;
INSERT INTO leasehold_host VALUES (1, 'machine', 'boot', 9000000000000001, 0);
";

/// A file of the earlier version.
struct Scene {
    folder: Folder,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: Folder::in_memory("sqlite-") };
        scene.open().execute_batch(EARLIER).unwrap();
        scene
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    fn open(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Inserts a lease, or a queue entry if there is a `place`.
    fn insert(&self, lease: &Lease, place: Option<i64>, ends: i64, asked: i64) {
        let (id, mode) = (lease.id(), lease.mode());
        let token = place.is_none().then_some(LAST_TOKEN - 7);
        let parameters = params![
            lease.key().as_str(),
            tag(&id.secret()).to_string(),
            place,
            mode.is_mutex(),
            mode.units(),
            mode.limit(),
            place.map(|_| 250_000),
            ends,
            asked,
            token,
            id.fingerprint().to_string(),
        ];
        let text = "INSERT INTO leasehold_lease VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'earlier')";
        self.open().execute(text, parameters).unwrap();
    }

    async fn backend(&self, boot: &str) -> SqliteBackend {
        let clock = || Duration::from_micros(NOW.try_into().unwrap());
        let config = SqliteConfig::new(self.path()).unwrap();
        SqliteBackend::connect_with(config.host(Host::new("machine", boot, clock))).await.unwrap()
    }
}

fn lease(name: &str, mode: Mode) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL).with_mode(mode)
}

#[tokio::test]
async fn leases_and_queue_entries_in_force_remain() {
    let scene = Scene::new();
    let whole = lease("whole", Mode::Exclusive);
    let permits = [lease("permits", PERMITS), lease("permits", PERMITS)];
    let waiters = [lease("permits", PERMITS), lease("permits", PERMITS)];
    let expired = lease("expired", Mode::Exclusive);
    scene.insert(&whole, None, NOW + 5_000_000, 0);
    for permit in &permits {
        scene.insert(permit, None, NOW + 5_000_000, NOW + 5_000_000);
    }
    scene.insert(&waiters[0], Some(1), NOW + 5_000_000, 0);
    scene.insert(&waiters[1], Some(2), NOW + 5_000_000, 0);
    scene.insert(&expired, None, NOW, 0);

    let backend = scene.backend("boot").await;

    let shown = backend.inspect(whole.key()).await.unwrap();
    let holder = &shown.holders()[0];
    assert_eq!(holder.fingerprint(), whole.id().fingerprint());
    assert_eq!(holder.token(), Some(u64::try_from(LAST_TOKEN - 7).unwrap()));
    assert_eq!(holder.description().unwrap().as_str(), "earlier");
    assert_eq!(holder.remaining(), Some(Duration::from_secs(5)));
    assert_eq!(backend.renew(&whole).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&whole).await.unwrap(), Release::Released);

    let shown = backend.inspect(permits[0].key()).await.unwrap();
    assert_eq!((shown.holders().len(), shown.waiting()), (2, Some(2)));
    assert_eq!(backend.renew(&permits[0]).await.unwrap(), Renewal::RevocationRequested);
    assert_eq!(backend.release(&permits[0]).await.unwrap(), Release::Released);
    let second = backend.acquire(&Claim::new(waiters[1].clone())).await.unwrap();
    assert!(matches!(second, Attempt::Held(_)), "{second:?}");
    let first = backend.acquire(&Claim::new(waiters[0].clone())).await.unwrap();
    assert!(matches!(first, Attempt::Granted(_)), "{first:?}");

    assert!(!backend.inspect(expired.key()).await.unwrap().is_held());
}

#[tokio::test]
async fn tokens_continue() {
    let scene = Scene::new();

    let backend = scene.backend("boot").await;

    for lease in [lease("whole", Mode::Exclusive), lease("permits", PERMITS)] {
        match backend.acquire(&Claim::new(lease)).await.unwrap() {
            Attempt::Granted(grant) => assert!(grant.token() > LAST_TOKEN.try_into().unwrap()),
            Attempt::Held(contention) => panic!("{contention:?}"),
        }
    }
}

#[tokio::test]
async fn leases_from_before_a_restart_end() {
    let scene = Scene::new();
    let whole = lease("whole", Mode::Exclusive);
    scene.insert(&whole, None, NOW + 5_000_000, 0);

    let backend = scene.backend("another boot").await;

    assert!(!backend.inspect(whole.key()).await.unwrap().is_held());
}

/// Each call of the earlier version reads the table of partitions. When the file is opened, the
/// earlier version creates all tables if this table is missing.
#[tokio::test]
async fn processes_of_the_earlier_version_refuse_the_converted_file() {
    let scene = Scene::new();
    let earlier = scene.open();
    let text = "SELECT token FROM leasehold_stripe WHERE stripe = 7";
    let read = |connection: &Connection| connection.query_row(text, [], |row| row.get::<_, i64>(0));
    assert_eq!(read(&earlier), Ok(LAST_TOKEN));

    scene.backend("boot").await;

    assert!(read(&earlier).unwrap_err().to_string().contains("no such table"));
    let created = earlier.execute_batch(&format!("BEGIN; {EARLIER} COMMIT;"));
    assert!(created.unwrap_err().to_string().contains("leasehold_host already exists"));
}

#[tokio::test]
async fn an_invalid_row_leaves_the_file_as_it_was() {
    let scene = Scene::new();
    scene.insert(&lease("whole", Mode::Exclusive), None, NOW + 5_000_000, 0);
    scene.open().execute("UPDATE leasehold_lease SET fingerprint = 'word'", []).unwrap();

    let clock = || Duration::from_micros(NOW.try_into().unwrap());
    let config = SqliteConfig::new(scene.path()).unwrap();
    let config = config.host(Host::new("machine", "boot", clock));
    let error = SqliteBackend::connect_with(config).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let rows = "SELECT count(*) FROM leasehold_lease";
    let left: i64 = scene.open().query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1);
}
