//! Connections that break again and again while locks are used.

use super::*;

/// The network fault of each client in turn, and its duration in milliseconds.
const FAULTS: [(NetworkFault, u64); 8] = [
    (NetworkFault::Reset, 10),
    (NetworkFault::None, 60),
    (NetworkFault::HoldReplies, 250),
    (NetworkFault::Reset, 10),
    (NetworkFault::None, 40),
    (NetworkFault::BlackHole, 250),
    (NetworkFault::None, 90),
    (NetworkFault::HoldReplies, 20),
];

#[tokio::test]
async fn lets_in_one_holder_at_a_time_and_leaves_nothing() {
    const CLIENTS: usize = 4;
    const STORMY: Duration = Duration::from_secs(4);
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let protected = Arc::new(Protected::default());
    let calm = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    let mut faults = tokio::task::JoinSet::new();
    for n in 0..CLIENTS {
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let url = format!("etcd://{}?timeout-ms=200", proxy.address());
        let backend = EtcdBackend::connect_lazily(EtcdConfig::from_url(&url).unwrap());
        let options = LockOptions::new().ttl(Duration::from_secs(10));
        let client = LockClient::builder(backend).options(options).build().unwrap();
        let (protected, over) = (Arc::clone(&protected), Arc::clone(&over));
        clients.spawn(async move {
            let mutex = client.mutex("job").unwrap();
            while !over.load(Ordering::SeqCst) {
                // One in four gives up now and then.
                let patience = Duration::from_millis(if n == 0 { 300 } else { 20_000 });
                let Ok(guard) = timeout(patience, mutex.lock()).await else { continue };
                let guard = match guard {
                    Ok(guard) => guard,
                    // On a slow machine, no reply may arrive between two faults for a long time.
                    Err(error) => {
                        let kind = error.kind();
                        assert!(
                            matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate),
                            "{error}"
                        );
                        continue;
                    }
                };
                protected.increment(&guard).await;
                let_go(guard).await;
            }
            drop(client.shutdown(Duration::from_secs(5)).await);
        });
        let calm = Arc::clone(&calm);
        faults.spawn(async move {
            for (fault, millis) in FAULTS.iter().cycle().skip(2 * n) {
                if calm.load(Ordering::SeqCst) {
                    break;
                }
                proxy.set_network_fault(*fault);
                sleep(Duration::from_millis(*millis)).await;
            }
            proxy.set_network_fault(NetworkFault::None);
            proxy
        });
    }

    sleep(STORMY).await;
    until("some acquire the lock despite the faults", async || protected.count() >= CLIENTS).await;
    calm.store(true, Ordering::SeqCst);
    let proxies = faults.join_all().await;
    let before = protected.count();
    until("all get on again", async || protected.count() > before + 20).await;
    over.store(true, Ordering::SeqCst);
    timeout(Duration::from_secs(15), clients.join_all()).await.expect("all are served");

    protected.assert_tokens_in_order();
    until_there_are(&store, "job", 0).await;
    drop(proxies);
}
