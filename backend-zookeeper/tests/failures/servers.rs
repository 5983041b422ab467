//! Servers that stop, and others that take over.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, KeyWatch, LockBackend, Renewal, StoreAdmin, Subject,
};
use leasehold_core::{LockClient, LockOptions};
use leasehold_testbed::{ZooKeeperOptions, until_some};

use tokio::time::timeout;

use super::{TICK, TTL, connect, is_granted, kept};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_leader_and_a_server_that_stops() {
    let mut servers = ZooKeeperOptions::new().members(3).tick(TICK).start().await;
    let options = LockOptions::default().ttl(TTL * 3);
    let client = LockClient::builder(connect(servers.endpoints()).await).options(options);
    let client = client.build().unwrap();
    let other = connect(servers.endpoints()).await;
    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    let leader = servers.leader().await;
    servers.kill_member(leader);
    until_some("renewed", async || guard.extend(TTL * 3).await.ok()).await;

    assert!(guard.is_held());
    let next = kept("job");
    let granted = until_some("the others answer", async || {
        other.acquire(&Claim::new(next.clone())).await.ok()
    });
    assert!(matches!(granted.await, Attempt::Held(_)));
    servers.restart_member(leader).await;

    // The server that is spoken to stops in its tracks: the next is asked.
    for member in 0..3 {
        if member != servers.leader().await {
            servers.pause_member(member);
            until_some("renewed", async || guard.extend(TTL * 3).await.ok()).await;
            servers.resume_member(member);
        }
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(is_granted(&other, &next).await);
    assert_eq!(other.renew(&next).await.unwrap(), Renewal::Renewed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_gets_news_also_after_a_time_without_a_server() {
    async fn news(watch: &mut KeyWatch) {
        timeout(Duration::from_secs(60), watch.changed()).await.expect("there is news");
    }

    let mut servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let (holder, operator) =
        (connect(servers.endpoints()).await, connect(servers.endpoints()).await);
    let lease = kept("job");
    let mut watch = holder.watch(Subject::Lease(&lease));
    assert!(is_granted(&holder, &lease).await);
    operator.request_revocation(lease.key(), None).await.unwrap();
    news(&mut watch).await;

    // Meanwhile nothing listens at the server's port.
    servers.restart().await;
    until_some("ended", async || operator.force_release(lease.key(), None).await.ok()).await;

    news(&mut watch).await;
}
