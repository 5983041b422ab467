//! Tests of files that are deleted, damaged, full or read-only, and of files from before a restart or
//! from a different machine.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Mode, Patience, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::{
    Description, Error, ErrorKind, LockClient, LockKey, LockOptions, LossReason, TryLockError,
};
use leasehold_entry::Document;
use leasehold_sqlite::{Host, SqliteBackend, SqliteConfig};
use leasehold_testbed::{Folder, until};
use rusqlite::Connection;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(10);

/// A file in a temporary directory, on a machine whose clock the test advances.
struct Scene {
    folder: Folder,
    micros: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Self {
        let micros = Arc::new(AtomicU64::new(1_000_000));
        Self { folder: Folder::in_memory("sqlite-"), micros }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    fn advance(&self, time: Duration) {
        self.micros.fetch_add(time.as_micros().try_into().unwrap(), Ordering::SeqCst);
    }

    async fn connect(&self, machine: &str, boot: &str) -> Result<SqliteBackend, Error> {
        let micros = Arc::clone(&self.micros);
        let clock = move || Duration::from_micros(micros.load(Ordering::SeqCst));
        let config = SqliteConfig::new(self.path()).unwrap();
        SqliteBackend::connect_with(config.host(Host::new(machine, boot, clock))).await
    }

    async fn backend(&self) -> SqliteBackend {
        self.connect("machine", "boot").await.unwrap()
    }

    /// Runs statements without the backend.
    fn execute(&self, text: &str) {
        Connection::open(self.path()).unwrap().execute_batch(text).unwrap();
    }

    /// Returns the number of keys that are held or have a queue.
    fn locks(&self) -> i64 {
        let connection = Connection::open(self.path()).unwrap();
        connection.query_row("SELECT count(*) FROM leasehold_locks", [], |row| row.get(0)).unwrap()
    }

    /// Returns the number of rows, including rows of free keys.
    fn rows(&self) -> i64 {
        let connection = Connection::open(self.path()).unwrap();
        connection.query_row("SELECT count(*) FROM leasehold_key", [], |row| row.get(0)).unwrap()
    }

    /// Returns the document and the token of the only row.
    fn row(&self) -> (Option<String>, i64) {
        let connection = Connection::open(self.path()).unwrap();
        let text = "SELECT document, token FROM leasehold_key";
        connection.query_row(text, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    /// Moves the log into the file, as SQLite does when the last connection is closed.
    fn settle(&self) {
        self.execute("PRAGMA journal_mode = DELETE");
    }

    /// Makes SQLite treat the file as read-only, by requiring a newer version of SQLite for writes. A file
    /// mode would not prevent root from writing.
    fn make_read_only(&self) {
        self.settle();
        let mut bytes = fs::read(self.path()).unwrap();
        bytes[18] = 3;
        fs::write(self.path(), bytes).unwrap();
    }
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL)
}

async fn granted(backend: &SqliteBackend, lease: &Lease) -> Option<u64> {
    match backend.acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => Some(grant.token()),
        Attempt::Held(_) => None,
    }
}

async fn refusal(backend: &SqliteBackend, name: &str) -> ErrorKind {
    backend.acquire(&Claim::new(lease(name))).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_lazy_client_opens_a_file_that_comes_later() {
    let folder = Folder::in_memory("sqlite-");
    let later = folder.path().join("later");
    let config = SqliteConfig::new(later.join("locks.db")).unwrap();
    let client = LockClient::new(SqliteBackend::connect_lazily(config));
    let mutex = client.mutex("job").unwrap();
    fs::write(&later, "no folder").unwrap();
    assert!(mutex.try_lock().await.is_err());

    fs::remove_file(later).unwrap();

    mutex.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn leases_expire_by_the_clock_of_the_machine_and_not_earlier() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    let (first, second) = (lease("job"), lease("job"));
    granted(&backend, &first).await.unwrap();

    scene.advance(TTL - Duration::from_micros(1));
    assert_eq!(granted(&backend, &second).await, None);
    scene.advance(Duration::from_micros(1));
    assert!(granted(&backend, &second).await.is_some());
    assert_eq!(backend.renew(&first).await.unwrap(), Renewal::Taken);
}

#[tokio::test]
async fn a_restart_of_the_machine_frees_all_keys_immediately() {
    let scene = Scene::new();
    let before = scene.backend().await;
    let (held, waits) = (lease("job"), lease("job"));
    let token = granted(&before, &held).await.unwrap();
    let claim = Claim::new(waits).with_patience(Patience::Queues(TTL));
    assert!(matches!(before.acquire(&claim).await.unwrap(), Attempt::Held(_)));
    assert_eq!(scene.locks(), 1);

    let after = scene.connect("machine", "another boot").await.unwrap();

    assert_eq!(scene.locks(), 0);
    assert!(granted(&after, &lease("job")).await.unwrap() > token);
}

#[tokio::test]
async fn leases_from_before_a_restart_are_not_shown_in_a_read_only_file() {
    let scene = Scene::new();
    let before = scene.backend().await;
    granted(&before, &lease("job")).await.unwrap();
    before.close().await;
    scene.make_read_only();

    let same = scene.backend().await.inspect(lease("job").key()).await.unwrap();
    let after = scene.connect("machine", "another boot").await.unwrap();

    assert!(same.is_held());
    assert!(!after.inspect(lease("job").key()).await.unwrap().is_held());
}

#[tokio::test]
async fn tokens_increase_after_a_power_failure_even_if_the_clock_is_behind() {
    let scene = Scene::new();
    let before = scene.backend().await;
    // The tokens are one hour ahead of the clock.
    scene.execute(
        "UPDATE leasehold_host SET min_token = 2 * (unixepoch() + 3600) * 1000000, ceiling = 0",
    );
    let token = granted(&before, &lease("job")).await.unwrap();

    // All later commits are lost, except the raised ceiling, which was written to the disk.
    scene.execute("UPDATE leasehold_key SET token = 0; UPDATE leasehold_host SET min_token = 0");
    let after = scene.connect("machine", "another boot").await.unwrap();

    assert!(granted(&after, &lease("job")).await.unwrap() > token);
}

#[tokio::test]
async fn a_file_of_another_machine_is_refused_and_not_changed() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    granted(&backend, &lease("job")).await.unwrap();

    let error = scene.connect("another machine", "another boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("another machine"), "{error}");
    assert_eq!(scene.locks(), 1);
}

#[tokio::test]
async fn containers_of_one_machine_share_a_file() {
    let scene = Scene::new();
    let one = scene.connect("", "boot").await.unwrap();
    let other = scene.connect("container", "boot").await.unwrap();

    granted(&one, &lease("job")).await.unwrap();

    assert_eq!(granted(&other, &lease("job")).await, None);
}

#[tokio::test]
async fn a_deleted_file_is_created_again_and_its_holders_are_notified() {
    let scene = Scene::new();
    let options = LockOptions::new().ttl(Duration::from_secs(3));
    let client = LockClient::builder(scene.backend().await).options(options).build().unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    for beside in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{beside}", scene.path().display())).unwrap();
    }

    let lost = timeout(TTL, guard.lost()).await.expect("its renewals use the new file");
    assert_eq!(lost, Some(LossReason::Vanished));
    let other = scene.backend().await;
    assert!(granted(&other, &lease("job")).await.unwrap() > guard.token().number());
    assert!(matches!(client.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
}

#[tokio::test]
async fn a_file_without_the_row_of_its_machine_grants_nothing() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    scene.execute("DELETE FROM leasehold_host");

    assert_eq!(refusal(&backend, "job").await, ErrorKind::Refused);
    let both = [Claim::new(lease("one")), Claim::new(lease("other"))];
    let error = backend.acquire_all(&both).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(scene.locks(), 0);
    // A new connection does not help.
    let error = scene.connect("machine", "boot").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let scene = Scene::new();
    scene.backend().await.close().await;
    scene.execute("UPDATE leasehold_host SET layout = 3");

    let error = scene.connect("machine", "boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_and_not_changed() {
    let scene = Scene::new();
    let text = "dear diary, ".repeat(1000);
    fs::write(scene.path(), &text).unwrap();

    let error = scene.connect("machine", "boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(fs::read_to_string(scene.path()).unwrap(), text);
}

#[tokio::test]
async fn a_damaged_file_grants_nothing() {
    let scene = Scene::new();
    scene.backend().await.close().await;
    scene.settle();
    let mut bytes = fs::read(scene.path()).unwrap();
    // Damages all pages except the first page, which contains the schema.
    bytes[4096..].fill(0xa5);
    fs::write(scene.path(), bytes).unwrap();

    let error = scene.connect("machine", "boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
}

#[tokio::test]
async fn a_read_only_file_grants_nothing_and_the_error_says_why() {
    let scene = Scene::new();
    scene.backend().await.close().await;
    scene.make_read_only();

    let backend = scene.backend().await;
    let error = backend.acquire(&Claim::new(lease("job"))).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(!backend.inspect(lease("job").key()).await.unwrap().is_held());
}

#[tokio::test]
async fn paths_where_a_file_cannot_be_created_are_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.path()).unwrap();
    let nowhere = SqliteConfig::new("/proc/nowhere/locks.db").unwrap();

    let directory = scene.connect("machine", "boot").await.unwrap_err();
    let missing = SqliteBackend::connect_with(nowhere).await.unwrap_err();

    for (error, says) in [(directory, "not a regular file"), (missing, "directory /proc/nowhere")] {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// The environment variable with the path of the file, which a test sets for its child process.
const FILE: &str = "LEASEHOLD_SQLITE_FILE";

/// Runs in a child process that must not write long files. Otherwise, this test does nothing.
#[tokio::test]
async fn has_little_space() {
    let Some(path) = env::var_os(FILE) else { return };
    let config = SqliteConfig::new(path).unwrap();
    let backend = SqliteBackend::connect_with(config).await.unwrap();
    let held = lease("held");
    granted(&backend, &held).await.unwrap();
    let mut granted = Vec::new();
    let error = loop {
        let lease = lease(&format!("job-{}", granted.len()));
        match backend.acquire(&Claim::new(lease.clone())).await {
            Ok(_) => granted.push(lease),
            Err(error) => break error,
        }
        assert!(granted.len() < 100_000, "there is space");
    };
    // The error says that nothing was applied, or that the outcome is unknown.
    assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Indeterminate), "{error}");
    println!("refused after {}", granted.len());
}

#[test]
fn a_full_disk_is_an_error_and_not_an_outcome() {
    let output = with_little_space(&Scene::new(), "has_little_space");

    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("refused after"), "{shown}");
}

/// Runs a test in a process that must not write long files.
fn with_little_space(scene: &Scene, test: &str) -> Output {
    // The limit applies to each file. The unit is 512 bytes or 1 KiB, depending on the shell.
    let limited = "ulimit -f 600; trap '' XFSZ; exec \"$0\" --exact \"failures::$1\" --nocapture";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(env::current_exe().unwrap()).arg(test);
    command.env(FILE, scene.path()).output().unwrap()
}

/// Runs in a child process whose log must not grow. Otherwise, this test does nothing.
#[tokio::test]
async fn renews_in_little_space() {
    let Some(path) = env::var_os(FILE) else { return };
    let backend = SqliteBackend::connect_with(SqliteConfig::new(path).unwrap()).await.unwrap();
    let held = lease("held");
    granted(&backend, &held).await.unwrap();
    let mut failures = 0;
    for _ in 0..500 {
        if backend.renew(&held).await.is_err() {
            failures += 1;
            assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
        }
    }
    println!("failed {failures} times");
}

#[test]
fn a_log_that_cannot_grow_is_restarted_and_the_next_renewal_succeeds() {
    let output = with_little_space(&Scene::new(), "renews_in_little_space");

    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains(" times"), "{shown}");
    assert!(!shown.contains("failed 0 times"), "there is space");
}

/// Runs in a child process in which the file is mounted at a second path. Otherwise, this test does
/// nothing.
#[tokio::test]
async fn has_a_mounted_file() {
    let Some(path) = env::var_os(FILE) else { return };
    let error = SqliteBackend::connect_with(SqliteConfig::new(path).unwrap()).await.unwrap_err();
    println!("{error}");
}

#[tokio::test]
async fn a_file_that_is_mounted_without_its_directory_is_refused() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    granted(&backend, &lease("job")).await.unwrap();
    let place = scene.folder.path().join("mounted.db");
    let mounted = "touch \"$2\" && mount --bind \"$1\" \"$2\" && exec \"$0\" --exact failures::has_a_mounted_file --nocapture";

    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", mounted]);
    command.arg(env::current_exe().unwrap()).args([scene.path(), place.clone()]).env(FILE, place);
    let output = command.output().unwrap();

    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("mounted without the log"), "{shown}{output:?}");
}

