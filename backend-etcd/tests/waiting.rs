//! Claims that stand in line: their requests while nothing happens.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Contention, KeyWatch, Lease, LockBackend, Mode, Patience, Subject, Tenure,
};
use leasehold_core::{LockClient, LockKey};
use leasehold_etcd::EtcdBackend;
use leasehold_etcd::etcd_client::Client;
use leasehold_testbed::{Etcd, FaultProxy, patiently, until, until_some};
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(60);

async fn connect(etcd: &Etcd) -> EtcdBackend {
    EtcdBackend::connect(&patiently(&etcd.url())).await.unwrap()
}

fn lease() -> Lease {
    Lease::new(&LockKey::new("job").unwrap(), LONG).with_tenure(Tenure::Kept)
}

async fn attempt(backend: &EtcdBackend, claim: &Claim) -> Attempt {
    backend.acquire(claim).await.unwrap()
}

async fn refused(backend: &EtcdBackend, claim: &Claim) -> Contention {
    match attempt(backend, claim).await {
        Attempt::Held(contention) => contention,
        Attempt::Granted(grant) => panic!("{grant:?}"),
    }
}

/// Takes a place for `claim`, and waits until the server tells the claim of its turn.
async fn told(backend: &EtcdBackend, claim: &Claim) -> KeyWatch {
    let watch = backend.watch(Subject::Claim(claim));
    until("the claim is told", async || refused(backend, claim).await.woken_by().is_some()).await;
    watch
}

/// A mutex that is held, and the claims of two that wait for it and are told.
struct Line {
    etcd: Etcd,
    backend: EtcdBackend,
    holder: Lease,
    claims: [Claim; 2],
    watches: Vec<KeyWatch>,
}

impl Line {
    async fn start(mode: Mode) -> Self {
        let etcd = Etcd::start().await;
        let backend = connect(&etcd).await;
        let holder = lease().with_mode(mode);
        let attempt = attempt(&backend, &Claim::new(holder.clone())).await;
        assert!(matches!(attempt, Attempt::Granted(_)));
        let claims = [(); 2]
            .map(|()| Claim::new(lease().with_mode(mode)).with_patience(Patience::Queues(LONG)));
        let mut watches = Vec::new();
        for claim in &claims {
            watches.push(told(&backend, claim).await);
        }
        Self { etcd, backend, holder, claims, watches }
    }

    async fn count(&self, metric: &str) -> f64 {
        self.etcd.metric(0, metric).await
    }
}

#[tokio::test]
async fn a_waiter_that_is_told_reads_two_keys_and_writes_none() {
    let line = Line::start(Mode::Exclusive).await;
    let mut store = Client::connect(line.etcd.endpoints(), None).await.unwrap();
    // They came later, so they are none of its business.
    for n in 0..100 {
        store.put(format!("lock/job/{n}"), "x".repeat(1_000), None).await.unwrap();
    }
    const SENT: &str = "etcd_network_client_grpc_sent_bytes_total";
    const WRITTEN: &str = "etcd_server_proposals_committed_total";
    let before = (line.count(SENT).await, line.count(WRITTEN).await);

    for _ in 0..10 {
        let contention = refused(&line.backend, &line.claims[1]).await;
        let holder = contention.holder().expect("it is told of");
        assert_eq!(holder.fingerprint(), line.holder.id().fingerprint());
        assert!(contention.woken_by().is_some() && contention.queue_entry() == Some(LONG));
    }

    let sent = line.count(SENT).await - before.0;
    assert!(sent < 10_000.0, "ten answers have {sent} bytes");
    assert_eq!(line.count(WRITTEN).await, before.1);
}

#[tokio::test]
async fn a_waiter_whose_predecessor_gave_up_stays_behind_the_others() {
    for mode in [Mode::Exclusive, Mode::WRITER] {
        let line = Line::start(mode).await;

        line.backend.release(line.claims[0].lease()).await.unwrap();

        let mut contention = refused(&line.backend, &line.claims[1]).await;
        assert_eq!(contention.queue_entry(), Some(LONG));
        while contention.woken_by().is_none() {
            contention = refused(&line.backend, &line.claims[1]).await;
        }
        line.backend.release(&line.holder).await.unwrap();
        assert!(matches!(attempt(&line.backend, &line.claims[1]).await, Attempt::Granted(_)));
        assert_eq!(line.watches.len(), 2);
    }
}

#[tokio::test]
async fn a_waiter_whose_place_was_taken_away_stands_in_line_again() {
    let line = Line::start(Mode::Exclusive).await;
    let mut store = Client::connect(line.etcd.endpoints(), None).await.unwrap();
    line.etcd.ctl(&["del", "--prefix", "lock/job/"]).await;
    store.put("lock/job/other", "", None).await.unwrap();

    // Whichever is quicker, the news or the question.
    assert_eq!(refused(&line.backend, &line.claims[1]).await.queue_entry(), Some(LONG));

    let count = ["get", "--prefix", "lock/job/", "--keys-only", "-w", "fields"];
    assert!(line.etcd.ctl(&count).await.contains("\"Count\" : 2"));
}

#[tokio::test]
async fn a_waiter_without_a_watch_is_not_told() {
    let line = Line::start(Mode::Exclusive).await;

    drop(line.watches);

    assert!(refused(&line.backend, &line.claims[1]).await.woken_by().is_none());
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_end_of_its_stream_and_told_by_the_next_one() {
    let etcd = Etcd::start().await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let backend = EtcdBackend::connect(&patiently(&format!("etcd://{}", proxy.address()))).await;
    let (backend, holder) = (backend.unwrap(), Claim::new(lease()));
    assert!(matches!(attempt(&backend, &holder).await, Attempt::Granted(_)));
    let claim = Claim::new(lease()).with_patience(Patience::Queues(LONG));
    let mut watch = told(&backend, &claim).await;
    while tokio::time::timeout(Duration::from_millis(100), watch.changed()).await.is_ok() {}

    proxy.disconnect().await;

    watch.changed().await;
    until_some("told again", async || match backend.acquire(&claim).await {
        Ok(Attempt::Held(contention)) => contention.woken_by().is_some().then_some(()),
        _ => None,
    })
    .await;
}

/// As of the default pauses, which are a second at most.
#[tokio::test]
async fn waiters_do_not_poll_while_they_are_told() {
    const WAITERS: usize = 5;
    const TIME: Duration = Duration::from_secs(10);
    let etcd = Etcd::start().await;
    let holder = LockClient::new(connect(&etcd).await);
    let guard = holder.mutex("job").unwrap().lock().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let mutex = LockClient::new(connect(&etcd).await).mutex("job").unwrap();
        waiting.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    let count = ["get", "--prefix", "lock/job/", "--keys-only", "-w", "fields"];
    let all = format!("\"Count\" : {}", WAITERS + 1);
    until("all are queued", async || etcd.ctl(&count).await.contains(&all)).await;
    sleep(Duration::from_secs(1)).await;
    let asked = async || etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Txn"}"#).await;
    let before = asked().await;

    sleep(TIME).await;

    // Each waiter refreshes its queue entry three times within the entry's lifetime of 5 s. The
    // holder renews its lease once. A waiter that polls sends a request every second.
    let asked = asked().await - before;
    assert!(asked <= 7.0 * WAITERS as f64 + 1.0, "{asked} requests in {TIME:?}");
    guard.release().await.unwrap();
    waiting.join_all().await;
}
