//! Sessions that expire, and sessions on which something was left behind.

use std::fs;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Release, Renewal, StoreAdmin};
use leasehold_core::{ErrorKind, LockClient, LockKey, LockOptions};
use leasehold_testbed::{FaultProxy, NetworkFault, ZooKeeper, ZooKeeperOptions, until, until_some};
use tokio::time::{sleep, timeout};

use super::{TICK, TTL, connect, connect_patiently, is_granted, kept};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_expired_has_lost_its_leases_and_the_next_is_another() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let proxy = FaultProxy::start(servers.endpoints().remove(0)).await;
    let (ours, others) =
        (connect([proxy.address()]).await, connect_patiently(servers.endpoints()).await);
    let [taken, gone] = ["taken", "gone"].map(kept);
    assert!(is_granted(&ours, &taken).await && is_granted(&ours, &gone).await);

    proxy.set_network_fault(NetworkFault::BlackHole);
    let next = kept("taken");
    until("the session has expired", async || is_granted(&others, &next).await).await;
    let error = ours.renew(&taken).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    proxy.set_network_fault(NetworkFault::None);

    let renewed = until_some("answered", async || ours.renew(&taken).await.ok()).await;
    assert_eq!(renewed, Renewal::Taken);
    assert_eq!(ours.renew(&gone).await.unwrap(), Renewal::Vanished);
    assert!(is_granted(&ours, &kept("gone")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_release_failed_ends_though_others_of_its_client_are_renewed() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let proxy = FaultProxy::start(servers.endpoints().remove(0)).await;
    let (ours, others) =
        (connect([proxy.address()]).await, connect_patiently(servers.endpoints()).await);
    let [left, held] = ["left", "held"].map(kept);
    assert!(is_granted(&ours, &left).await && is_granted(&ours, &held).await);

    proxy.set_network_fault(NetworkFault::BlackHole);
    let error = ours.release(&left).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    proxy.set_network_fault(NetworkFault::None);

    let since = Instant::now();
    let next = kept("left");
    while !is_granted(&others, &next).await {
        assert!(since.elapsed() < TTL * 2, "others keep it alive");
        // Errors pass: the connection has just been cut.
        drop(ours.renew(&held).await);
        sleep(TTL / 10).await;
    }
    assert_eq!(ours.renew(&held).await.unwrap(), Renewal::Renewed);
    assert!(!is_granted(&others, &kept("held")).await);
    assert_eq!(ours.release(&left).await.unwrap(), Release::NotHeld);
    assert_eq!(ours.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_one_session_are_renewed_and_moved_in_few_requests() {
    const LEASES: usize = 300;

    /// Connections, a write that proves the majority, and reads and moves of more than a hundred leases each.
    const FEW: f64 = 20.0;

    /// All grants take no longer on a busy machine.
    const TTL: Duration = Duration::from_secs(45);

    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let backend = connect_patiently(servers.endpoints()).await;
    let leases: Vec<Lease> = (0..LEASES).map(|i| kept(&format!("job/{i}")).with_ttl(TTL)).collect();
    for lease in &leases {
        assert!(is_granted(&backend, lease).await);
    }
    let longer = leases.iter().map(|lease| lease.clone().with_ttl(TTL * 2)).collect();

    // A session has one TTL, so leases with another move.
    for leases in [leases, longer] {
        let before = servers.metric(0, "zk_packets_received").await;
        let renewed = backend.renew_all(&leases).await;
        let requests = servers.metric(0, "zk_packets_received").await - before;

        assert!(renewed.iter().all(|it| matches!(it, Ok(Renewal::Renewed))), "{renewed:?}");
        assert!(requests < FEW, "{requests}");
        assert_eq!(backend.list("job/", None).await.unwrap().keys().len(), 256, "a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_that_overlap_on_one_session_do_not_block_each_other() {
    /// The delay of a message in each direction.
    const DELAY: Duration = Duration::from_millis(10);

    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let proxy = FaultProxy::start(servers.endpoints().remove(0)).await;
    let backend = connect_patiently([proxy.address()]).await;
    let leases = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let leases = leases.map(|name| kept(name).with_ttl(Duration::from_secs(20)));
    for lease in &leases {
        assert!(is_granted(&backend, lease).await);
    }
    proxy.set_network_fault(NetworkFault::Slow(DELAY));

    // Each renewal starts while the previous one reconnects or uses its connection.
    let renewals = leases.iter().zip(0..).map(async |(lease, i)| {
        sleep(DELAY * i).await;
        backend.renew(lease).await
    });
    // The client waits up to 30 s for another user of the session.
    let renewed = timeout(Duration::from_secs(15), join_all(renewals)).await;

    let renewed = renewed.expect("a renewal waits for another one");
    assert!(renewed.iter().all(|it| matches!(it, Ok(Renewal::Renewed))), "{renewed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_doubt_are_settled_by_few_connections() {
    const CLAIMS: usize = 40;

    /// Two for each round of attempts, of which a busy machine takes some.
    const FEW: f64 = 20.0;

    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let proxy = FaultProxy::start(servers.endpoints().remove(0)).await;
    let backend = connect([proxy.address()]).await;
    // It begins the session.
    assert!(is_granted(&backend, &kept("first")).await);
    let claims: Vec<Claim> = (0..CLAIMS).map(|i| Claim::new(kept(&format!("job/{i}")))).collect();
    let acquire_all = || join_all(claims.iter().map(|claim| backend.acquire(claim)));

    proxy.set_network_fault(NetworkFault::BlackHole);
    let unknown = acquire_all().await;
    proxy.set_network_fault(NetworkFault::None);
    let before = servers.metric(0, "zk_connection_request_count").await;
    until("all are granted", async || {
        acquire_all().await.iter().all(|attempt| matches!(attempt, Ok(Attempt::Granted(_))))
    })
    .await;
    let connections = servers.metric(0, "zk_connection_request_count").await - before;

    assert!(unknown.iter().all(Result::is_err), "{unknown:?}");
    assert!(connections < FEW, "{connections}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_that_the_servers_do_not_allow_is_refused_with_the_range() {
    let options = ZooKeeperOptions::new().tick(TICK);
    let options = options.set("minSessionTimeout", "2000").set("maxSessionTimeout", "20000");
    let servers = options.start().await;
    let backend = connect_patiently(servers.endpoints()).await;
    let client = LockClient::builder(backend.clone());
    let client = client.options(LockOptions::default().ttl(TTL)).build().unwrap();

    for seconds in [1, 21] {
        let options = LockOptions::default().ttl(Duration::from_secs(seconds));
        let refused = client.mutex("job").unwrap().with_options(options).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("2s to 20s"), "{refused}");
    }
    // The store says so, too, to a caller that does not ask.
    let long = kept("job").with_ttl(TTL * 10);
    let error = backend.acquire(&Claim::new(long)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(!backend.inspect(&LockKey::new("job").unwrap()).await.unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_shortens_a_session_renews_nothing() {
    let mut servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let backend = connect_patiently(servers.endpoints()).await;
    let lease = kept("job");
    assert!(is_granted(&backend, &lease).await);

    allow_less_than_a_ttl(&servers);
    servers.restart().await;

    let renewed = until_some("answered", async || match backend.renew(&lease).await {
        Err(error) if error.is_retryable() => None,
        renewed => Some(renewed),
    });
    let error = renewed.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_allows_less_than_the_next_is_passed_over() {
    let mut servers = ZooKeeperOptions::new().members(3).tick(TICK).start().await;
    allow_less_than_a_ttl(&servers);
    servers.restart_member(0).await;

    let backend = connect_patiently(servers.endpoints()).await;

    let lease = kept("job");
    assert!(is_granted(&backend, &lease).await);
    assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Renewed);
}

/// Has the first server end sessions early from its next start on.
fn allow_less_than_a_ttl(servers: &ZooKeeper) {
    let file = servers.folder().join("member-0/zoo.cfg");
    let settings = fs::read_to_string(&file).unwrap();
    let longest = (TTL / 2).as_millis();
    fs::write(&file, format!("{settings}maxSessionTimeout={longest}\n")).unwrap();
}