#[tokio::test]
async fn the_file_does_not_contain_lease_ids() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    let (held, waits) = (lease("job"), lease("job"));
    granted(&backend, &held).await.unwrap();
    let claim = Claim::new(waits.clone()).with_patience(Patience::Queues(TTL));
    backend.acquire(&claim).await.unwrap();
    backend.renew(&held).await.unwrap();

    let mut bytes = Vec::new();
    for beside in ["", "-wal"] {
        bytes.extend(fs::read(format!("{}{beside}", scene.path().display())).unwrap());
    }

    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(
        has("job") && has(&held.id().fingerprint().to_string()),
        "the file does not contain the lease"
    );
    for lease in [held, waits] {
        let secret = lease.id().secret();
        let random = u128::from_str_radix(&secret[..32], 16).unwrap().to_be_bytes();
        let as_uuid = format!("{}-{}", &secret[..8], &secret[8..12]);
        assert!(!has(&secret[..16]) && !has(&as_uuid));
        assert!(!bytes.windows(8).any(|window| window == &random[..8]));
    }
}

#[tokio::test]
async fn rows_of_keys_that_nobody_uses_any_more_are_deleted() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    let held = lease("held");
    let token = granted(&backend, &held).await.unwrap();
    // 1,201 rows of free keys, whose last tokens are two minutes old. Half of the leases were released
    // (`ends` is negative), and half have expired.
    scene.execute(
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 1200) \
         INSERT INTO leasehold_key (key, token, spare, ends) \
             SELECT 'gone-' || n, 2 * (unixepoch() - 120) * 1000000 + n, 0, n % 2 - 1 FROM n",
    );

    for n in 0..2_500 {
        let lease = lease(&format!("job-{}", n % 10));
        granted(&backend, &lease).await.unwrap();
        assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
    }

    until("the rows are purged", async || scene.rows() == 11).await;
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    let shown = backend.inspect(held.key()).await.unwrap();
    assert_eq!(shown.holders()[0].token(), Some(token));
}

