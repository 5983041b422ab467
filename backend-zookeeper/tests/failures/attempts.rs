//! Attempts that go wrong when their node is made already.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{Attempt, Claim, LockBackend, Mode, Patience, Release, StoreAdmin};
use leasehold_testbed::{FaultProxy, ZooKeeperOptions};

use super::lag::LateServer;
use super::{TICK, connect, connect_patiently, is_granted, kept};

/// Nothing listens there.
const NOWHERE: &str = "127.0.0.1:1";

/// A connection to a session lasts for a twelfth of that, so longer than the attempt.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_cannot_queue_with_the_node_that_it_made_leaves_the_outcome_open() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let server = servers.endpoints().remove(0);
    let late = LateServer::start(server.clone()).await;
    let (ours, others) = (connect([&late.address]).await, connect_patiently([server]).await);
    let (held, waits) = (kept("job").with_ttl(LONG), kept("job").with_ttl(LONG));
    let claim = Claim::new(waits.clone()).with_patience(Patience::Waits);

    let meanwhile = async {
        late.holds_a_creation().await;
        assert!(is_granted(&others, &held).await);
        // The session of holders has a connection, and the session of waiters has none.
        late.refuse();
        late.catch_up.send_replace(true);
        late.create.send_replace(true);
    };
    let ((), attempt) = tokio::join!(meanwhile, ours.acquire(&claim));

    let error = attempt.unwrap_err();
    assert!(error.may_have_been_applied(), "{error}");
    assert_eq!(others.inspect(held.key()).await.unwrap().waiting(), Some(1));
    assert_eq!(ours.release(&waits).await.unwrap(), Release::NotHeld);
    assert_eq!(others.inspect(held.key()).await.unwrap().waiting(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_refused_and_cannot_queue_leaves_nothing() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let server = servers.endpoints().remove(0);
    let proxy = FaultProxy::start(&server).await;
    let (ours, others) =
        (connect([proxy.address()]).await, connect_patiently([server.clone()]).await);
    let (held, waits) = (kept("job").with_ttl(LONG), kept("job").with_ttl(LONG));
    assert!(is_granted(&others, &held).await);
    // The session of holders has a connection then, and the session of waiters has none.
    assert!(is_granted(&ours, &kept("another").with_ttl(LONG)).await);

    proxy.lead_to(NOWHERE);
    let claim = Claim::new(waits.clone()).with_patience(Patience::Waits);
    let error = ours.acquire(&claim).await.unwrap_err();
    proxy.lead_to(server);

    assert!(!error.may_have_been_applied(), "{error}");
    assert_eq!(others.inspect(held.key()).await.unwrap().waiting(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_under_many_limits_are_all_granted_or_refused() {
    const ROUNDS: usize = 10;

    /// Fewer than the tries of an attempt, each of which loses against one that is granted.
    const LIMITS: u32 = 8;

    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let backend = connect_patiently(servers.endpoints()).await;
    let units = |limit| {
        let mode = Mode::Units { units: 1, limit };
        Claim::new(kept("job").with_ttl(LONG).with_mode(mode))
    };
    let first = units(LIMITS + 1);
    assert!(is_granted(&backend, first.lease()).await);

    for _ in 0..ROUNDS {
        let claims: Vec<Claim> = (2..2 + LIMITS).map(units).collect();
        let attempts = join_all(claims.iter().map(|claim| backend.acquire(claim))).await;

        for (claim, attempt) in claims.iter().zip(attempts) {
            if let Attempt::Granted(_) = attempt.unwrap() {
                assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::Released);
            }
        }
        let left = backend.inspect(first.lease().key()).await.unwrap();
        assert_eq!(left.holders().len(), 1, "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_is_granted_by_one_node_and_two_looks() {
    const ROUNDS: u32 = 20;

    /// A creation with a look before and after it, and a deletion. Now and then a ping, and a new connection to the session.
    const FEW: u32 = ROUNDS * 5;

    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let backend = connect_patiently(servers.endpoints()).await;
    let cycle = async || {
        let lease = kept("job").with_ttl(LONG);
        assert!(is_granted(&backend, &lease).await);
        assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
    };
    // It makes the connections and the lock.
    cycle().await;

    let before = servers.metric(0, "zk_packets_received").await;
    for _ in 0..ROUNDS {
        cycle().await;
    }
    let requests = servers.metric(0, "zk_packets_received").await - before;

    assert!(requests < FEW.into(), "{requests}");
}
