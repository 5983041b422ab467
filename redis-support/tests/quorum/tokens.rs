//! Tests of the order of tokens while members are killed and restarted with or without their data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Member as _, StoreId};
use leasehold_quorum::Quorum;
use leasehold_redis::RedisBackend;
use leasehold_testbed::{Pace, RedisOptions, until, until_some};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::servers::{Servers, grant, lease, member};

/// The maximum TTL. A short TTL lets a wiped member vote again soon.
const TTL: Duration = Duration::from_secs(1);

/// The minimum difference between the clocks of two members. Tokens that depended only on the
/// clocks would decrease whenever the majority changes.
const APART: Duration = Duration::from_secs(20);

/// Starts servers whose clocks differ. The clock of each server is ahead of the clock of the
/// previous server.
async fn servers_apart(count: u32) -> Servers {
    let options = RedisOptions::new().append_only().clock(Pace::Running);
    let servers = Servers::start(count as usize, &options).await;
    for (number, redis) in (0..).zip(&servers.0) {
        redis.clock().advance(APART * number);
    }
    servers
}

#[tokio::test]
async fn tokens_increase_while_members_are_killed_restarted_and_wiped() {
    let mut servers = servers_apart(5).await;
    servers.quorum(TTL).establish().await.unwrap();
    let tokens: Arc<Mutex<Vec<u64>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let quorum = servers.quorum(TTL);
        tasks.spawn(lock_and_release(quorum, Arc::clone(&tokens), Arc::clone(&stop)));
    }

    for round in 0..10 {
        let (number, is_wiped) = (round % 5, round >= 5);
        let redis = &mut servers.0[number];
        if is_wiped {
            redis.wipe();
        } else {
            redis.kill();
        }
        let before = tokens.lock().await.len();
        until("the others grant", async || tokens.lock().await.len() > before + 50).await;
        servers.0[number].restart().await;
        servers.has_vote(number).await;
        let before = tokens.lock().await.len();
        until("all of them grant", async || tokens.lock().await.len() > before + 50).await;
    }
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;

    let tokens = tokens.lock().await;
    let back = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(back, None, "of {} grants", tokens.len());
}

/// Records the token of each grant while the key is held.
async fn lock_and_release(
    quorum: Quorum<RedisBackend>,
    tokens: Arc<Mutex<Vec<u64>>>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        let lease = lease("job", TTL);
        match grant(&quorum, &lease).await {
            Ok(Some(grant)) => tokens.lock().await.push(grant.token()),
            Ok(None) => sleep(Duration::from_micros(fastrand::u64(..3_000))).await,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        drop(quorum.release(&lease).await);
    }
}

/// A trace of the model that shows why it is not sufficient for members to wait after a data loss.
/// A gets the votes of members 1 and 2. Then member 1 loses its data and returns. B would get the
/// votes of members 1 and 3, with a smaller token.
#[tokio::test]
async fn a_wiped_member_needs_the_floor_of_a_majority_of_the_others() {
    let mut servers = servers_apart(3).await;
    let quorum = servers.quorum(TTL);
    quorum.establish().await.unwrap();
    // The clock of member 2 is ahead, and member 3 is down when the token is granted.
    servers.0[1].clock().advance(APART * 10);
    servers.0[2].kill();
    let a = lease("job", TTL);
    let of_a = granted(&quorum, &a).await;
    servers.0[0].wipe();
    servers.0[0].restart().await;
    drop(quorum.release(&a).await);
    servers.0[1].kill();
    servers.0[2].restart().await;

    // After the quarantine, the members would grant a smaller token to B.
    until_some("the wait is over", async || {
        let status = member(&servers.0[0].url()).status(StoreId::new()).await;
        status.ok().filter(|status| status.age() > TTL * 2)
    })
    .await;
    for number in [0, 2] {
        let bare = member(&servers.0[number].url());
        let other = lease("other", TTL);
        let attempt = bare.acquire(&Claim::new(other.clone())).await;
        let Attempt::Granted(grant) = attempt.unwrap() else { panic!("it is free") };
        assert!(grant.token() < of_a, "member {number} does not show anything");
        bare.release(&other).await.unwrap();
    }
    let b = servers.quorum(TTL);
    for _ in 0..5 {
        let error = grant(&b, &lease("job", TTL)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(servers.value(0, "job").await, "$-1");
        assert_eq!(servers.value(2, "job").await, "$-1");
    }

    servers.0[1].restart().await;
    assert!(granted(&b, &lease("job", TTL)).await > of_a);
}

/// Returns the token of a grant, as soon as a majority responds.
async fn granted(quorum: &Quorum<RedisBackend>, lease: &Lease) -> u64 {
    until_some("it is granted", async || grant(quorum, lease).await.ok().flatten()).await.token()
}
