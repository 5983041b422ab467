//! Servers without a majority.

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Attempt, Claim, LockBackend};
use leasehold_testbed::{ZooKeeperOptions, until, until_some};
use leasehold_zookeeper::ZooKeeperBackend;

use super::{TICK, connect, is_granted, kept};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_majority_is_unavailable_also_if_it_serves_readers() {
    let options = ZooKeeperOptions::new().members(3).tick(TICK);
    let options = options.property("readonlymode.enabled", "true");
    let mut servers = options.start().await;
    let backend = connect(servers.endpoints()).await;
    let held = kept("held");
    assert!(is_granted(&backend, &held).await);

    let rest = servers.leader().await;
    let others = [(rest + 1) % 3, (rest + 2) % 3];
    others.into_iter().for_each(|member| servers.kill_member(member));

    until("it is read-only", async || servers.ask(rest, "isro").await == "ro").await;
    for _ in 0..3 {
        let error = backend.acquire(&Claim::new(kept("job"))).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate),
            "{error}"
        );
        assert!(backend.renew(&held).await.unwrap_err().is_retryable());
    }
    let error = ZooKeeperBackend::connect(&servers.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("127.0.0.1:"), "{error}");

    servers.restart().await;
    let job = kept("job");
    let granted = until_some("a majority is back", async || {
        backend.acquire(&Claim::new(job.clone())).await.ok()
    });
    assert!(matches!(granted.await, Attempt::Granted(_)));
}
