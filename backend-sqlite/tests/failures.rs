//! Files that are deleted, damaged, full or read-only, and machines that restart or are others.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Patience, Release, Renewal};
use leasehold_core::{
    Error, ErrorKind, LockClient, LockKey, LockOptions, LossReason, TryLockError,
};
use leasehold_sqlite::{Host, SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::Connection;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(10);

/// A file in a folder of its own, on a machine with a clock that the test moves.
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

    /// Past the backend.
    fn execute(&self, text: &str) {
        Connection::open(self.path()).unwrap().execute_batch(text).unwrap();
    }

    fn leases(&self) -> i64 {
        let connection = Connection::open(self.path()).unwrap();
        connection.query_row("SELECT count(*) FROM leasehold_lease", [], |row| row.get(0)).unwrap()
    }

    /// Moves all that lies in the file beside it into the file, as the last connection does when it is closed.
    fn settle(&self) {
        self.execute("PRAGMA journal_mode = DELETE");
    }

    /// Has the file need a newer version of SQLite to be written. To root no mode makes a file read-only.
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
    match backend.try_acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => Some(grant.token()),
        Attempt::Held(_) => None,
    }
}

async fn refusal(backend: &SqliteBackend, name: &str) -> ErrorKind {
    backend.try_acquire(&Claim::new(lease(name))).await.unwrap_err().kind()
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
async fn leases_end_by_the_clock_of_the_machine_and_not_before() {
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
async fn a_restart_of_the_machine_frees_all_keys_at_once() {
    let scene = Scene::new();
    let before = scene.backend().await;
    let (held, waits) = (lease("job"), lease("job"));
    let token = granted(&before, &held).await.unwrap();
    let claim = Claim::new(waits).with_patience(Patience::Queues(TTL));
    assert!(matches!(before.try_acquire(&claim).await.unwrap(), Attempt::Held(_)));
    assert_eq!(scene.leases(), 2);

    let after = scene.connect("machine", "another boot").await.unwrap();

    assert_eq!(scene.leases(), 0);
    assert!(granted(&after, &lease("job")).await.unwrap() > token);
}

#[tokio::test]
async fn the_leases_of_an_earlier_run_of_the_machine_are_not_shown_where_nothing_can_be_written() {
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
async fn tokens_go_on_after_a_loss_of_power_also_with_a_clock_that_is_behind() {
    let scene = Scene::new();
    let before = scene.backend().await;
    // As if they had been given out an hour from now.
    scene.execute(
        "UPDATE leasehold_stripe SET token = unixepoch() * 1000000 + 3600000000;\
         UPDATE leasehold_host SET ceiling = 0",
    );
    let token = granted(&before, &lease("job")).await.unwrap();

    // The commits since then are lost, except that for which it waited for the disk.
    scene.execute("UPDATE leasehold_stripe SET token = 0");
    let after = scene.connect("machine", "another boot").await.unwrap();

    assert!(granted(&after, &lease("job")).await.unwrap() > token);
}

#[tokio::test]
async fn a_file_of_another_machine_is_refused_and_left_alone() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    granted(&backend, &lease("job")).await.unwrap();

    let error = scene.connect("another machine", "another boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("another machine"), "{error}");
    assert_eq!(scene.leases(), 1);
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
async fn a_file_that_is_deleted_is_made_anew_and_its_holders_learn_of_it() {
    let scene = Scene::new();
    let options = LockOptions::new().ttl(Duration::from_secs(3));
    let client = LockClient::builder(scene.backend().await).options(options).build().unwrap();
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    for beside in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{beside}", scene.path().display())).unwrap();
    }

    let lost = timeout(TTL, guard.lost()).await.expect("its renewals find another file");
    assert_eq!(lost, Some(LossReason::Vanished));
    let other = scene.backend().await;
    assert!(granted(&other, &lease("job")).await.unwrap() > guard.token().number());
    assert!(matches!(client.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
}

#[tokio::test]
async fn stripes_that_are_missing_grant_nothing() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    scene.execute("DELETE FROM leasehold_stripe");

    assert_eq!(refusal(&backend, "job").await, ErrorKind::Refused);
    let both = [Claim::new(lease("one")), Claim::new(lease("other"))];
    let error = backend.try_acquire_all(&both).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(scene.leases(), 0);
    // Nor does it help to come again.
    assert_eq!(refusal(&scene.backend().await, "job").await, ErrorKind::Refused);
}

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let scene = Scene::new();
    scene.backend().await.close().await;
    scene.execute("UPDATE leasehold_host SET layout = 2");

    let error = scene.connect("machine", "boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
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
    // All but the first page, which lists the others.
    bytes[4096..].fill(0xa5);
    fs::write(scene.path(), bytes).unwrap();

    let error = scene.connect("machine", "boot").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
}

#[tokio::test]
async fn a_read_only_file_grants_nothing_and_says_so() {
    let scene = Scene::new();
    scene.backend().await.close().await;
    scene.make_read_only();

    let backend = scene.backend().await;
    let error = backend.try_acquire(&Claim::new(lease("job"))).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(!backend.inspect(lease("job").key()).await.unwrap().is_held());
}

#[tokio::test]
async fn paths_at_which_no_file_can_be_are_refused() {
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

/// Set in a process that a test starts: where its file is.
const FILE: &str = "LEASEHOLD_SQLITE_FILE";

/// The part of the process that may not write long files; it does nothing when it is run like any test.
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
        match backend.try_acquire(&Claim::new(lease.clone())).await {
            Ok(_) => granted.push(lease),
            Err(error) => break error,
        }
        assert!(granted.len() < 100_000, "there is space");
    };
    // Not in the file, or of unknown outcome: never a refusal, and never a grant.
    assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Indeterminate), "{error}");
    println!("refused after {}", granted.len());
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_and_neither_yes_nor_no() {
    let output = with_little_space(&Scene::new(), "has_little_space");

    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("refused after"), "{shown}");
}

/// Runs a test in a process that may not write long files.
fn with_little_space(scene: &Scene, test: &str) -> Output {
    // In units of 512 bytes or of a KiB, for each file.
    let limited = "ulimit -f 600; trap '' XFSZ; exec \"$0\" --exact \"failures::$1\" --nocapture";
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(env::current_exe().unwrap()).arg(test);
    command.env(FILE, scene.path()).output().unwrap()
}

/// The part of the process whose log may not become long; it does nothing when it is run like any test.
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
fn a_log_that_may_not_grow_begins_anew_and_the_next_renewal_succeeds() {
    let output = with_little_space(&Scene::new(), "renews_in_little_space");

    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains(" times"), "{shown}");
    assert!(!shown.contains("failed 0 times"), "there is space");
}

