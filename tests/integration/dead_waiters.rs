//! A waiter that dies keeps a key idle no longer than its store's page says.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use leasehold::backend::{Attempt, Claim, Lease, LockBackend, Patience};
use leasehold::memory::MemoryBackend;
use leasehold::{LockClient, LockKey};
use leasehold_testbed::{Etcd, Folder, MariaDb, Postgres, Redis, ZooKeeper, patiently, until};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

const KEY: &str = "dead-waiters";

/// The reservation of 250 ms, and a round trip.
const RESERVED: Duration = Duration::from_millis(300);

/// Far below the lifetimes of a queue entry and of a lease.
const FAR_BELOW_LIFETIMES: Duration = Duration::from_millis(1_500);

/// A queue entry lasts for 5 s. A store ends the entry at most 1 s later (etcd), or one tick of 500 ms later (ZooKeeper). The last second allows for a
/// busy machine.
const QUEUED: Duration = Duration::from_secs(5 + 1 + 1);

/// The number of transfers with a dead waiter, and the number of transfers with a live waiter.
const TRANSFERS: usize = 5;

/// The client that holds the lock, and two clients that wait for it, in the order of the queue.
struct Scene {
    holder: LockClient,
    front: LockClient,
    next: LockClient,
    key: LockKey,
}

/// How long the key was idle, and how long ago the waiter had died when the next one acquired the lock.
#[derive(Debug)]
struct Idle {
    since_release: Duration,
    since_death: Duration,
}

impl Scene {
    fn new([holder, front, next]: [LockClient; 3]) -> Self {
        Self { holder, front, next, key: LockKey::new(KEY).unwrap() }
    }

    async fn at(url: &str) -> Self {
        let connect = async || leasehold::connect(url).await.unwrap();
        Self::new([connect().await, connect().await, connect().await])
    }

    async fn until_waiting(&self, count: u64) {
        let admin = self.holder.admin();
        let waiting = async || admin.inspect(&self.key).await.unwrap().waiting();
        until("claims are queued", async || waiting().await == Some(count)).await;
    }

    /// Has a waiter die behind the holder and before the next waiter.
    async fn idle<W>(&self, waits: impl AsyncFn() -> W, dies: impl AsyncFn(W)) -> Idle {
        let guard = self.holder.mutex(&self.key).unwrap().lock().await.unwrap();
        let waiter = waits().await;
        self.until_waiting(1).await;
        let mutex = self.next.mutex(&self.key).unwrap();
        let next = tokio::spawn(async move { (mutex.lock().await.unwrap(), Instant::now()) });
        self.until_waiting(2).await;

        dies(waiter).await;
        let died_at = Instant::now();
        guard.release().await.unwrap();
        let released_at = Instant::now();
        let (guard, granted_at) = next.await.unwrap();

        guard.release().await.unwrap();
        Idle {
            since_release: granted_at.saturating_duration_since(released_at),
            since_death: granted_at - died_at,
        }
    }

    /// The time from the release to the grant of the next waiter, if the waiter before it acquires
    /// the lock and releases it immediately.
    async fn transfer(&self) -> Duration {
        let waits = async || {
            let front = self.front.mutex(&self.key).unwrap();
            tokio::spawn(async move { front.lock().await.unwrap().release().await.unwrap() });
        };
        self.idle(waits, async |()| {}).await.since_release
    }

    /// Asserts that a dead waiter adds at most 300 ms to the time of a transfer.
    ///
    /// A slow machine delays all transfers, so transfers with a dead waiter and with a live waiter
    /// take turns. The shortest time with a dead waiter is compared with the median with a live
    /// waiter. The difference of the longest times only has to be far below the lifetimes of a
    /// queue entry and of a lease.
    async fn assert_idle_briefly<W>(&self, waits: impl AsyncFn() -> W, dies: impl AsyncFn(W)) {
        let (mut dead, mut live) = (Vec::new(), Vec::new());
        for _ in 0..TRANSFERS {
            dead.push(self.idle(&waits, &dies).await.since_release);
            live.push(self.transfer().await);
        }
        dead.sort();
        live.sort();
        let is_brief = dead[0] <= live[TRANSFERS / 2] + RESERVED;
        let is_never_long = dead[TRANSFERS - 1] <= live[TRANSFERS - 1] + FAR_BELOW_LIFETIMES;
        assert!(
            is_brief && is_never_long,
            "with dead waiters {dead:?}, with live waiters {live:?}"
        );
    }

