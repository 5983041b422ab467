//! Many clients that compete for one key.

use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Operation, Patience};
use leasehold_core::retry::Retry;
use leasehold_core::{LockOptions, TryLockError};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};

use crate::servers::{Servers, State, TTL, key};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// How often each of `clients` acquires the lock within 12 s, if each holds it for 5 ms.
async fn turns(clients: usize) -> Vec<usize> {
    let servers = Servers::found(5).await;
    servers.0.iter().for_each(|server| server.set(State::Slow(MS(1))));
    let (mut tasks, ends) = (JoinSet::new(), Instant::now() + Duration::from_secs(12));
    for _ in 0..clients {
        let client = servers.client();
        tasks.spawn(async move {
            let options = LockOptions::new().ttl(TTL).hand_over(false);
            let mutex = client.mutex(key()).unwrap().with_options(options).unwrap();
            let mut turns = 0;
            while let Ok(guard) = timeout_at(ends, mutex.lock()).await {
                sleep(MS(5)).await;
                guard.unwrap().release().await.unwrap();
                turns += 1;
            }
            turns
        });
    }
    tasks.join_all().await
}

#[tokio::test(start_paused = true)]
async fn fifty_clients_get_at_least_half_the_turns_of_two() {
    let few: usize = turns(2).await.iter().sum();
    let many = turns(50).await;

    let total: usize = many.iter().sum();
    assert!(2 * total >= few, "50 clients got {total} turns, 2 clients {few}");
    assert!(!many.contains(&0), "turns per client: {many:?}");
}

/// Starts to wait for the key, without polling.
fn wait(servers: &Servers) -> JoinHandle<()> {
    let client = servers.client();
    tokio::spawn(async move {
        let rarely = Retry::unlimited().every(Duration::from_secs(600));
        let options = LockOptions::new().ttl(TTL).retry(rarely);
        let mutex = client.mutex(key()).unwrap().with_options(options).unwrap();
        mutex.lock().await.unwrap().release().await.unwrap();
    })
}

/// How many requests for votes each server has received.
fn asked(servers: &Servers) -> Vec<usize> {
    servers.0.iter().map(|server| server.calls(Operation::Acquire)).collect()
}

/// Another client asks for the lock, gets two votes and withdraws.
async fn withdraw(servers: &Servers) {
    let claim = Claim::new(Lease::new(&key(), TTL));
    let attempt = servers.quorum().acquire(&claim).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)));
    assert_eq!(servers.holding(&key()).await, 3);
    sleep(MS(100)).await;
}

#[tokio::test(start_paused = true)]
async fn withdrawn_claim_wakes_no_other_client() {
    let servers = Servers::found(5).await;
    let holder = Lease::new(&key(), TTL);
    for server in &servers.0[..3] {
        server.store.acquire(&Claim::new(holder.clone())).await.unwrap();
    }
    let waiting = wait(&servers);
    sleep(MS(100)).await;

    let before = asked(&servers);
    withdraw(&servers).await;

    let once: Vec<usize> = before.iter().map(|calls| calls + 1).collect();
    assert_eq!(asked(&servers), once);
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn deciding_member_alone_blocks_no_waiter() {
    let servers = Servers::found(5).await;
    let (holder, dead) = (Lease::new(&key(), TTL), Lease::new(&key(), TTL * 10));
    servers.0[0].store.acquire(&Claim::new(dead)).await.unwrap();
    for server in &servers.0[1..] {
        server.store.acquire(&Claim::new(holder.clone())).await.unwrap();
    }
    let client = servers.client();
    let waiting = tokio::spawn(async move { client.mutex(key()).unwrap().lock().await.unwrap() });
    sleep(Duration::from_secs(3)).await;

    for server in &servers.0[1..] {
        server.store.release(&holder).await.unwrap();
    }
    let released_at = Instant::now();
    let guard = waiting.await.unwrap();

    // It asks all members again before a third of its time in the queue is over.
    assert!(released_at.elapsed() <= Duration::from_secs(2), "{:?}", released_at.elapsed());
    guard.release().await.unwrap();
    assert_eq!(servers.holding(&key()).await, 1);
}

#[tokio::test(start_paused = true)]
async fn silent_deciding_member_blocks_no_waiter() {
    for state in [State::Down, State::Silent] {
        let servers = Servers::found(5).await;
        let (client, other) = (servers.client(), servers.client());
        let guard = client.mutex(key()).unwrap().lock().await.unwrap();
        let waiting =
            tokio::spawn(async move { other.mutex(key()).unwrap().lock().await.unwrap() });
        sleep(Duration::from_secs(3)).await;
        servers.0[0].set(state);

        guard.release().await.unwrap();
        let released_at = Instant::now();
        let next = waiting.await.unwrap();

        let after = released_at.elapsed();
        assert!(after <= Duration::from_secs(2), "{state:?}: {after:?}");
        next.release().await.unwrap();
    }
}

/// Starts servers. Four of them have granted a lease, and the deciding member is free.
async fn with_a_vote_that_is_kept() -> (Servers, Lease) {
    let servers = Servers::found(5).await;
    let holder = Lease::new(&key(), TTL);
    for server in &servers.0[1..] {
        server.store.acquire(&Claim::new(holder.clone())).await.unwrap();
    }
    (servers, holder)
}

#[tokio::test(start_paused = true)]
async fn client_with_the_vote_of_the_deciding_member_is_next() {
    let (servers, holder) = with_a_vote_that_is_kept().await;
    let client = servers.client();
    let first = tokio::spawn(async move { client.mutex(key()).unwrap().lock().await.unwrap() });
    sleep(MS(100)).await;
    assert_eq!(servers.holding(&key()).await, 5);
    let client = servers.client();
    let second = tokio::spawn(async move { client.mutex(key()).unwrap().lock().await.unwrap() });
    sleep(Duration::from_secs(2)).await;

    for server in &servers.0[1..] {
        server.store.release(&holder).await.unwrap();
    }
    let guard = first.await.unwrap();

    assert_eq!(servers.holding(&key()).await, 5);
    assert!(!second.is_finished());
    guard.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn caller_that_gives_up_leaves_no_vote() {
    for is_dropped in [false, true] {
        let (servers, _holder) = with_a_vote_that_is_kept().await;
        let client = servers.client();
        let mutex = client.mutex(key()).unwrap();
        let waiting = tokio::spawn(async move { mutex.try_lock_for(MS(500)).await });
        sleep(MS(100)).await;
        assert_eq!(servers.holding(&key()).await, 5);

        if is_dropped {
            waiting.abort();
        } else {
            assert!(matches!(waiting.await.unwrap(), Err(TryLockError::Busy(_))));
        }
        sleep(MS(100)).await;

        assert_eq!(servers.holding(&key()).await, 4, "dropped: {is_dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_that_dies_keeps_the_key_idle_for_its_reservation_only() {
    let servers = Servers::found(5).await;
    let (client, other) = (servers.client(), servers.client());
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    let dead = Claim::new(Lease::new(&key(), TTL)).with_patience(Patience::Waits);
    assert!(matches!(servers.quorum().acquire(&dead).await, Ok(Attempt::Held(_))));
    let next = tokio::spawn(async move { other.mutex(key()).unwrap().lock().await.unwrap() });
    sleep(MS(500)).await;

    guard.release().await.unwrap();
    let released_at = Instant::now();
    let next = next.await.unwrap();

    let idle = released_at.elapsed();
    assert!(idle <= MS(300), "{idle:?}");
    next.release().await.unwrap();
}
