//! Tests of the order in which waiting claims are served, and of how many claims a release wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use leasehold_core::backend::{Attempt, Claim, Contention, Lease, LockBackend, Patience, Release};
use leasehold_core::{LockClient, LockGuard, LockKey, LockOptions};
use leasehold_testbed::{Redis, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connect;
use super::steps::{assert_nothing_is_left, lock, scripts_run, waiting};
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(5);

async fn backend(redis: &Redis) -> Backend {
    connect(&redis.url()).await.unwrap()
}

fn claim() -> Claim {
    Claim::new(Lease::new(&LockKey::new("job").unwrap(), LONG))
}

fn waits() -> Claim {
    claim().with_patience(Patience::Waits)
}

async fn refusal(backend: &Backend, claim: &Claim) -> Contention {
    match backend.acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => panic!("{grant:?}"),
        Attempt::Held(contention) => contention,
    }
}

async fn is_granted(backend: &Backend, claim: &Claim) -> bool {
    matches!(backend.acquire(claim).await.unwrap(), Attempt::Granted(_))
}

#[tokio::test]
async fn come_before_the_last_holder() {
    let redis = Redis::start().await;
    let clients = [LockClient::new(backend(&redis).await), LockClient::new(backend(&redis).await)];
    let mut guard = lock(&clients[0], "job").await;
    for n in 0..20 {
        let (holder, other) = (&clients[n % 2], &clients[(n + 1) % 2]);
        let scripts = scripts_run(&redis).await;
        let next = waiting(other, "job");
        until("it waits", async || scripts_run(&redis).await > scripts).await;

        guard.release().await.unwrap();
        let again = waiting(holder, "job");

        guard = timeout(SOON, next).await.expect("it is its turn").unwrap();
        assert!(!again.is_finished());
        again.abort();
        assert!(again.await.is_err(), "a later claim is served later");
        let places = "lock:~queue:{*}job";
        until("it has left the queue", async || redis.command(&["KEYS", places]).await == "*0")
            .await;
    }
    guard.release().await.unwrap();
    assert_nothing_is_left(&redis).await;
}

/// Queues two claims behind a holder. The connection of the first queued claim has ended.
async fn behind_the_dead(redis: &Redis, url: &str, next: &Backend) -> (Claim, Claim) {
    let dying = connect(url).await.unwrap();
    let (holder, dead, second) = (claim(), waits(), waits());
    assert!(is_granted(next, &holder).await);
    for (backend, claim) in [(&dying, &dead), (next, &second)] {
        assert_eq!(refusal(backend, claim).await.queue_entry(), Some(SOON));
    }
    let clients = async || redis.command(&["CLIENT", "LIST"]).await.lines().count();
    let before = clients().await;
    drop(dying);
    until("its connection has ended", async || clients().await < before).await;
    (holder, second)
}

/// Releases `holder`. Returns whether `claim` is refused once more because of a claim ahead of it,
/// and is granted at the time when the refusal asks for a retry.
async fn is_granted_when_told(backend: &Backend, holder: &Claim, claim: &Claim) -> bool {
    let released_at = Instant::now();
    assert_eq!(backend.release(holder.lease()).await.unwrap(), Release::Released);
    let contention = match backend.acquire(claim).await.unwrap() {
        // This machine stalled for longer than the reservation.
        Attempt::Granted(_) => return released_at.elapsed() >= Patience::RESERVATION,
        Attempt::Held(contention) => contention,
    };
    let left = contention.retry_after().expect("it is told when to look");
    assert!(left <= Patience::RESERVATION, "{left:?}");
    // The server counts whole milliseconds of its own clock, so the test waits in real time.
    sleep(left + Duration::from_millis(2)).await;
    is_granted(backend, claim).await
}

#[tokio::test]
async fn pass_by_a_waiter_whose_connection_has_ended() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (holder, next) = behind_the_dead(&redis, &redis.url(), &backend).await;

    assert_eq!(backend.release(holder.lease()).await.unwrap(), Release::Released);

    assert!(is_granted(&backend, &next).await);
}

#[tokio::test]
async fn do_not_wait_for_the_dead() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let without_push = format!("{}?push=off", redis.url());
    let (holder, next) = behind_the_dead(&redis, &without_push, &backend).await;

    assert!(is_granted_when_told(&backend, &holder, &next).await);
}

