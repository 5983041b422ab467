//! Tests of reservations. A release reserves a mutex for the first waiter and notifies only this
//! waiter, which then acquires the mutex.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::admin::Inspection;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Patience, Release, StoreAdmin as _,
};
use leasehold_core::clock::ManualClock;
use leasehold_core::{
    LeaseState, LockClient, LockGuard, LockKey, LockOptions, LossReason, RenewalMode,
};
use leasehold_testbed::{FaultProxy, NetworkFault, Pace, Redis, RedisOptions, patiently, until};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::connect;
use super::rights::DOCUMENTED;
use super::steps::{assert_nothing_is_left, kept, lock, renewed, scripts_run, waiting};
use crate::{Backend, Config};

const SOON: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

async fn client(redis: &Redis) -> LockClient<Backend> {
    LockClient::new(connect(&redis.url()).await.unwrap())
}

/// Loads the scripts into the server, so that each later request runs one script.
async fn know_scripts(client: &LockClient<Backend>) {
    lock(client, "warm").await.release().await.unwrap();
}

/// Starts a waiter for `job`, and returns after its first attempt was refused.
async fn in_line(redis: &Redis, client: &LockClient<Backend>) -> JoinHandle<LockGuard> {
    let scripts = scripts_run(redis).await;
    let waits = waiting(client, "job");
    until("it waits", async || scripts_run(redis).await > scripts).await;
    // The server replies to this request after its reply to the waiter.
    client.backend().inspect(&key()).await.unwrap();
    waits
}

fn key() -> LockKey {
    LockKey::new("job").unwrap()
}

async fn served(waits: JoinHandle<LockGuard>) -> LockGuard {
    timeout(SOON, waits).await.expect("it is its turn").unwrap()
}

/// Passes a lock back and forth between two clients, and checks how many scripts run for each
/// acquisition.
async fn assert_each_takes(scripts: u64, redis: &Redis, clients: &[LockClient<Backend>; 2]) {
    know_scripts(&clients[0]).await;
    let mut guard = lock(&clients[0], "job").await;
    for n in 1..=20 {
        let waits = in_line(redis, &clients[n % 2]).await;
        let (before, token) = (scripts_run(redis).await, guard.token().number());

        guard.release().await.unwrap();
        guard = served(waits).await;

        assert_eq!(scripts_run(redis).await - before, scripts);
        assert!(guard.token().number() > token);
    }
    guard.release().await.unwrap();
    assert_nothing_is_left(redis).await;
}

/// Starts a server whose clock only advances when a test advances it.
async fn still_server() -> Redis {
    RedisOptions::new().clock(Pace::Still).start().await
}

async fn still_client(redis: &Redis) -> LockClient<Backend> {
    // The client's clock never advances, so it does not renew leases.
    let clock = ManualClock::new();
    let config = Config::from_url(&patiently(&redis.url())).unwrap().clock(clock.clone());
    let backend = Backend::connect_with(config).await.unwrap();
    LockClient::builder(backend).clock(clock).build().unwrap()
}

#[tokio::test]
async fn take_a_release_and_an_attempt() {
    let redis = still_server().await;
    let client = async || still_client(&redis).await;
    let clients = [client().await, client().await];
    assert_each_takes(2, &redis, &clients).await;
}

/// The waiter may have crashed without the server noticing.
#[tokio::test]
async fn to_waiters_that_do_not_answer_end_with_the_reservation() {
    let redis = still_server().await;
    let client = async || still_client(&redis).await;
    let (holding, stops) = (client().await, client().await);
    let (holding, stops) = (holding.backend(), stops.backend());
    let (holder, stopped) = (Claim::new(kept("job")), Claim::new(kept("job")));
    let stopped = stopped.with_patience(Patience::Waits);
    holding.acquire(&holder).await.unwrap();
    stops.acquire(&stopped).await.unwrap();

    holding.release(holder.lease()).await.unwrap();

    let is_free = async || {
        let next = Claim::new(kept("job"));
        matches!(holding.acquire(&next).await.unwrap(), Attempt::Granted(_))
    };
    redis.clock().advance(Patience::RESERVATION - MS);
    assert!(!is_free().await);
    redis.clock().advance(MS * 2);
    assert!(is_free().await);
}

#[tokio::test]
async fn to_leases_that_are_not_renewed_take_a_release_and_an_attempt() {
    let redis = Redis::start().await;
    // Renewals would change the number of requests.
    let unrenewed = LockOptions::new().ttl(LONG).renewal(RenewalMode::Off);
    let client = async || {
        let backend = connect(&redis.url()).await.unwrap();
        LockClient::builder(backend).options(unrenewed.clone()).build().unwrap()
    };
    let clients = [client().await, client().await];
    assert_each_takes(2, &redis, &clients).await;
}

