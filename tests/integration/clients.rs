//! Two client crates of one store share its locks: a lock that one takes, the other sees, waits for and hears of.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::LockBackend;
use leasehold::retry::Retry;
use leasehold::{LockClient, LockKey, LockOptions, LossReason, TryLockError};
use leasehold_testbed::{ClusterOptions, Redis, RedisSentinel, patiently, until};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than any test: a wait that lasts this long ended without news.
const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);

/// The same servers, with one client crate and with the other.
async fn clients(url: &str) -> [LockClient; 2] {
    let connect = async |client| {
        let url = patiently(&format!("{url}?client={client}"));
        let backend: Arc<dyn LockBackend> = leasehold::backend::connect(&url).await.unwrap();
        let told = LockOptions::new().retry(Retry::unlimited().every(LONG));
        LockClient::builder(backend).options(told).build().unwrap().into_dyn()
    };
    [connect("redis").await, connect("fred").await]
}

/// The commands by which clients ask for locks.
const SCRIPTS: [&str; 2] = ["eval", "evalsha"];

/// Asks for `lock` in the background, and returns once the servers have refused it, from when on they tell of a release.
async fn waiting<T: Send + 'static>(
    scripts_run: &impl AsyncFn() -> u64,
    lock: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let before = scripts_run().await;
    let waits = tokio::spawn(lock);
    until("it was asked for", async || scripts_run().await > before).await;
    waits
}

async fn share_locks(url: &str, scripts_run: impl AsyncFn() -> u64) {
    let clients = clients(url).await;
    assert_eq!(
        clients.each_ref().map(|client| client.backend().capabilities().name()),
        ["redis", "fred"]
    );
    let [first, second] = &clients;
    for (holder, other) in [(first, second), (second, first)] {
        mutexes(holder, other, &scripts_run).await;
        permits(holder, other, &scripts_run).await;
        a_fair_line(holder, other, &scripts_run).await;
    }
}

async fn mutexes(holder: &LockClient, other: &LockClient, scripts_run: &impl AsyncFn() -> u64) {
    let guard = holder.mutex("job").unwrap().lock().await.unwrap();
    let key = LockKey::new("job").unwrap();
    assert!(matches!(other.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    assert_eq!(other.admin().inspect(&key).await.unwrap().holders().len(), 1);

    let mutex = other.mutex("job").unwrap();
    let waits = waiting(scripts_run, async move { mutex.lock().await.unwrap() }).await;
    let token = guard.token().number();
    guard.release().await.unwrap();
    let next = timeout(SOON, waits).await.expect("it is told").unwrap();
    assert!(next.token().number() > token);

    // Ended by the other one.
    assert_eq!(holder.admin().force_release(&key, "test").await.unwrap().ended().len(), 1);
    assert_eq!(timeout(SOON, next.lost()).await.expect("it is told"), Some(LossReason::Vanished));
}

async fn permits(holder: &LockClient, other: &LockClient, scripts_run: &impl AsyncFn() -> u64) {
    let theirs = holder.semaphore("permits", 3).unwrap().acquire(2).await.unwrap();
    let semaphore = other.semaphore("permits", 3).unwrap();
    let ours = semaphore.try_acquire(1).await.expect("one is left");
    assert!(matches!(semaphore.try_acquire(1).await, Err(TryLockError::Busy(_))));

    let waits = waiting(scripts_run, async move { semaphore.acquire(2).await.unwrap() }).await;
    theirs.release().await.unwrap();
    timeout(SOON, waits).await.expect("it is told").unwrap().release().await.unwrap();
    ours.release().await.unwrap();
}

async fn a_fair_line(holder: &LockClient, other: &LockClient, scripts_run: &impl AsyncFn() -> u64) {
    let fair = |client: &LockClient| {
        let options = client.options().fair(true);
        client.mutex("line").unwrap().with_options(options).unwrap()
    };
    let guard = fair(holder).lock().await.unwrap();
    let first = fair(other);
    let first = waiting(scripts_run, async move { first.lock().await.unwrap() }).await;
    let key = LockKey::new("line").unwrap();
    // The last claim does not overtake, though its own client brings its news.
    let last = fair(holder);
    let last = waiting(scripts_run, async move { last.lock().await.unwrap() }).await;
    guard.release().await.unwrap();

    let first = timeout(SOON, first).await.expect("it is told").unwrap();
    assert!(!last.is_finished());
    first.release().await.unwrap();
    timeout(SOON, last).await.expect("it is told").unwrap().release().await.unwrap();
    assert!(other.admin().inspect(&key).await.unwrap().holders().is_empty());
}

#[tokio::test]
async fn on_one_server() {
    let redis = Redis::start().await;

    share_locks(&redis.url(), async || redis.calls(&SCRIPTS).await).await;
}

#[tokio::test]
async fn on_the_server_that_sentinels_name() {
    let redis = RedisSentinel::start().await;

    share_locks(&redis.url(), async || redis.calls(0, &SCRIPTS).await).await;
}

#[tokio::test]
async fn on_a_cluster() {
    let redis = ClusterOptions::new().replicas(0).start().await;

    let scripts_run = async || {
        let mut scripts = 0;
        for node in 0..redis.nodes() {
            scripts += redis.calls(node, &SCRIPTS).await;
        }
        scripts
    };
    share_locks(&redis.url(), scripts_run).await;
}
