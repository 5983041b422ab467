//! Several processes on one file, some of which die or stop.

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

/// How late things may happen on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);

/// The TTL of the holder that is killed.
const HOLDS: Duration = Duration::from_secs(3);

const CONTEST: Contest = Contest::new(20);

/// Set in the processes that a test starts: the folder of the file.
const FOLDER: &str = "LEASEHOLD_SQLITE_FOLDER";

const PROCESSES: u32 = 8;

/// How often each process increments the counter.
const INCREMENTS: u32 = 80;

pub(crate) fn file(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

pub(crate) async fn client(folder: &Path, options: LockOptions) -> LockClient<SqliteBackend> {
    let config = SqliteConfig::new(file(folder)).unwrap();
    let backend = SqliteBackend::connect_with(config).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

/// The folder, in a process that a test started; nothing when this is run like any test.
pub(crate) fn folder_of_the_test() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

/// A process that runs one test of this program, and does not outlive the one that started it.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(test: &str, folder: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder);
        Self(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until it says that it is ready.
    pub(crate) fn until_ready(mut self) -> Self {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "it has ended");
        self
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits until it has ended without a failure.
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

/// Never ends by itself.
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
async fn claims_are_served_in_the_order_of_acknowledged_places() {
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

/// Reads and writes a counter under a lock, without which increments would be lost.
pub(crate) async fn increment(client: &LockClient<SqliteBackend>, folder: &Path) {
    let counter = folder.join("counter");
    let guard = client.mutex("counter").unwrap().lock().await.unwrap();
    let count: u32 = fs::read_to_string(&counter).unwrap().parse().unwrap();
    tokio::task::yield_now().await;
    fs::write(&counter, (count + 1).to_string()).unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn eight_processes_count_exactly_and_hear_of_no_locked_database() {
    let folder = Folder::in_memory("sqlite-");
    fs::write(folder.path().join("counter"), "0").unwrap();

    let start = |_| Process::start("processes::increments", folder.path());
    let processes: Vec<Process> = (0..PROCESSES).map(start).collect();
    for mut process in processes {
        // A process fails if any of its calls does.
        assert!(process.succeeds());
    }

    let count = fs::read_to_string(folder.path().join("counter")).unwrap();
    assert_eq!(count, (PROCESSES * INCREMENTS).to_string());
    let rows = "SELECT count(*) FROM leasehold_lease";
    let left: i64 = Connection::open(file(folder.path()))
        .unwrap()
        .query_row(rows, [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
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
async fn a_process_that_stops_within_a_transaction_costs_others_bounded_time() {
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
            // The thread gives up a quarter of the timeout before the caller does.
            let limit = SqliteConfig::DEFAULT_TIMEOUT / 8;
            stalls.steady("the thread's answer", asked_at.elapsed(), limit)?;
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