#[tokio::test]
async fn the_log_stays_short() {
    let scene = Scene::new();
    let backend = scene.backend().await;

    for n in 0..10_000 {
        let lease = lease(&format!("job-{}", n % 300));
        granted(&backend, &lease).await.unwrap();
        backend.release(&lease).await.unwrap();
    }

    let log = format!("{}-wal", scene.path().display());
    let length = fs::metadata(log).unwrap().len();
    // The thread shortens the log in the meantime, so the limit is generous.
    assert!(length < 16 << 20, "{length}");
}

#[tokio::test]
async fn a_key_whose_row_was_deleted_gets_a_larger_token() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    granted(&backend, &lease("job")).await.unwrap();
    // The clock was an hour ahead when the key was granted, and the key was released.
    scene.execute(
        "UPDATE leasehold_key SET ends = 0; \
         UPDATE leasehold_host SET min_token = 2 * (unixepoch() + 3600) * 1000000; \
         DELETE FROM leasehold_key",
    );

    let whole = granted(&backend, &lease("job")).await.unwrap();
    let permit = lease("permit").with_mode(Mode::READER);
    let permit = granted(&backend, &permit).await.unwrap();

    let scene = Connection::open(scene.path()).unwrap();
    let min_token: i64 =
        scene.query_row("SELECT min_token FROM leasehold_host", [], |row| row.get(0)).unwrap();
    let min_token = u64::try_from(min_token).unwrap();
    assert!(whole > min_token && permit > min_token, "{whole} {permit} {min_token}");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_replaced_only_by_a_forced_release() {
    for document in ["'{\"v\":2}'", "'no document'", "NULL"] {
        let scene = Scene::new();
        let backend = scene.backend().await;
        let (held, other) = (lease("job"), lease("job"));
        let token = granted(&backend, &held).await.unwrap();
        scene.execute(&format!("UPDATE leasehold_key SET tag = NULL, document = {document}"));
        let row = scene.row();

        let key = held.key();
        for kind in [
            backend.acquire(&Claim::new(other.clone())).await.unwrap_err().kind(),
            backend.renew(&held).await.unwrap_err().kind(),
            backend.release(&held).await.unwrap_err().kind(),
            backend.inspect(key).await.unwrap_err().kind(),
            backend.request_revocation(key, None).await.unwrap_err().kind(),
            backend.force_release(key, Some(held.id().fingerprint())).await.unwrap_err().kind(),
        ] {
            assert_eq!(kind, ErrorKind::WrongType);
        }
        assert_eq!(scene.row(), row);

        let forced = backend.force_release(key, None).await.unwrap();

        assert!(forced.min_token().unwrap() > token);
        assert!(granted(&backend, &other).await.unwrap() >= forced.min_token().unwrap());
    }
}

