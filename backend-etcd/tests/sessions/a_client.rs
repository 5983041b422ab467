//! A client and its leases.

use super::*;

async fn requests_to_keep_alive(etcd: &Etcd) -> f64 {
    etcd.metric(0, r#"grpc_server_msg_received_total{grpc_method="LeaseKeepAlive"}"#).await
}

#[tokio::test]
async fn renews_a_thousand_locks_of_one_ttl_by_one_request() {
    let etcd = Etcd::start().await;
    let clock = ManualClock::new();
    let backend = backend_on(&etcd, &clock).await;
    let lease = |n| {
        let key = LockKey::new(format!("job-{n}")).unwrap();
        Lease::new(&key, LONG).with_tenure(Tenure::Kept)
    };
    let all: Vec<Lease> = (0..1_000).map(lease).collect();
    let claims = all.iter().cloned().map(Claim::new);
    let grants = claims.map(async |claim| backend.acquire(&claim).await);
    let grants: Vec<_> = stream::iter(grants).buffer_unordered(50).collect().await;
    assert!(grants.iter().all(|it| matches!(it, Ok(Attempt::Granted(_)))), "{grants:?}");
    let before = requests_to_keep_alive(&etcd).await;
    clock.advance(Duration::from_secs(1));

    let renewals = backend.renew_all(&all).await;

    assert!(renewals.iter().all(|it| matches!(it, Ok(Renewal::Renewed))), "{renewals:?}");
    assert_eq!(requests_to_keep_alive(&etcd).await - before, 1.0);
    assert_eq!(leases(&store(&etcd).await).await.len(), 1);
}

#[tokio::test]
async fn has_one_lease_for_each_ttl() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), LockOptions::new().ttl(TTL)).await;
    let longer = client.options().ttl(TTL * 2);

    let _short = hold(&client, 5).await;
    let mutex = client.mutex("long").unwrap().with_options(longer).unwrap();
    let _long = mutex.lock().await.unwrap();

    assert_eq!(leases(&store).await.len(), 2);
}

#[tokio::test]
async fn believes_in_a_lock_no_longer_than_the_lease_it_hangs_on() {
    let etcd = Etcd::start().await;
    let clock = ManualClock::new();
    let backend = backend_on(&etcd, &clock).await;
    let ttl_of = async |name: &str| {
        let lease = Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept);
        match backend.acquire(&Claim::new(lease)).await.unwrap() {
            Attempt::Granted(grant) => grant.ttl(),
            Attempt::Held(contention) => panic!("{contention:?}"),
        }
    };
    ttl_of("first").await;
    let passed = Duration::from_secs(1);

    // The rest of the session is long enough, so that the client does not renew it for a lock more.
    clock.advance(passed);
    let left = ttl_of("second").await;

    assert_eq!(left, Some(LONG - passed));
}

#[tokio::test]
async fn that_goes_away_frees_everything() {
    measure(async || {
        let etcd = Etcd::start().await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let store = store(&etcd).await;
        let url = format!("etcd://{}", proxy.address());
        let client = client(&url, LockOptions::new().ttl(TTL)).await;
        let guards = hold(&client, 20).await;
        assert_eq!(keys(&store).await, 20);

        proxy.set_network_fault(NetworkFault::BlackHole);
        let (stalls, start) = (Stalls::watch(), Instant::now());
        until("all is free", async || keys(&store).await == 0).await;

        // The server looks for leases that have ended twice a second.
        stalls.in_time("all is free", start.elapsed(), TTL + Duration::from_secs(2))?;
        assert!(guards.iter().all(|guard| !guard.is_held()));
        assert_eq!(leases(&store).await, Vec::<i64>::new());
        Ok(())
    })
    .await;
}
