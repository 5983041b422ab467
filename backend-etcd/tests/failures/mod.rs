//! Members that are down, hung or full, leaders that change, and changes that operators make to leases and keys.

mod a_full_server;
mod a_leader;
mod a_majority;
mod a_member;
mod a_network_that_breaks_all_the_time;
mod a_restart;
mod a_server;
mod a_ttl;
mod an_acquisition_that_is_given_up;
mod an_operator;
mod the_network;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_conformance::stalls::{Measured, Stalls, measure};
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Patience, Release, Renewal, Subject, Tenure,
};
use leasehold_core::retry::Retry;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockGuard, LockKey, LockOptions, LossReason,
    RenewalMode, TryLockError,
};
use leasehold_etcd::etcd_client::{Client, GetOptions, KeyValue, Txn, TxnOp};
use leasehold_etcd::{EtcdBackend, EtcdConfig};
use leasehold_testbed::{Etcd, EtcdOptions, FaultProxy, NetworkFault, free_port, patiently, until};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(60);

/// How late things may happen on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);

/// Servers that stall for longer may miss the renewals of a lease: an election begins after a second of silence.
const STALL: Duration = Duration::from_millis(200);

/// The limit for news. Without news, a client finds out much later.
const SOON: Duration = Duration::from_secs(5);

async fn client(url: &str, ttl: Duration) -> LockClient<EtcdBackend> {
    let backend = EtcdBackend::connect(url).await.unwrap();
    LockClient::builder(backend).options(LockOptions::new().ttl(ttl)).build().unwrap()
}

async fn lock(client: &LockClient<EtcdBackend>, name: &str) -> LockGuard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Waits for a lock in the background, and does not try again by itself while it is held.
fn waiting(client: &LockClient<EtcdBackend>, name: &str) -> JoinHandle<LockGuard> {
    let told = client.options().retry(Retry::unlimited().every(LONG));
    let mutex = client.mutex(name).unwrap().with_options(told).unwrap();
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

async fn renewed(guard: &LockGuard) {
    let deadline = guard.deadline();
    until("it is renewed", async || guard.deadline() > deadline || !guard.is_held()).await;
    assert_eq!(guard.state(), LeaseState::Held);
}

/// A lock that no client may lose while the servers fail, since `taken_at`. Lost on a machine that stalled, it says nothing.
struct Kept<'a> {
    guard: &'a LockGuard,
    stalls: &'a Stalls,
    taken_at: Instant,
}

impl Kept<'_> {
    /// Waits for the next renewal.
    async fn renewed(self) -> Measured {
        let deadline = self.guard.deadline();
        let is_held = || self.guard.is_held();
        until("it is renewed", async || self.guard.deadline() > deadline || !is_held()).await;
        if !is_held() {
            self.stalls.steady("a lock is kept", self.taken_at.elapsed(), STALL)?;
        }
        assert_eq!(self.guard.state(), LeaseState::Held);
        Ok(())
    }
}

/// Releases a lock. If that gets no answer, it goes on in the background.
async fn let_go(guard: LockGuard) {
    match guard.release().await {
        Err(error) if error.is_retryable() => {}
        released => released.unwrap(),
    }
}

async fn three_members() -> Etcd {
    EtcdOptions::new().members(3).start().await
}

/// The cluster's URL, with its members from the first on in that order.
fn url_from(etcd: &Etcd, first: usize) -> String {
    let mut endpoints = etcd.endpoints();
    let members = endpoints.len();
    endpoints.rotate_left(first % members);
    format!("etcd://{}", endpoints.join(","))
}

async fn store(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.unwrap()
}

/// All holders of a lock and its waiters, in the order of their arrival.
async fn entries(store: &Client, name: &str) -> Vec<KeyValue> {
    let range = GetOptions::new().with_prefix();
    let found = store.kv_client().get(format!("lock/{name}/"), Some(range)).await;
    let mut found = found.unwrap().take_kvs();
    found.sort_by_key(KeyValue::create_revision);
    found
}

async fn until_there_are(store: &Client, name: &str, number: usize) {
    until(&format!("{number} entries of {name}"), async || {
        entries(store, name).await.len() == number
    })
    .await;
}

/// The data that a lock protects: it is not safe without the lock.
#[derive(Default)]
struct Protected {
    is_occupied: AtomicBool,
    count: AtomicUsize,
    tokens: Mutex<Vec<u64>>,
}

impl Protected {
    async fn increment(&self, guard: &LockGuard) {
        assert!(!self.is_occupied.swap(true, Ordering::SeqCst), "two are inside");
        let count = self.count.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.count.store(count + 1, Ordering::SeqCst);
        self.tokens.lock().unwrap().push(guard.token().number());
        assert!(guard.is_held());
        self.is_occupied.store(false, Ordering::SeqCst);
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn assert_tokens_in_order(&self) {
        let tokens = self.tokens.lock().unwrap();
        assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    }
}
