//! A process that is stopped at any point of its work keeps its keys locked for one TTL at most. It
//! does not leave a transaction open that blocks other processes.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::LockBackend;
use leasehold_core::{ErrorKind, LockClient, LockOptions};
use leasehold_testbed::{MariaDb, Postgres, patiently};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The environment variable that contains the URL of the store for a process that a test starts.
const STORE: &str = "LEASEHOLD_STOPPED_STORE";

/// The TTL of the process that is stopped.
const TTL: Duration = Duration::from_millis(500);

/// The TTL of the other client. It is long, so that a busy machine can confirm the releases in
/// time.
const LONG_TTL: Duration = Duration::from_secs(30);

/// Waiters poll at least once per second. The limit is much longer, because the machine may be busy. A process that blocks
/// others blocks them for as long as the stop lasts, and the stop lasts until all keys are free.
const UNTIL_NOTICED: Duration = Duration::from_secs(10);

/// The process is stopped at this many random times. It has an open transaction for a large part of
/// the time.
const STOPS: usize = 8;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

async fn client(url: &str, ttl: Duration) -> LockClient<Arc<dyn LockBackend>> {
    client_on(leasehold::backend::connect(url).await.unwrap(), ttl)
}

fn client_on(backend: Arc<dyn LockBackend>, ttl: Duration) -> LockClient<Arc<dyn LockBackend>> {
    LockClient::builder(backend).options(LockOptions::new().ttl(ttl)).build().unwrap()
}

/// A process that is killed at the end of the test.
struct Process(Child);

impl Process {
    /// Starts a process, and waits until it acquires locks.
    fn start(url: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "stopped::works", "--nocapture"]).env(STORE, url);
        let mut process = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        assert!(
            lines.map_while(Result::ok).any(|line| line.ends_with("ready")),
            "the process has exited"
        );
        process
    }

    /// Stops the process, and returns when it is stopped.
    fn stop(&self) {
        kill_process(self.id(), Signal::STOP).unwrap();
        let still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.id()), still).unwrap().unwrap();
        assert!(status.stopped(), "the process has exited");
    }

    fn resume(&self) {
        kill_process(self.id(), Signal::CONT).unwrap();
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The work of the process that is stopped. A task for each key acquires and releases the lock.
#[tokio::test]
async fn works() {
    let Ok(url) = env::var(STORE) else { return };
    // The calls have the usual time limit, but a busy machine may not connect within this limit.
    let client = loop {
        match leasehold::backend::connect(&url).await {
            Ok(backend) => break client_on(backend, TTL),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    };
    let mut tasks = JoinSet::new();
    for key in KEYS {
        let mutex = client.mutex(key).unwrap();
        tasks.spawn(async move {
            loop {
                // A call fails if the process was stopped during it.
                if let Ok(guard) = mutex.lock().await {
                    drop(guard.release().await);
                }
            }
        });
    }
    println!("ready");
    tasks.join_all().await;
}

async fn assert_does_not_block_others(url: &str) {
    let process = Process::start(url);
    let client = client(&patiently(url), LONG_TTL).await;
    for _ in 0..STOPS {
        measure(async || {
            sleep(Duration::from_micros(fastrand::u64(20_000..60_000))).await;
            process.stop();

            let (stalls, stopped_at) = (Stalls::watch(), Instant::now());
            let takes = KEYS.map(async |key| {
                let guard = client.mutex(key).unwrap().lock().await.unwrap();
                (stopped_at.elapsed(), guard.release().await)
            });
            let (taken, released): (Vec<_>, Vec<_>) = join_all(takes).await.into_iter().unzip();

            process.resume();
            released.into_iter().for_each(Result::unwrap);
            let last = taken.into_iter().max().unwrap();
            stalls.in_time("the last key is free", last, TTL + UNTIL_NOTICED)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_does_not_block_others_on_postgres() {
    assert_does_not_block_others(&Postgres::start().await.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_does_not_block_others_on_mariadb() {
    assert_does_not_block_others(&MariaDb::start().await.url()).await;
}
