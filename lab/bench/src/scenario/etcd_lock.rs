//! One task with one key on etcd: on one member that waits for its disk, as it does by default, and on one that does not:
//! the rest there is the cost of clients and protocols.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, LockOptions as RpcLockOptions, PutOptions, Txn, TxnOp,
};
use leasehold_core::{LockClient, Mutex};
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::{Etcd, EtcdOptions};

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::measure::{Measure, percentile};
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

pub(super) const OURS: &str = "leasehold, etcd";
pub(super) const RPC: &str = "the server's Lock RPC";
const FLOOR: &str = "two transactions by hand";

/// In seconds: longer than any run.
const TTL: i64 = 36_000;

pub(super) async fn run(args: &Args) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (name, title, options) in [
        ("etcd-lock", "etcd, lock and release", EtcdOptions::new().durable()),
        (
            "etcd-lock-in-memory",
            "etcd that does not wait for its disk, lock and release",
            EtcdOptions::new(),
        ),
    ] {
        let etcd = options.start().await;
        let mut contest = Contest::new(name, title);
        contest.add(args, Transactions::new(&etcd).await);
        contest.add(args, Ours(mutex(&etcd, "job").await));
        contest.add(args, Rpc::new(&etcd).await);
        let target = Target::new(OURS, Measure::RATE, Bound::AtLeast(0.9));
        contest.targets = vec![target.beside(FLOOR)];
        outcomes.push(contest.run(args).await);
    }
    outcomes
}

async fn client(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.expect("the server is up")
}

pub(super) async fn mutex(etcd: &Etcd, key: &str) -> Mutex {
    let backend = EtcdBackend::connect(&etcd.url()).await.expect("the server is up");
    LockClient::new(backend).mutex(key).expect("it is a good key")
}

/// Takes turns until time is up.
pub(super) struct Times {
    began: Instant,
    time: Duration,
    times: Vec<Duration>,
}

impl Times {
    pub(super) fn new(turn: Turn) -> Self {
        Self { began: Instant::now(), time: turn.time, times: Vec::new() }
    }

    pub(super) fn go_on(&self) -> bool {
        self.began.elapsed() < self.time
    }

    pub(super) fn add(&mut self, began: Instant) {
        self.times.push(began.elapsed());
    }

    pub(super) fn round(mut self) -> Round {
        let sum: Duration = self.times.iter().sum();
        Round::new()
            .with(Measure::RATE, self.times.len() as f64 / sum.as_secs_f64())
            .with(Measure::P50, percentile(&mut self.times, 50))
            .with(Measure::P99, percentile(&mut self.times, 99))
    }
}

/// `txn(put if absent)` and `txn(delete if mine)`: the least that a lock can be.
struct Transactions {
    client: Client,
    lease: i64,
}

impl Transactions {
    async fn new(etcd: &Etcd) -> Self {
        let mut client = client(etcd).await;
        let lease = client.lease_grant(TTL, None).await.expect("the server is up").id();
        Self { client, lease }
    }
}

#[async_trait]
impl Contestant for Transactions {
    fn name(&self) -> String {
        FLOOR.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        const KEY: &str = "floor/job";

        let mut times = Times::new(turn);
        while times.go_on() {
            let value = format!("holder {}", times.times.len());
            let began = Instant::now();
            let put =
                TxnOp::put(KEY, value.as_str(), Some(PutOptions::new().with_lease(self.lease)));
            let absent = Compare::create_revision(KEY, CompareOp::Equal, 0);
            let locked = self.client.txn(Txn::new().when([absent]).and_then([put])).await;
            assert!(locked.expect("the server is up").succeeded());
            let mine = Compare::value(KEY, CompareOp::Equal, value.as_str());
            let delete = Txn::new().when([mine]).and_then([TxnOp::delete(KEY, None)]);
            assert!(self.client.txn(delete).await.expect("the server is up").succeeded());
            times.add(began);
        }
        times.round()
    }
}

/// Our mutex.
struct Ours(Mutex);

#[async_trait]
impl Contestant for Ours {
    fn name(&self) -> String {
        OURS.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let mut times = Times::new(turn);
        while times.go_on() {
            let began = Instant::now();
            let guard = self.0.lock().await.expect("the server is up");
            guard.release().await.expect("the server is up");
            times.add(began);
        }
        times.round()
    }
}

/// The server's own Lock RPC.
#[derive(Clone)]
pub(super) struct Rpc {
    client: Client,
    lease: i64,
}

impl Rpc {
    pub(super) async fn new(etcd: &Etcd) -> Self {
        let Transactions { client, lease } = Transactions::new(etcd).await;
        Self { client, lease }
    }

    /// Waits for the lock; returns its key.
    pub(super) async fn lock(&mut self) -> Vec<u8> {
        let options = RpcLockOptions::new().with_lease(self.lease);
        self.client.lock("rpc", Some(options)).await.expect("the server is up").key().to_vec()
    }

    pub(super) async fn unlock(&mut self, key: Vec<u8>) {
        self.client.unlock(key).await.expect("the server is up");
    }
}

#[async_trait]
impl Contestant for Rpc {
    fn name(&self) -> String {
        RPC.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let mut times = Times::new(turn);
        while times.go_on() {
            let began = Instant::now();
            let key = self.lock().await;
            self.unlock(key).await;
            times.add(began);
        }
        times.round()
    }
}