#[tokio::test]
async fn lead_to_leases_of_the_whole_ttl() {
    let redis = still_server().await;
    let client = async || still_client(&redis).await;
    let (holder, next) = (client().await, client().await);
    let guard = lock(&holder, "job").await;
    let waits = in_line(&redis, &next).await;
    guard.release().await.unwrap();

    let guard = served(waits).await;

    let left = redis.command(&["PTTL", "lock:job"]).await;
    assert_eq!(left, format!(":{}", LockOptions::DEFAULT_TTL.as_millis()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn leave_the_key_at_no_time_to_others() {
    // The reservation is short, but cannot expire because the clock does not advance.
    let redis = still_server().await;
    let backend = async || connect(&redis.url()).await.unwrap();
    let (holding, waiting) = (backend().await, backend().await);
    let lease = || Lease::new(&key(), SOON * 10);
    let (holder, next) = (lease(), Claim::new(lease()).with_patience(Patience::Waits));
    holding.acquire(&Claim::new(holder.clone())).await.unwrap();
    let attempt = waiting.acquire(&next).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");

    holding.release(&holder).await.unwrap();

    let inspection = holding.inspect(&key()).await.unwrap();
    let holders: Vec<_> =
        Inspection::holders(&inspection).iter().map(|by| by.fingerprint()).collect();
    assert_eq!(holders, [next.id().fingerprint()]);
    let foreign = redis.command(&["SET", "lock:job", "foreign", "NX", "PX", "10000"]).await;
    assert_eq!(foreign, "$-1");
}

#[tokio::test]
async fn are_not_made_by_a_full_server_and_the_key_is_free() {
    let redis = Redis::start().await;
    let backend = async || connect(&redis.url()).await.unwrap();
    let (holding, waiting) = (backend().await, backend().await);
    let (holder, next) = (Lease::new(&key(), LONG), Lease::new(&key(), LONG));
    holding.acquire(&Claim::new(holder.clone())).await.unwrap();
    let next = Claim::new(next).with_patience(Patience::Waits);
    let attempt = waiting.acquire(&next).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    assert_eq!(holding.release(&holder).await.unwrap(), Release::Released);

    assert_eq!(redis.command(&["EXISTS", "lock:job"]).await, ":0");
}

#[tokio::test]
async fn are_given_back_by_waiters_that_have_gone() {
    let redis = Redis::start().await;
    let (holder, gone, next) = (client(&redis).await, client(&redis).await, client(&redis).await);
    for _ in 0..20 {
        let guard = lock(&holder, "job").await;
        let gives_up = in_line(&redis, &gone).await;
        let waits = in_line(&redis, &next).await;

        let (released, ()) = tokio::join!(guard.release(), async { gives_up.abort() });
        released.unwrap();

        served(waits).await.release().await.unwrap();
        drop(gives_up.await);
    }
}

#[tokio::test]
async fn are_lost_like_others() {
    let redis = Redis::start().await;
    let (holder, next) = (client(&redis).await, client(&redis).await);
    let guard = lock(&holder, "job").await;
    let waits = in_line(&redis, &next).await;
    guard.release().await.unwrap();
    let guard = served(waits).await;
    renewed(&guard).await;

    redis.command(&["DEL", "lock:job"]).await;

    timeout(SOON, guard.lost()).await.expect("it is told");
    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Vanished));
}

/// Even if notifications and replies are lost and waiters give up, there is only one holder at a
/// time, and tokens increase.
#[tokio::test]
async fn overlap_at_no_time_though_connections_break() {
    const CLIENTS: usize = 5;
    const BAD: [NetworkFault; 3] =
        [NetworkFault::Reset, NetworkFault::BlackHole, NetworkFault::HoldReplies];

    let redis = Redis::start().await;
    let (is_over, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let last_token = Arc::new(AtomicU64::new(0));
    let (mut proxies, mut clients) = (Vec::new(), JoinSet::new());
    for _ in 0..CLIENTS {
        let proxy = FaultProxy::start(redis.address()).await;
        let url = format!("redis://{}?timeout-ms=100", proxy.address());
        proxies.push(proxy);
        let backend = Backend::connect_lazily(Config::from_url(&url).unwrap());
        let mutex = LockClient::new(backend).mutex("job").unwrap();
        let (is_over, inside) = (Arc::clone(&is_over), Arc::clone(&inside));
        let last_token = Arc::clone(&last_token);
        clients.spawn(async move {
            let mut locked = 0;
            while !is_over.load(Ordering::SeqCst) {
                let guard = mutex.lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two hold it");
                let token = guard.token().number();
                let before = last_token.swap(token, Ordering::SeqCst);
                assert!(token > before, "{token} after {before}");
                sleep(Duration::from_millis(1)).await;
                assert!(guard.is_held());
                inside.store(false, Ordering::SeqCst);
                // If the outcome of the release is unknown, the client releases the lease again in
                // the background.
                drop(guard.release().await);
                locked += 1;
            }
            locked
        });
    }

    for (n, proxy) in proxies.iter().cycle().take(60).enumerate() {
        proxy.set_network_fault(BAD[n % BAD.len()]);
        sleep(Duration::from_millis(20)).await;
        proxy.set_network_fault(NetworkFault::None);
    }
    is_over.store(true, Ordering::SeqCst);

    let locked = timeout(SOON * 4, clients.join_all()).await.expect("every wait ends");
    assert!(locked.iter().all(|locked| *locked > 0), "{locked:?}");
}

#[tokio::test]
async fn without_a_right_to_them_are_asked_for() {
    for without in ["-publish", "-subscribe", "resetchannels"] {
        let user = format!("user locker on nopass {DOCUMENTED} {without}");
        let redis = RedisOptions::new().acl(user).start().await;
        let url = format!("redis://locker:any@{}", redis.address());
        let client = async || LockClient::new(connect(&url).await.unwrap());
        let (holder, next) = (client().await, client().await);
        know_scripts(&holder).await;
        let guard = lock(&holder, "job").await;
        let waits = in_line(&redis, &next).await;
        let scripts = scripts_run(&redis).await;

        guard.release().await.unwrap();
        served(waits).await.release().await.unwrap();

        let scripts = scripts_run(&redis).await - scripts;
        assert_eq!(scripts, 3, "{without}: it is released, asked for and released");
    }
}
