//! A reply is not a renewal: a follower answers a client, and is gone before the leader has heard of it.

use std::time::{Duration, Instant};

use leasehold_conformance::stalls::{Measured, Stalls, measure};
use leasehold_core::LockKey;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Renewal, Tenure};
use leasehold_testbed::{ZooKeeperOptions, until_some};
use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use tokio::time::sleep;

const TICK: Duration = Duration::from_millis(500);

const TTL: Duration = Duration::from_secs(5);

async fn granted_at(backend: &ZooKeeperBackend, key: &LockKey) -> Instant {
    let next = Claim::new(Lease::new(key, TTL));
    until_some("the lease has ended", async || match backend.acquire(&next).await {
        Ok(Attempt::Granted(_)) => Some(Instant::now()),
        Ok(Attempt::Held(_)) => None,
        Err(error) if error.is_retryable() => None,
        Err(error) => panic!("{error:?}"),
    })
    .await
}

async fn connect(server: &str) -> ZooKeeperBackend {
    let config = ZooKeeperConfig::from_servers([server]).unwrap().tick(TICK).unwrap();
    // As long as a renewal on a busy machine may take, and its lease has left.
    let config = config.timeout(TTL * 2 / 5).unwrap();
    until_some("connected", async || ZooKeeperBackend::connect_with(config.clone()).await.ok())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn belief_ends_before_a_leader_that_heard_nothing_grants_to_another() {
    measure(follower_that_dies_after_its_reply).await;
}

async fn follower_that_dies_after_its_reply() -> Measured {
    let stalls = Stalls::watch();
    let mut servers = ZooKeeperOptions::new().members(3).tick(TICK).start().await;
    let leader = servers.leader().await;
    let follower = (leader + 1) % 3;
    let addresses = servers.endpoints();
    // It knows no other server, and so it is cut off once that is gone.
    let (ours, others) = (connect(&addresses[follower]).await, connect(&addresses[leader]).await);
    let key = LockKey::new("job").unwrap();
    let lease = Lease::new(&key, TTL).with_tenure(Tenure::Kept);
    let granted = ours.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(_)), "{granted:?}");
    // Nearly all of the first TTL is over: a leader that had not heard of the renewal would end the lease soon.
    sleep(TTL * 3 / 5).await;

    let sent_at = Instant::now();
    let renewed = ours.renew(&lease).await;
    if !matches!(renewed, Ok(Renewal::Renewed)) {
        stalls.steady("the lease is renewed", TTL, TTL / 6)?;
        panic!("{renewed:?}");
    }
    servers.kill_member(follower);

    let held_for = granted_at(&others, &key).await - sent_at;
    assert!(held_for >= TTL, "it was granted after {held_for:?}, while its holder believed in it");
    // The leader rounds up to a tick, and looks once in a tick.
    stalls.in_time("the lease ends", held_for, TTL + TICK * 4)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_replaced_renews_nothing() {
    let options = ZooKeeperOptions::new().members(3).tick(TICK).set("syncLimit", "2");
    let servers = options.start().await;
    let former = servers.leader().await;
    let addresses = servers.endpoints();
    let ours = connect(&addresses[former]).await;
    let key = LockKey::new("job").unwrap();
    let lease = Lease::new(&key, TTL).with_tenure(Tenure::Kept);
    let granted = ours.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(_)), "{granted:?}");

    servers.pause_member(former);
    let leader = servers.leader().await;
    let others = connect(&addresses[leader]).await;
    // The new leader counts the session from its election.
    sleep(TTL * 3 / 5).await;
    let sent_at = Instant::now();
    let (renewed, taken_at) = tokio::join!(
        async {
            let renewing = ours.renew(&lease);
            servers.resume_member(former);
            renewing.await
        },
        granted_at(&others, &key)
    );

    let believes = matches!(renewed, Ok(Renewal::Renewed)) && taken_at - sent_at < TTL;
    assert!(!believes, "it was granted after {:?}, while its holder believed", taken_at - sent_at);
}