    /// Asserts that the next waiter is granted the lock after the queue entry of a dead waiter has
    /// expired.
    async fn assert_idle_until_expiry<W>(&self, waits: impl AsyncFn() -> W, dies: impl AsyncFn(W)) {
        let idle = self.idle(waits, dies).await;
        let live = self.transfer().await;
        assert!(idle.since_death <= live + QUEUED, "{idle:?}, with a live waiter {live:?}");
    }
}

/// Starts a process that waits for the key.
async fn start(url: &str) -> Child {
    // Cargo puts examples next to the directory of tests.
    let here = std::env::current_exe().unwrap();
    let program: PathBuf = here.ancestors().nth(2).unwrap().join("examples/one_shot");
    let mut command = Command::new(program);
    command.arg(KEY).env("LEASEHOLD_BACKEND", url).kill_on_drop(true).spawn().unwrap()
}

async fn kill(mut process: Child) {
    process.kill().await.unwrap();
}

/// Pauses a process. The server cannot distinguish a paused process from a running process. The process is killed when `stopped` is dropped.
fn stop(process: Child, stopped: &Mutex<Vec<Child>>) {
    let id = Pid::from_raw(process.id().unwrap().cast_signed()).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    stopped.lock().unwrap().push(process);
}

#[tokio::test]
async fn in_memory_keep_a_key_idle_for_300_ms_at_most() {
    let store = MemoryBackend::new();
    let client = || LockClient::new(store.clone()).into_dyn();
    let scene = Scene::new([client(), client(), client()]);
    // Nothing listens for the claim, and nothing asks for it again.
    let waits = async || {
        let lease = Lease::new(&scene.key, Duration::from_secs(30));
        let claim = Claim::new(lease).with_patience(Patience::Waits);
        assert!(matches!(store.acquire(&claim).await.unwrap(), Attempt::Held(_)));
    };

    scene.assert_idle_briefly(waits, async |()| {}).await;
}

#[tokio::test]
async fn on_redis_keep_a_key_idle_for_300_ms_at_most() {
    let redis = Redis::start().await;
    let url = patiently(&redis.url());
    let scene = Scene::at(&url).await;

    scene.assert_idle_briefly(async || start(&url).await, kill).await;
}

#[tokio::test]
async fn that_stand_still_on_redis_keep_a_key_idle_for_300_ms_at_most() {
    let redis = Redis::start().await;

    assert_idle_briefly_behind_stopped(&redis.url()).await;
}

/// Stops waiters, which a server cannot distinguish from waiters that are slow.
async fn assert_idle_briefly_behind_stopped(url: &str) {
    let url = patiently(url);
    let scene = Scene::at(&url).await;
    let stopped = Mutex::new(Vec::new());

    let stops = async |process| stop(process, &stopped);
    scene.assert_idle_briefly(async || start(&url).await, stops).await;
}

#[tokio::test]
async fn on_postgres_keep_a_key_idle_for_300_ms_at_most() {
    let postgres = Postgres::start().await;

    assert_idle_briefly_behind_stopped(&postgres.url()).await;
}

#[tokio::test]
async fn on_postgres_without_notifications_keep_a_key_idle_for_300_ms_at_most() {
    let postgres = Postgres::start().await;

    assert_idle_briefly_behind_stopped(&format!("{}?push=off", postgres.url())).await;
}

#[tokio::test]
async fn on_mariadb_keep_a_key_idle_for_300_ms_at_most() {
    let mariadb = MariaDb::start().await;

    assert_idle_briefly_behind_stopped(&mariadb.url()).await;
}

#[tokio::test]
async fn on_sqlite_keep_a_key_idle_for_300_ms_at_most() {
    let folder = Folder::in_memory("dead-waiters-");
    let url = patiently(&format!("sqlite:{}/locks.db", folder.path().display()));
    let scene = Scene::at(&url).await;

    scene.assert_idle_briefly(async || start(&url).await, kill).await;
}

#[tokio::test]
async fn on_etcd_keep_a_key_idle_for_the_lifetime_of_a_queue_entry_at_most() {
    let etcd = Etcd::start().await;
    let url = patiently(&etcd.url());

    Scene::at(&url).await.assert_idle_until_expiry(async || start(&url).await, kill).await;
}

#[tokio::test]
async fn on_zookeeper_keep_a_key_idle_for_the_lifetime_of_a_queue_entry_at_most() {
    let zookeeper = ZooKeeper::start().await;
    let url = patiently(&zookeeper.url());

    Scene::at(&url).await.assert_idle_until_expiry(async || start(&url).await, kill).await;
}
