//! Tokens in order, though members fail, one at a time.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Grant, Lease, LockBackend, Operation, Renewal, StoreAdmin,
};
use leasehold_core::{LockKey, RenewalMode, TryLockError};
use leasehold_quorum::Quorum;
use tokio::time::sleep;

use crate::servers::{MAX_TTL, Member, Server, Servers, State, TTL, key, lock_once};

/// A member that lost its data is kept out for so long.
const QUARANTINE: Duration = Duration::from_millis(20_500);

async fn granted(quorum: &Quorum<Member>, lease: &Lease) -> Grant {
    match quorum.acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => panic!("held: {contention:?}"),
    }
}

/// Has one server alone give tokens, so that its counter is ahead.
async fn run_ahead(server: &Server, grants: usize) {
    let elsewhere = LockKey::new("elsewhere").unwrap();
    for _ in 0..grants {
        let lease = Lease::new(&elsewhere, TTL);
        server.store.acquire(&Claim::new(lease.clone())).await.unwrap();
        server.store.release(&lease).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_increase_whichever_members_vote() {
    let servers = Servers::found(3).await;
    for (number, server) in servers.0.iter().enumerate() {
        run_ahead(server, 3_000 * number).await;
    }
    let mut last = 0;
    for silent in (0..3).cycle().take(60) {
        servers.0.iter().for_each(|server| server.set(State::Up));
        // A client that knows nothing of the tokens so far.
        let client = servers.client();
        lock_once(&client).await.map(|token| last = last.max(token)).unwrap();
        servers.0[silent].set(State::Silent);

        let token = lock_once(&client).await.unwrap();

        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test(start_paused = true)]
async fn majority_has_the_floor_before_the_grant_returns() {
    let servers = Servers::found(3).await;
    run_ahead(&servers.0[2], 5_000).await;
    let (quorum, lease) = (servers.quorum(), Lease::new(&key(), TTL));

    let grant = granted(&quorum, &lease).await;

    let mut raised = 0;
    for server in &servers.0 {
        raised += usize::from(
            server.store.inspect(&key()).await.unwrap().last_token() >= Some(grant.token()),
        );
    }
    assert!(grant.token() > 5_000, "the largest number counts");
    assert!(raised >= 2, "{raised} members have the minimum token");
    assert_eq!(quorum.renew(&lease).await.unwrap(), Renewal::Renewed);
}

#[tokio::test(start_paused = true)]
async fn client_that_knows_the_tokens_asks_once() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let raised = || servers.0.iter().map(|server| server.calls(Operation::Renew)).sum::<usize>();
    let lock_once = async || {
        // No two counters agree, as those that follow a clock.
        for (number, server) in servers.0.iter().enumerate() {
            run_ahead(server, 10 * number).await;
        }
        sleep(Duration::from_millis(1)).await;
        let (lease, before) = (Lease::new(&key(), TTL), raised());
        granted(&quorum, &lease).await;
        quorum.release(&lease).await.unwrap();
        raised() - before
    };

    assert!(lock_once().await > 0, "a client that knows nothing has the others raise their tokens");
    for _ in 0..20 {
        assert_eq!(lock_once().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_do_not_run_ahead_of_the_clock() {
    let servers = Servers::found(5).await;
    let quorum = servers.quorum();
    let mut last = 0;

    for _ in 0..2_000 {
        let lease = Lease::new(&key(), TTL);
        last = granted(&quorum, &lease).await.token();
        quorum.release(&lease).await.unwrap();
    }

    // Members ignore a wish that is further ahead than a second, and grant different numbers then.
    assert!(last < 500_000, "{last} µs in no time");
}

/// The trace of the model against a quarantine alone.
#[tokio::test(start_paused = true)]
async fn wiped_member_gives_no_token_twice() {
    let servers = Servers::found(3).await;
    let (quorum, lease) = (servers.quorum(), Lease::new(&key(), TTL));
    servers.0[2].set(State::Down);
    let first = granted(&quorum, &lease).await.token();
    servers.0[0].store.wipe();
    quorum.release(&lease).await.unwrap();
    servers.0[2].set(State::Up);
    servers.0[1].set(State::Down);
    let refused = async || {
        let claim = Claim::new(Lease::new(&key(), TTL));
        let error = quorum.acquire(&claim).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
    };

    refused().await;
    sleep(QUARANTINE).await;
    // The waiting time has passed, but another member is down, which may have the largest minimum
    // token.
    refused().await;
    servers.0[1].set(State::Up);
    // The member joins again without a grant that would raise its token.
    servers.quorum().establish().await.unwrap();
    servers.0[1].set(State::Down);

    let lease = Lease::new(&key(), TTL);
    assert!(granted(&servers.quorum(), &lease).await.token() > first);
}

#[tokio::test(start_paused = true)]
async fn wiped_member_helps_no_second_holder() {
    let servers = Servers::found(3).await;
    servers.0[2].set(State::Down);
    let client = servers.client();
    let unrenewed = client.options().renewal(RenewalMode::Off);
    let mutex = client.mutex(key()).unwrap().with_options(unrenewed).unwrap();
    let guard = mutex.lock().await.unwrap();
    servers.0[2].set(State::Up);
    // Two of three are free now, and the holder does not know yet.
    servers.0[0].store.wipe();
    let other = servers.client();

    for _ in 0..20 {
        sleep(TTL / 100).await;
        let second = other.mutex(key()).unwrap().try_lock().await;
        assert!(matches!(second, Err(TryLockError::Busy(_))), "two holders");
    }

    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn majority_that_lost_its_data_gives_no_votes() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[0].store.wipe();
    servers.0[1].store.wipe();
    let other = servers.client();

    sleep(MAX_TTL / 4).await;

    assert!(other.mutex(key()).unwrap().try_lock().await.is_err());
    drop(guard);
    sleep(QUARANTINE).await;
    lock_once(&other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tokens_increase_over_ten_thousand_grants_while_members_fail() {
    const GRANTS: u64 = 10_000;

    let servers = Servers::found(5).await;
    let mut clients = [servers.client(), servers.client(), servers.client()];
    let (mut last, mut rng) = (0, fastrand::Rng::with_seed(19));
    for number in 0..GRANTS {
        if number % 50 == 0 {
            let server = &servers.0[rng.usize(..5)];
            servers.0.iter().for_each(|server| server.set(State::Up));
            match rng.u8(..4) {
                0 => server.set(State::Silent),
                1 => server.set(State::Down),
                2 => server.store.wipe(),
                _ => run_ahead(server, 20).await,
            }
        }
        if number % 50 == 25 {
            // One at a time: a member is back in good standing before the next fails.
            servers.0.iter().for_each(|server| server.set(State::Up));
            lock_once(&clients[0]).await.map(|token| last = last.max(token)).unwrap();
            sleep(QUARANTINE).await;
            clients[rng.usize(..3)] = servers.client();
        }
        let token = lock_once(&clients[rng.usize(..3)]).await.unwrap();
        assert!(token > last, "grant {number}: {token} after {last}");
        last = token;
    }
}
