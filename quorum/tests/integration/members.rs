//! Members that are down or silent: the time that they cost, and when the quorum asks them again.

use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Operation, StoreAdmin};
use leasehold_core::{ErrorKind, LockKey};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::servers::{Server, Servers, State, TTL, client_of, key, lock_once};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test(start_paused = true)]
async fn silent_member_costs_a_new_client_no_time() {
    let servers = Servers::found(3).await;
    servers.0[1].set(State::Silent);
    let started = Instant::now();

    lock_once(&servers.client()).await.unwrap();

    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn silent_majority_fails_an_establishment_within_two_seconds() {
    let servers = Servers::found(3).await;
    servers.0[1..].iter().for_each(|server| server.set(State::Silent));
    let started = Instant::now();

    let error = servers.quorum().establish().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn silent_member_delays_one_request_of_an_operator() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    servers.0[0].set(State::Silent);
    quorum.request_revocation(&key(), None).await.unwrap();
    let started = Instant::now();

    quorum.request_revocation(&key(), None).await.unwrap();

    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn member_that_was_down_votes_once_it_is_up() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    servers.0[0].set(State::Down);
    lock_once(&client).await.unwrap();
    servers.0[0].set(State::Up);
    lock_once(&client).await.unwrap();
    // A task looks at the member beside that call.
    sleep(MS(1)).await;

    let guard = client.mutex(key()).unwrap().lock().await.unwrap();

    assert_eq!(servers.holding(&key()).await, 3);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn votes_that_are_surely_given_back_leave_no_doubt() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let mine = Lease::new(&key(), TTL);
    assert!(matches!(quorum.acquire(&Claim::new(mine.clone())).await, Ok(Attempt::Granted(_))));
    quorum.release(&mine).await.unwrap();
    servers.0[1..].iter().for_each(|server| server.set(State::Down));

    let error = quorum.acquire(&Claim::new(Lease::new(&key(), TTL))).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn release_that_no_member_hears_is_surely_not_applied() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let lease = Lease::new(&key(), TTL);
    quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    for (down, kind) in [(2, ErrorKind::Indeterminate), (3, ErrorKind::Unavailable)] {
        servers.0[..down].iter().for_each(|server| server.set(State::Down));

        let error = quorum.release(&lease).await.unwrap_err();

        assert_eq!(error.kind(), kind, "{down} are down: {error}");
    }
}

/// Lets a member give so many tokens outside of the quorum.
async fn run_ahead(server: &Server, tokens: usize) -> u64 {
    let alone = Lease::new(&LockKey::new("alone").unwrap(), TTL);
    let mut last = 0;
    for _ in 0..tokens {
        let Ok(Attempt::Granted(grant)) = server.store.acquire(&Claim::new(alone.clone())).await
        else {
            panic!("it is free")
        };
        last = grant.token();
        server.store.release(&alone).await.unwrap();
    }
    last
}

#[tokio::test(start_paused = true)]
async fn min_token_is_raised_on_slow_members() {
    let servers = Servers::found(3).await;
    run_ahead(&servers.0[0], 10).await;
    servers.0.iter().for_each(|server| server.set(State::Slow(MS(20))));
    let client = servers.client();

    let guard = client.mutex(key()).unwrap().try_lock().await.unwrap();

    let raised: usize = servers.0.iter().map(|server| server.calls(Operation::Renew)).sum();
    assert!(raised > 0, "all members gave the same number");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn new_quorum_begins_above_the_tokens_of_each_member() {
    let servers = Servers::start(3);
    let before = run_ahead(&servers.0[2], 1_000).await;
    let quorum = servers.quorum();
    quorum.establish().await.unwrap();
    servers.0[2].set(State::Down);

    let token = lock_once(&client_of(quorum)).await.unwrap();

    assert!(token > before, "{token} after {before}");
}

#[tokio::test(start_paused = true)]
async fn forced_release_raises_members_to_the_largest_token() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    run_ahead(&servers.0[0], 10_000).await;

    let forced = client.admin().force_release(key(), "test").await.unwrap();

    let least = forced.min_token().unwrap();
    drop(guard);
    servers.0[0].set(State::Down);
    let token = lock_once(&servers.client()).await.unwrap();
    assert!(token >= least, "{token} after {least}");
}

#[tokio::test(start_paused = true)]
async fn grants_have_no_news_if_grants_of_members_have_none() {
    let servers = Servers::start(3);
    servers.0.iter().for_each(Server::announce_no_grant);
    let quorum = servers.quorum();

    let attempt = quorum.acquire(&Claim::new(Lease::new(&key(), TTL))).await.unwrap();

    let Attempt::Granted(grant) = attempt else { panic!("it is free") };
    assert!(!grant.has_news());
}

#[test]
fn that_has_no_vote_is_looked_at_by_another_runtime_if_one_stands_still() {
    let build = || Builder::new_current_thread().enable_all().build().unwrap();
    let (still, driven) = (build(), build());
    let servers = still.block_on(Servers::found(3));
    let (quorum, key) = (servers.quorum(), key());
    let claim = || Claim::new(Lease::new(&key, TTL));
    still.block_on(async {
        quorum.establish().await.unwrap();
        servers.0[2].set(State::Down);
        let lost = claim();
        quorum.acquire(&lost).await.unwrap();
        quorum.release(lost.lease()).await.unwrap();
        servers.0[2].set(State::Silent);
        // It begins a look, in whose midst the runtime stands still from now on.
        quorum.acquire(&lost).await.unwrap();
        quorum.release(lost.lease()).await.unwrap();
    });
    servers.0[2].set(State::Up);

    driven.block_on(async {
        let claim = claim();
        quorum.acquire(&claim).await.unwrap();
        for _ in 0..200 {
            if servers.holding(&key).await == 3 {
                return;
            }
            quorum.renew(claim.lease()).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the member gets no vote");
    });
}