#[tokio::test]
async fn wait_briefly_for_a_waiter_that_is_stopped() {
    let redis = Redis::start().await;
    // The connection of the waiter is open, but its caller does not retry.
    let (stopped, backend) = (backend(&redis).await, backend(&redis).await);
    let (holder, stops, next) = (claim(), waits(), waits());
    assert!(is_granted(&backend, &holder).await);
    refusal(&stopped, &stops).await;
    refusal(&backend, &next).await;

    assert!(is_granted_when_told(&backend, &holder, &next).await);
}

#[tokio::test]
async fn have_a_place_no_longer_than_their_ttl() {
    const SHORT: Duration = Duration::from_secs(1);

    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    assert!(is_granted(&backend, &claim()).await);
    let short = Lease::new(&LockKey::new("job").unwrap(), SHORT);

    let waits = Claim::new(short).with_patience(Patience::Waits);

    assert_eq!(refusal(&backend, &waits).await.queue_entry(), Some(SHORT));
}

/// The claim is tested at the front and far back in the queue.
#[tokio::test]
async fn keep_the_queue_for_as_long_as_their_places() {
    const LEFT: &str = "
        local time, ends = redis.call('TIME'), redis.call('ZSCORE', KEYS[2], KEYS[3])
        return {redis.call('PTTL', KEYS[1]), math.floor(ends - time[1] * 1000 - time[2] / 1000)}";

    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    assert!(is_granted(&backend, &claim()).await);
    let claims: Vec<Claim> = (0..40).map(|_| waits()).collect();
    join_all(claims.iter().map(|claim| refusal(&backend, claim))).await;
    let queues = redis.command(&["KEYS", "lock:~queue:*"]).await;
    let queue = queues.lines().last().unwrap();
    for claim in &claims {
        redis.command(&["PEXPIRE", queue, "1000"]).await;
        redis.command(&["ZADD", "lock:~crowd", "1", "lock:job"]).await;

        refusal(&backend, claim).await;

        let left = redis.command(&["EVAL", LEFT, "3", queue, "lock:~crowd", "lock:job"]).await;
        let left = left.lines().skip(1).map(|line| line.trim_start_matches(':').parse().unwrap());
        let place = LockOptions::PLACE_TTL.as_millis();
        assert!(left.clone().all(|left: u128| left > place), "{:?}", left.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn are_served_at_once_after_any_number_of_dead() {
    const DEAD: usize = 1_000;
    const DIE: &str = "
        for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
          redis.call('HSET', KEYS[1], id, cmsgpack.pack(1, 1, 1, 0))
        end";

    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let holder = claim();
    assert!(is_granted(&backend, &holder).await);
    let dead: Vec<Claim> =
        (0..DEAD).map(|_| claim().with_patience(Patience::Queues(LONG))).collect();
    join_all(dead.iter().map(|claim| refusal(&backend, claim))).await;
    backend.release(holder.lease()).await.unwrap();
    let places = redis.command(&["KEYS", "lock:~places:*"]).await;
    redis.command(&["EVAL", DIE, "1", places.lines().last().unwrap()]).await;

    assert!(is_granted(&backend, &waits()).await);
}

#[tokio::test]
async fn give_up_their_place_at_once() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (holder, gone, next) = (claim(), waits(), waits());
    assert!(is_granted(&backend, &holder).await);
    for claim in [&gone, &next] {
        refusal(&backend, claim).await;
    }
    backend.release(gone.lease()).await.unwrap();
    backend.release(holder.lease()).await.unwrap();

    assert!(is_granted(&backend, &next).await);
}

#[tokio::test]
async fn that_hold_it_already_and_do_not_know_are_told() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let holder = waits();
    assert!(is_granted(&backend, &holder).await);
    for _ in 0..5 {
        refusal(&backend, &waits()).await;
    }

    assert!(
        is_granted(&backend, &holder).await,
        "the reply to the first attempt may have been lost"
    );
}

#[tokio::test]
async fn are_let_in_where_there_is_no_memory_for_places() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let (holder, other) = (claim(), waits());
    assert!(is_granted(&backend, &holder).await);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    assert_eq!(refusal(&backend, &other).await.queue_entry(), None);
    backend.release(holder.lease()).await.unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;

    assert!(is_granted(&backend, &other).await);
}

/// Waits for one type of lock and returns the guard.
type Take = fn(LockClient<Backend>) -> BoxFuture<'static, LockGuard>;