#[tokio::test]
async fn a_database_with_another_text_encoding_keeps_descriptions_and_the_order_of_keys() {
    let scene = Scene::new();
    scene.execute("PRAGMA encoding = 'UTF-16le'; CREATE TABLE application (text TEXT)");
    let backend = scene.backend().await;
    let description = Description::new("Zürich 東京 🦀").unwrap();
    for name in ["job/b", "job/a", "job", "other"] {
        let lease = lease(name).with_description(Some(description.clone()));
        granted(&backend, &lease).await.unwrap();
    }

    let page = backend.list("job/", None).await.unwrap();
    let shown = backend.inspect(&page.keys()[0]).await.unwrap();

    let names: Vec<_> = page.keys().iter().map(LockKey::as_str).collect();
    assert_eq!(names, ["job/a", "job/b"]);
    assert_eq!(shown.holders()[0].description(), Some(&description));
}

#[tokio::test]
async fn a_full_queue_accepts_no_further_claims_and_they_poll() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    granted(&backend, &lease("job")).await.unwrap();
    let waiting = || Claim::new(lease("job")).with_patience(Patience::Waits);
    let is_queued = async |claim: &Claim| match backend.acquire(claim).await.unwrap() {
        Attempt::Held(contention) => contention.queue_entry().is_some(),
        Attempt::Granted(_) => unreachable!("the key is held"),
    };
    let first = waiting();
    assert!(is_queued(&first).await);
    for _ in 1..Document::MAX_QUEUE {
        assert!(is_queued(&waiting()).await);
    }

    assert!(!is_queued(&waiting()).await);
    assert!(is_queued(&first).await, "it keeps its position");
    let shown = backend.inspect(first.key()).await.unwrap();
    assert_eq!(shown.waiting(), Some(128));
}
