//! Tests with a server whose wall clock jumps. Redis uses this clock for the expiry of leases and
//! queue entries.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{
    Attempt, Claim, Contention, Lease, LockBackend, Mode, Patience, Release, Renewal,
};
use leasehold_testbed::{Pace, Redis, RedisOptions};

use super::connect;
use crate::Backend;

const TTL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

async fn start() -> (Redis, Backend) {
    let redis = RedisOptions::new().clock(Pace::Running).start().await;
    let backend = connect(&redis.url()).await.unwrap();
    (redis, backend)
}

fn lease() -> Lease {
    Lease::new(&LockKey::new("job").unwrap(), TTL)
}

fn permit() -> Lease {
    lease().with_mode(Mode::Units { units: 1, limit: 1 })
}

/// Returns the token of a claim that must be granted.
async fn token(backend: &Backend, lease: &Lease) -> u64 {
    match backend.acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => grant.token(),
        Attempt::Held(contention) => panic!("held: {contention:?}"),
    }
}

async fn refusal(backend: &Backend, claim: &Claim) -> Contention {
    match backend.acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => panic!("granted: {grant:?}"),
        Attempt::Held(contention) => contention,
    }
}

#[tokio::test]
async fn a_jump_past_the_ttl_ends_a_lease_and_its_holder_is_told() {
    let (redis, backend) = start().await;
    let (before, after) = (lease(), lease());
    let first = token(&backend, &before).await;

    redis.clock().advance(TTL + Duration::from_secs(1));

    let second = token(&backend, &after).await;
    assert!(second > first, "{second} after {first}");
    assert_eq!(backend.renew(&before).await.unwrap(), Renewal::Taken);
    assert_ne!(backend.release(&before).await.unwrap(), Release::Released);
    assert_eq!(backend.release(&after).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_jump_within_the_ttl_takes_no_more_than_itself() {
    let (redis, backend) = start().await;
    let held = lease();
    token(&backend, &held).await;

    redis.clock().advance(TTL / 2);

    let left = refusal(&backend, &Claim::new(lease())).await.retry_after().unwrap();
    assert!(left <= TTL / 2 && left > TTL / 4, "{left:?}");
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    let left = refusal(&backend, &Claim::new(lease())).await.retry_after().unwrap();
    assert!(left > TTL * 3 / 4, "{left:?}");
}

#[tokio::test]
async fn a_jump_back_frees_no_lock_and_the_next_renewal_mends_its_end() {
    let (redis, backend) = start().await;
    let held = lease();
    token(&backend, &held).await;

    redis.clock().set_back(HOUR);

    let left = refusal(&backend, &Claim::new(lease())).await.retry_after().unwrap();
    assert!(left > HOUR, "{left:?}");
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    let left = refusal(&backend, &Claim::new(lease())).await.retry_after().unwrap();
    assert!(left <= TTL, "{left:?}");
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn tokens_increase_over_jumps_in_both_directions() {
    let (redis, backend) = start().await;
    let mut last = 0;
    for jump in 0..6 {
        let held = lease();
        let token = token(&backend, &held).await;
        assert!(token > last, "{token} after {last}, at jump {jump}");
        last = token;
        backend.release(&held).await.unwrap();
        if jump % 2 == 0 { redis.clock().set_back(HOUR) } else { redis.clock().advance(HOUR / 2) }
    }
}

#[tokio::test]
async fn a_jump_past_the_patience_of_a_queue_lets_others_in_and_a_jump_back_does_not() {
    for (back, served) in [(false, true), (true, false)] {
        let (redis, backend) = start().await;
        let (held, waits, comes) = (lease(), lease(), lease());
        token(&backend, &held).await;
        let queued = |lease: &Lease| Claim::new(lease.clone()).with_patience(Patience::Queues(TTL));
        refusal(&backend, &queued(&waits)).await;

        let clock = redis.clock();
        if back {
            clock.set_back(HOUR);
        } else {
            clock.advance(TTL * 2);
        }
        backend.release(&held).await.unwrap();

        let is_granted = async |lease: &Lease| {
            let attempt = backend.acquire(&queued(lease)).await.unwrap();
            matches!(attempt, Attempt::Granted(_))
        };
        assert_eq!(is_granted(&comes).await, served, "back: {back}");
        assert_eq!(is_granted(&waits).await, !served, "back: {back}");
    }
}

#[tokio::test]
async fn permits_end_with_a_jump_forward_and_stay_with_a_jump_back() {
    let (redis, backend) = start().await;
    let (before, after) = (permit(), permit());
    token(&backend, &before).await;

    redis.clock().set_back(HOUR);
    refusal(&backend, &Claim::new(after.clone())).await;
    assert_eq!(backend.renew(&before).await.unwrap(), Renewal::Renewed);

    redis.clock().advance(TTL * 2);
    token(&backend, &after).await;
    assert_ne!(backend.renew(&before).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&after).await.unwrap(), Release::Released);
}
