//! Leases after a release that failed.

use super::*;

fn kept(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL).with_tenure(Tenure::Kept)
}

#[tokio::test]
async fn the_others_move_to_another_lease_and_the_old_one_ends() {
    measure(async || {
        let etcd = Etcd::start().await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let store = store(&etcd).await;
        let url = format!("etcd://{}", proxy.address());
        let backend = EtcdBackend::connect(&url).await.unwrap();
        let (left_behind, moves) = (kept("left-behind"), kept("moves"));
        for lease in [&left_behind, &moves] {
            backend.acquire(&Claim::new(lease.clone())).await.unwrap();
        }
        let before = holder(&store, "moves").await.unwrap();
        proxy.set_network_fault(NetworkFault::Reset);
        backend.release(&left_behind).await.unwrap_err();
        proxy.set_network_fault(NetworkFault::None);

        assert_eq!(backend.renew(&moves).await.unwrap(), Renewal::Renewed);

        let after = holder(&store, "moves").await.unwrap();
        assert_ne!(after.lease(), before.lease());
        assert_eq!(after.create_revision(), before.create_revision());
        let (stalls, start) = (Stalls::watch(), Instant::now());
        until("the old lease ends, and its keys", async || {
            assert_eq!(backend.renew(&moves).await.unwrap(), Renewal::Renewed);
            !leases(&store).await.contains(&before.lease())
        })
        .await;
        stalls.in_time("the end of the lease", start.elapsed(), TTL + Duration::from_secs(2))?;
        assert!(holder(&store, "left-behind").await.is_none());
        assert_eq!(holder(&store, "moves").await.unwrap().lease(), after.lease());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn no_lock_of_the_client_is_lost() {
    let etcd = Etcd::start().await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let store = store(&etcd).await;
    let url = format!("etcd://{}", proxy.address());
    // Longer than a release that fails is tried for.
    let client = client(&url, LockOptions::new().ttl(Duration::from_secs(12))).await;
    let mut guards = hold(&client, 20).await;
    let before = holder(&store, "job-0").await.unwrap().lease();
    let tokens: Vec<_> = guards.iter().map(|guard| guard.token().clone()).collect();
    let released = guards.pop().unwrap();
    proxy.set_network_fault(NetworkFault::Reset);
    assert!(released.release().await.unwrap_err().is_retryable());
    proxy.set_network_fault(NetworkFault::None);

    until("the old lease ends", async || !leases(&store).await.contains(&before)).await;

    for (guard, token) in guards.iter().zip(&tokens) {
        assert_eq!(guard.state(), LeaseState::Held);
        assert_eq!(guard.token(), token);
    }
    assert_eq!(keys(&store).await, guards.len());
}
