//! Sessions, which are leases of etcd's: few of them serve many of ours.

mod a_client;
mod a_client_that_is_shut_down;
mod after_a_release_that_failed;
mod another_client;
mod clones;
mod marks_and_places;
mod without_renewal;

use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Patience, Renewal, StoreAdmin, Tenure,
};
use leasehold_core::clock::ManualClock;
use leasehold_core::observe::{Observer, Waiting};
use leasehold_core::{
    LeaseState, LockClient, LockGuard, LockKey, LockOptions, RenewalMode, TryLockError,
};
use leasehold_etcd::etcd_client::{Client, GetOptions, KeyValue};
use leasehold_etcd::{EtcdBackend, EtcdConfig};
use leasehold_testbed::{Etcd, FaultProxy, NetworkFault, patiently, until};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

const TTL: Duration = Duration::from_secs(3);

const LONG: Duration = Duration::from_secs(60);

async fn client(url: &str, options: LockOptions) -> LockClient<EtcdBackend> {
    let backend = EtcdBackend::connect(url).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Sends a message for each call that has the store's reply that the lock is held.
struct Waits(UnboundedSender<()>);

impl Observer for Waits {
    fn on_waiting(&self, _: &Waiting<'_>) {
        self.0.send(()).unwrap_or_default();
    }
}

/// A client, and a receiver of one message for each of its calls that is queued.
async fn client_that_waits(
    url: &str,
    options: LockOptions,
) -> (LockClient<EtcdBackend>, UnboundedReceiver<()>) {
    let (sender, waits) = unbounded_channel();
    let backend = LockClient::builder(EtcdBackend::connect(url).await.unwrap());
    (backend.options(options).observer(Waits(sender)).build().unwrap(), waits)
}

/// Waits until one more call of a client is queued and has the reply. If a call is aborted before
/// the reply, the client leaves a mark, and an etcd lease for the mark.
async fn until_queued(waits: &mut UnboundedReceiver<()>) {
    timeout(LONG, waits.recv()).await.expect("the call waits").expect("the client is there");
}

/// Holds so many locks, taken not all at once: that would only try how fast the machine is.
async fn hold(client: &LockClient<EtcdBackend>, number: usize) -> Vec<LockGuard> {
    let mutexes = (0..number).map(|n| client.mutex(format!("job-{n}")).unwrap());
    let locking = mutexes.map(async |mutex| mutex.lock().await.unwrap());
    stream::iter(locking).buffer_unordered(50).collect().await
}

async fn store(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.unwrap()
}

/// The entry of the holder of a lock.
async fn holder(store: &Client, name: &str) -> Option<KeyValue> {
    let range = GetOptions::new().with_prefix();
    store
        .kv_client()
        .get(format!("lock/{name}/"), Some(range))
        .await
        .unwrap()
        .kvs()
        .first()
        .cloned()
}

async fn keys(store: &Client) -> usize {
    keys_under(store, "lock/").await
}

async fn keys_under(store: &Client, prefix: &str) -> usize {
    let range = GetOptions::new().with_prefix();
    store.kv_client().get(prefix, Some(range)).await.unwrap().kvs().len()
}

async fn leases(store: &Client) -> Vec<i64> {
    let leases = store.lease_client().leases().await.unwrap();
    leases.leases().iter().map(|lease| lease.id()).collect()
}

async fn backend_on(etcd: &Etcd, clock: &ManualClock) -> EtcdBackend {
    let config = EtcdConfig::from_url(&etcd.url()).unwrap().clock(clock.clone());
    EtcdBackend::connect_with(config).await.unwrap()
}

#[tokio::test]
async fn sessions_age_on_the_clock_of_the_configuration() {
    let etcd = Etcd::start().await;
    let clock = ManualClock::new();
    let backend = backend_on(&etcd, &clock).await;
    let grant = async |name: &str| {
        let lease = Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept);
        let attempt = backend.acquire(&Claim::new(lease)).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    };
    let store = store(&etcd).await;
    grant("first").await;
    grant("second").await;
    assert_eq!(leases(&store).await.len(), 1);

    clock.advance(LONG * 2);
    grant("third").await;

    assert_eq!(leases(&store).await.len(), 2, "the first session is over on this clock");
}

#[tokio::test]
async fn requests_to_finish_have_one_lease_however_many_there_are() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), LockOptions::new().ttl(LONG)).await;
    let _guard = client.mutex("job").unwrap().lock().await.unwrap();

    for _ in 0..5 {
        client.request_revocation("job").await.unwrap();
    }

    assert_eq!(leases(&store).await.len(), 2);
}