/// The part of the process that has the file mounted at another place; it does nothing when it is run like any test.
#[tokio::test]
async fn has_a_mounted_file() {
    let Some(path) = env::var_os(FILE) else { return };
    let error = SqliteBackend::connect_with(SqliteConfig::new(path).unwrap()).await.unwrap_err();
    println!("{error}");
}

#[tokio::test]
async fn a_file_that_is_mounted_without_its_folder_is_refused() {
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
async fn ids_of_leases_are_not_in_the_file() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    let (held, waits) = (lease("job"), lease("job"));
    granted(&backend, &held).await.unwrap();
    let claim = Claim::new(waits.clone()).with_patience(Patience::Queues(TTL));
    backend.try_acquire(&claim).await.unwrap();
    backend.renew(&held).await.unwrap();

    let mut bytes = Vec::new();
    for beside in ["", "-wal"] {
        bytes.extend(fs::read(format!("{}{beside}", scene.path().display())).unwrap());
    }

    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("job") && has(&held.id().fingerprint().to_string()), "nothing is there at all");
    for lease in [held, waits] {
        let secret = lease.id().secret();
        let random = u128::from_str_radix(&secret[..32], 16).unwrap().to_be_bytes();
        let as_uuid = format!("{}-{}", &secret[..8], &secret[8..12]);
        assert!(!has(&secret[..16]) && !has(&as_uuid));
        assert!(!bytes.windows(8).any(|window| window == &random[..8]));
    }
}

#[tokio::test]
async fn a_key_that_has_ended_leaves_nothing() {
    let scene = Scene::new();
    let backend = scene.backend().await;
    for n in 0..100 {
        granted(&backend, &lease(&format!("gone-{n}"))).await.unwrap();
    }
    assert_eq!(scene.leases(), 100);
    scene.advance(TTL);

    for n in 0..50 {
        let lease = lease(&format!("job-{n}"));
        granted(&backend, &lease).await.unwrap();
        assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
    }

    assert_eq!(scene.leases(), 0);
}
