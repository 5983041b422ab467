//! On one member of etcd, which waits for its disk as it does by default, and on one that does not: there, what is left is
//! what clients and protocols cost.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, LockOptions as RpcLockOptions, PutOptions, Txn, TxnOp,
};
use leasehold_core::{LockClient, Mutex};
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::{Etcd, EtcdOptions};

use crate::Args;
use crate::contest::{self, Contestant};

/// Locks of a round, and hand-overs of a round of those that are slow.
const LOCKS: usize = 300;
const HAND_OVERS: usize = 40;

const TTL: i64 = 30;

/// Lock and release, with nobody else about.
pub(crate) async fn lock(args: &Args) {
    for (title, options) in [
        ("etcd, lock and release", EtcdOptions::new().durable()),
        ("etcd that does not wait for its disk, lock and release", EtcdOptions::new()),
    ] {
        let etcd = options.start().await;
        let contestants: Vec<Box<dyn Contestant>> = vec![
            Box::new(Transactions::new(&etcd).await),
            Box::new(Ours(mutex(&etcd, "job").await)),
            Box::new(Rpc::new(&etcd).await),
        ];
        contest::run(title, args, contestants).await;
    }
}

/// From the beginning of a release to the other's lock.
pub(crate) async fn hand_over(args: &Args) {
    let etcd = EtcdOptions::new().durable().start().await;
    let contestants: Vec<Box<dyn Contestant>> = vec![
        Box::new(RpcPair([Rpc::new(&etcd).await, Rpc::new(&etcd).await])),
        Box::new(Pair([mutex(&etcd, "pair").await, mutex(&etcd, "pair").await])),
    ];
    contest::run("etcd, hand-over between two clients", args, contestants).await;
}

async fn client(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.expect("the server is up")
}

async fn mutex(etcd: &Etcd, key: &str) -> Mutex {
    let backend = EtcdBackend::connect(&etcd.url()).await.expect("the server is up");
    LockClient::new(backend).mutex(key).expect("it is a good key")
}

/// `txn(put if absent)` and `txn(delete if mine)`: the least that a lock can be.
struct Transactions {
    client: Client,
    lease: i64,
}

impl Transactions {
    async fn new(etcd: &Etcd) -> Self {
        let mut client = client(etcd).await;
        let lease = client.lease_grant(TTL * 100, None).await.expect("the server is up").id();
        Self { client, lease }
    }
}

#[async_trait]
impl Contestant for Transactions {
    fn name(&self) -> &'static str {
        "two hand-written transactions"
    }

    async fn round(&mut self) -> Vec<Duration> {
        const KEY: &str = "floor/job";

        let mut times = Vec::with_capacity(LOCKS);
        for count in 0..LOCKS {
            let value = format!("holder {count}");
            let began = Instant::now();
            let put =
                TxnOp::put(KEY, value.as_str(), Some(PutOptions::new().with_lease(self.lease)));
            let absent = Compare::create_revision(KEY, CompareOp::Equal, 0);
            let locked = self.client.txn(Txn::new().when([absent]).and_then([put])).await;
            assert!(locked.expect("the server is up").succeeded());
            let mine = Compare::value(KEY, CompareOp::Equal, value.as_str());
            let delete = Txn::new().when([mine]).and_then([TxnOp::delete(KEY, None)]);
            assert!(self.client.txn(delete).await.expect("the server is up").succeeded());
            times.push(began.elapsed());
        }
        times
    }
}

/// Our mutex.
struct Ours(Mutex);

#[async_trait]
impl Contestant for Ours {
    fn name(&self) -> &'static str {
        "leasehold"
    }

    async fn round(&mut self) -> Vec<Duration> {
        let mut times = Vec::with_capacity(LOCKS);
        for _ in 0..LOCKS {
            let began = Instant::now();
            let guard = self.0.lock().await.expect("the server is up");
            guard.release().await.expect("the server is up");
            times.push(began.elapsed());
        }
        times
    }
}

/// The server's own Lock RPC.
struct Rpc {
    client: Client,
    lease: i64,
}

impl Rpc {
    async fn new(etcd: &Etcd) -> Self {
        let Transactions { client, lease } = Transactions::new(etcd).await;
        Self { client, lease }
    }

    async fn lock(&mut self) -> Vec<u8> {
        let options = RpcLockOptions::new().with_lease(self.lease);
        self.client.lock("rpc", Some(options)).await.expect("the server is up").key().to_vec()
    }
}

#[async_trait]
impl Contestant for Rpc {
    fn name(&self) -> &'static str {
        "the server's Lock and Unlock RPC"
    }

    async fn round(&mut self) -> Vec<Duration> {
        let mut times = Vec::with_capacity(LOCKS);
        for _ in 0..LOCKS {
            let began = Instant::now();
            let key = self.lock().await;
            self.client.unlock(key).await.expect("the server is up");
            times.push(began.elapsed());
        }
        times
    }
}

/// Long enough for who waits to stand in line and to watch.
const UNTIL_IT_WAITS: Duration = Duration::from_millis(30);

/// Two of our clients.
struct Pair([Mutex; 2]);

#[async_trait]
impl Contestant for Pair {
    fn name(&self) -> &'static str {
        "leasehold"
    }

    async fn round(&mut self) -> Vec<Duration> {
        let mut times = Vec::with_capacity(HAND_OVERS);
        let mut guard = self.0[0].lock().await.expect("the server is up");
        for count in 0..HAND_OVERS {
            let next = self.0[(count + 1) % 2].clone();
            let waiting = tokio::spawn(async move {
                let guard = next.lock().await.expect("the server is up");
                (guard, Instant::now())
            });
            tokio::time::sleep(UNTIL_IT_WAITS).await;
            let began = Instant::now();
            guard.release().await.expect("the server is up");
            let locked_at;
            (guard, locked_at) = waiting.await.expect("it does not panic");
            times.push(locked_at.duration_since(began));
        }
        guard.release().await.expect("the server is up");
        times
    }
}

/// Two clients of the Lock RPC.
struct RpcPair([Rpc; 2]);

#[async_trait]
impl Contestant for RpcPair {
    fn name(&self) -> &'static str {
        "the server's Lock RPC"
    }

    async fn round(&mut self) -> Vec<Duration> {
        let mut times = Vec::with_capacity(HAND_OVERS);
        let mut key = self.0[0].lock().await;
        for count in 0..HAND_OVERS {
            let Rpc { client, lease } = &self.0[(count + 1) % 2];
            let mut next = Rpc { client: client.clone(), lease: *lease };
            let waiting = tokio::spawn(async move {
                let key = next.lock().await;
                (key, Instant::now())
            });
            tokio::time::sleep(UNTIL_IT_WAITS).await;
            let holder = &mut self.0[count % 2].client;
            let began = Instant::now();
            holder.unlock(key).await.expect("the server is up");
            let locked_at;
            (key, locked_at) = waiting.await.expect("it does not panic");
            times.push(locked_at.duration_since(began));
        }
        let last = &mut self.0[HAND_OVERS % 2].client;
        last.unlock(key).await.expect("the server is up");
        times
    }
}
