//! Tests with several processes on one file, some of which are killed or paused.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_conformance::fairness::Contest;
use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::{Error, ErrorKind, LockClient, LockOptions, RenewalMode, TryLockError};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

/// The tolerance for delays on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);

/// The TTL of a holder that is killed.
const HOLDS: Duration = Duration::from_secs(3);

const CONTEST: Contest = Contest::new(20);

/// The environment variable with the file's directory, which a test sets for the processes that the
/// test starts.
const FOLDER: &str = "LEASEHOLD_SQLITE_FOLDER";

const PROCESSES: u32 = 8;

/// The number of processes that start at the same time.
const CROWD: u32 = 64;

/// The number of times that each process increments the counter.
const INCREMENTS: u32 = 80;

pub(crate) fn file(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

pub(crate) async fn client(folder: &Path, options: LockOptions) -> LockClient<SqliteBackend> {
    let config = SqliteConfig::new(file(folder)).unwrap();
    let backend = SqliteBackend::connect_with(config).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Returns the file's directory in a process that a test has started, and `None` otherwise.
pub(crate) fn folder_of_the_test() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

/// A process that runs one test of this program. The process is killed when this value is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(test: &str, folder: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder);
        Self(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until the process prints `ready`.
    pub(crate) fn until_ready(mut self) -> Self {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        assert!(
            lines.map_while(Result::ok).any(|line| line.ends_with("ready")),
            "the process has ended"
        );
        self
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits until the process has ended, and returns whether the process has succeeded.
    pub(crate) fn succeeds(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Prints `ready`, and then does nothing until the process is killed.
pub(crate) async fn rest() {
    println!("ready");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn contends() {
    let connect = async |path: String| SqliteBackend::connect(&path).await.unwrap();
    CONTEST.take_turns(LockOptions::new().fair(true), connect).await;
}

#[tokio::test]
async fn claims_are_granted_in_the_order_of_their_queue_entries() {
    let folder = Folder::in_memory("sqlite-");
    let url = format!("sqlite:{}", file(folder.path()).display());

    CONTEST.assert_first_come_first_served("processes::contends", &url).await;
}

#[tokio::test]
async fn increments() {
    let Some(folder) = folder_of_the_test() else { return };
    let client = client(&folder, LockOptions::new()).await;
    for _ in 0..INCREMENTS {
        increment(&client, &folder).await;
    }
}

/// Increments the counter under a lock. Without the lock, increments would be lost.
pub(crate) async fn increment(client: &LockClient<SqliteBackend>, folder: &Path) {
    let counter = folder.join("counter");
    let guard = client.mutex("counter").unwrap().lock().await.unwrap();
    let count: u32 = fs::read_to_string(&counter).unwrap().parse().unwrap();
    tokio::task::yield_now().await;
    fs::write(&counter, (count + 1).to_string()).unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn eight_processes_count_exactly_and_get_no_error_from_a_busy_file() {
    let folder = Folder::in_memory("sqlite-");
    fs::write(folder.path().join("counter"), "0").unwrap();

    let start = |_| Process::start("processes::increments", folder.path());
    let processes: Vec<Process> = (0..PROCESSES).map(start).collect();
    for mut process in processes {
        // A process fails if any of its calls fails.
        assert!(process.succeeds());
    }

    let count = fs::read_to_string(folder.path().join("counter")).unwrap();
    assert_eq!(count, (PROCESSES * INCREMENTS).to_string());
    let rows = "SELECT count(*) FROM leasehold_locks";
    let left: i64 = Connection::open(file(folder.path()))
        .unwrap()
        .query_row(rows, [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

/// Opens the file and increments the counter once, in a process that a test has started.
#[tokio::test]
async fn increments_once() {
    let Some(folder) = folder_of_the_test() else { return };
    let config = SqliteConfig::new(file(&folder)).unwrap();
    let backend = loop {
        match SqliteBackend::connect_with(config.clone()).await {
            Ok(backend) => break backend,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    };
    let patient = LockOptions::new().outage_wait(Duration::from_secs(300));
    let client = LockClient::builder(backend).options(patient).build().unwrap();
    increment(&client, &folder).await;
}

#[test]
fn a_crowd_of_processes_that_start_together_all_get_the_lock() {
    let folder = Folder::in_memory("sqlite-");
    fs::write(folder.path().join("counter"), "0").unwrap();

    let start = |_| Process::start("processes::increments_once", folder.path());
    let processes: Vec<Process> = (0..CROWD).map(start).collect();
    for mut process in processes {
        assert!(process.succeeds());
    }

    let count = fs::read_to_string(folder.path().join("counter")).unwrap();
    assert_eq!(count, CROWD.to_string());
}

#[tokio::test]
async fn holds() {
    let Some(folder) = folder_of_the_test() else { return };
    let client = client(&folder, LockOptions::new().ttl(HOLDS)).await;
    let _guard = client.mutex("job").unwrap().lock().await.unwrap();
    rest().await;
}

#[tokio::test]
async fn a_holder_that_is_killed_frees_the_key_within_its_ttl() {
    measure(async || {
        let folder = Folder::in_memory("sqlite-");
        let holder = Process::start("processes::holds", folder.path()).until_ready();
        let client = client(folder.path(), LockOptions::new()).await;
        let mutex = client.mutex("job").unwrap();
        assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));

        holder.signal(Signal::KILL);
        let freed =
            Stalls::watch().promptly("the key is free", HOLDS + PROMPT, mutex.lock()).await?;

        freed.unwrap().release().await.unwrap();
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn writes() {
    let Some(folder) = folder_of_the_test() else { return };
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    rest().await;
}

#[tokio::test]
async fn a_process_that_is_paused_in_a_transaction_delays_other_processes_for_a_limited_time() {
    measure(async || {
        let folder = Folder::in_memory("sqlite-");
        let options = LockOptions::new().outage_wait(Duration::ZERO).renewal(RenewalMode::Off);
        let client = client(folder.path(), options).await;
        let held = client.mutex("held").unwrap().lock().await.unwrap();
        let stopped = Process::start("processes::writes", folder.path()).until_ready();
        stopped.signal(Signal::STOP);

        let mutex = client.mutex("job").unwrap();
        let (stalls, asked_at) = (Stalls::watch(), Instant::now());
        let bound = SqliteConfig::DEFAULT_TIMEOUT + PROMPT;
        let error =
            Error::from(stalls.promptly("the error", bound, mutex.try_lock()).await?.unwrap_err());

        if error.kind() == ErrorKind::Indeterminate {
            // The thread stops trying when a quarter of the caller's timeout is left.
            let limit = SqliteConfig::DEFAULT_TIMEOUT / 8;
            stalls.steady("the thread's reply", asked_at.elapsed(), limit)?;
        }
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        stopped.signal(Signal::KILL);
        let outlasts = client.options().outage_wait(Duration::from_secs(10));
        let mutex = client.mutex("job").unwrap().with_options(outlasts).unwrap();
        mutex.lock().await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
        Ok(())
    })
    .await;
}