/// Starts `clients` that wait while the first guard is held, until each has been served once.
/// Returns the number of scripts per client.
async fn scripts_per_client(
    clients: &[LockClient<Backend>],
    redis: &Redis,
    hold: Take,
    take: Take,
) -> usize {
    let guard = hold(LockClient::new(backend(redis).await)).await;
    let mut waiters = JoinSet::new();
    for client in clients {
        let scripts = scripts_run(redis).await;
        let taken = take(client.clone());
        waiters.spawn(async move { taken.await.release().await.unwrap() });
        until("it waits", async || scripts_run(redis).await > scripts).await;
    }
    let before = scripts_run(redis).await;

    guard.release().await.unwrap();
    timeout(SOON * 4, waiters.join_all()).await.expect("each has its turn");

    let scripts = scripts_run(redis).await - before;
    usize::try_from(scripts).unwrap() / clients.len()
}

fn mutex(client: LockClient<Backend>) -> BoxFuture<'static, LockGuard> {
    Box::pin(async move { client.mutex("job").unwrap().lock().await.unwrap() })
}

fn fair_mutex(client: LockClient<Backend>) -> BoxFuture<'static, LockGuard> {
    let options = client.options().fair(true);
    let mutex = client.mutex("job").unwrap().with_options(options).unwrap();
    Box::pin(async move { mutex.lock().await.unwrap() })
}

fn permit(client: LockClient<Backend>) -> BoxFuture<'static, LockGuard> {
    Box::pin(async move { client.semaphore("job", 1).unwrap().acquire(1).await.unwrap() })
}

fn reader(client: LockClient<Backend>) -> BoxFuture<'static, LockGuard> {
    Box::pin(async move { client.rw_lock("job").unwrap().read().await.unwrap() })
}

fn writer(client: LockClient<Backend>) -> BoxFuture<'static, LockGuard> {
    Box::pin(async move {
        let guard = client.rw_lock("job").unwrap().write().await.unwrap();
        guard.downgrade().await.unwrap()
    })
}

/// If each release woke all clients, each client would retry once for each client ahead of it,
/// which is half the number of clients on average.
const FEW: usize = 8;
const WAITERS: usize = 40;

#[tokio::test]
async fn of_other_processes_are_not_all_woken_by_a_release() {
    for (hold, take) in [
        (mutex as Take, mutex as Take),
        (fair_mutex, fair_mutex),
        (permit, permit),
        (writer, reader),
        (reader, writer),
    ] {
        let redis = Redis::start().await;
        let mut clients = Vec::new();
        for _ in 0..WAITERS {
            clients.push(LockClient::new(backend(&redis).await));
        }

        let scripts = scripts_per_client(&clients, &redis, hold, take).await;

        assert!(scripts <= FEW, "{scripts} scripts for each of {WAITERS} clients");
    }
}

#[tokio::test]
async fn of_one_process_are_not_all_woken_by_a_release() {
    for (hold, take) in
        [(fair_mutex as Take, fair_mutex as Take), (permit, permit), (reader, writer)]
    {
        let redis = Redis::start().await;
        let backend = backend(&redis).await;
        let clients: Vec<_> = (0..WAITERS).map(|_| LockClient::new(backend.clone())).collect();

        let scripts = scripts_per_client(&clients, &redis, hold, take).await;

        assert!(scripts <= FEW, "{scripts} scripts for each of {WAITERS} clients");
    }
}

/// Lets clients acquire the lock in turn until `until` completes, and counts the acquisitions.
async fn turns_while(url: &str, until: impl Future<Output = ()>) -> usize {
    let turns = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let client = LockClient::new(connect(url).await.unwrap());
        let turns = Arc::clone(&turns);
        clients.spawn(async move {
            loop {
                let guard = lock(&client, "job").await;
                turns.fetch_add(1, Ordering::Relaxed);
                guard.release().await.unwrap();
            }
        });
    }
    until.await;
    turns.load(Ordering::Relaxed)
}

#[tokio::test]
async fn look_within_the_reservation_where_there_is_no_push() {
    let redis = Redis::start().await;
    let backend = connect(&format!("{}?push=off", redis.url())).await.unwrap();
    assert!(is_granted(&backend, &claim()).await);

    for (ahead, claim) in [waits(), waits(), waits()].iter().enumerate() {
        let look = refusal(&backend, claim).await.retry_after().expect("it is told when to look");
        let most = Patience::RESERVATION / 10 * u32::try_from(ahead + 1).unwrap();
        assert!(look <= most, "{look:?} behind {ahead}");
    }
}

#[tokio::test]
async fn come_to_clients_that_do_not_see_the_queue() {
    let redis = Redis::start().await;
    let plain = async || {
        for _ in 0..3 {
            let set = ["SET", "lock:job", "plain", "NX", "PX", "20"];
            until("it has a turn", async || redis.command(&set).await == "+OK").await;
        }
    };

    let turns = turns_while(&redis.url(), plain()).await;

    assert!(turns > 3, "{turns}");
}
