//! Clients that wait for one key on etcd: the server's work while they wait, and until each has had its turn.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use leasehold_core::{LockClient, LockGuard, LockOptions, Mutex};
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::{Etcd, patiently, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

const IDLE_CPU: Measure = Measure::less("server's CPU while all wait, cores", "");
const IDLE_REQUESTS: Measure = Measure::less("requests while all wait", "/s");
const IDLE_BYTES: Measure = Measure::less("sent while all wait", "kB/s");
const TURN_CPU: Measure = Measure::less("server's CPU per turn", "ms");
const TURN_REQUESTS: Measure = Measure::less("requests per turn", "");
const TURN_TIME: Measure = Measure::less("time per turn", "ms");

const FEW: &str = "40 waiters";
const SOME: &str = "300 waiters";
const MANY: &str = "1,000 waiters";

/// The server's count of unary requests and of messages on streams.
const REQUESTS: &str = "grpc_server_msg_received_total";
const BYTES: &str = "etcd_network_client_grpc_sent_bytes_total";
const CPU: &str = "process_cpu_seconds_total";

/// Connections that are made, and waiters that get in line, at the same time.
const TOGETHER: usize = 50;

/// A server that has too much to do is waited for.
const OUTAGE: Duration = Duration::from_secs(60);

/// The queue settles before it is measured: connections, first attempts and watches are behind it.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &Args) -> Outcome {
    // Several times the pause after which a waiter asks for its place again.
    let idle = args.scale(Duration::from_secs(20), Duration::from_secs(1));
    let title = format!("etcd, clients with a connection each that wait for one key, {idle:?}");
    let mut contest = Contest::new("etcd-waiting", title);
    contest.warms_up = false;
    for (name, waiters) in [(FEW, 40), (SOME, 300), (MANY, 1_000)] {
        let waiters = args.scale(waiters, waiters / 20);
        contest.add(args, Waiting { name, waiters, idle });
    }
    contest.targets = vec![Target::new(MANY, IDLE_CPU, Bound::AtMost(0.05))];
    contest.run(args).await
}

struct Waiting {
    name: &'static str,
    waiters: usize,
    idle: Duration,
}

#[async_trait]
impl Contestant for Waiting {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn round(&mut self, _turn: Turn) -> Round {
        let etcd = Etcd::start().await;
        let held = mutex(&etcd).await.lock().await.expect("the server is up");
        let connecting = stream::iter(0..self.waiters).map(|_| mutex(&etcd));
        let mutexes: Vec<Mutex> = connecting.buffer_unordered(TOGETHER).collect().await;
        let mut waiting = JoinSet::new();
        for mutex in mutexes {
            waiting.spawn(take_a_turn(mutex));
            if waiting.len().is_multiple_of(TOGETHER) {
                queued(&etcd, waiting.len()).await;
            }
        }
        queued(&etcd, self.waiters).await;
        sleep(SETTLE).await;

        let (before, began) = (Work::of(&etcd).await, Instant::now());
        sleep(self.idle).await;
        let idle = Work::of(&etcd).await.since(&before);
        let seconds = began.elapsed().as_secs_f64();

        let (before, began) = (Work::of(&etcd).await, Instant::now());
        give_up(held).await;
        while waiting.join_next().await.is_some() {}
        let turns = Work::of(&etcd).await.since(&before);
        let per_turn = |figure: f64| figure / self.waiters as f64;

        Round::new()
            .with(IDLE_CPU, idle.cpu / seconds)
            .with(IDLE_REQUESTS, idle.requests / seconds)
            .with(IDLE_BYTES, idle.bytes / 1e3 / seconds)
            .with(TURN_CPU, per_turn(turns.cpu * 1e3))
            .with(TURN_REQUESTS, per_turn(turns.requests))
            .with(TURN_TIME, per_turn(began.elapsed().as_secs_f64() * 1e3))
    }
}

async fn mutex(etcd: &Etcd) -> Mutex {
    let backend = EtcdBackend::connect(&patiently(&etcd.url())).await.expect("the server is up");
    let options = LockOptions::new().outage_wait(OUTAGE);
    let client = LockClient::builder(backend).options(options).build().expect("they are fine");
    client.mutex("job").expect("it is a good key")
}

async fn take_a_turn(mutex: Mutex) {
    give_up(mutex.lock().await.expect("the server is up")).await;
}

async fn give_up(guard: LockGuard) {
    guard.release().await.expect("the server is up");
}

/// Waits until so many stand in line.
async fn queued(etcd: &Etcd, waiters: usize) {
    let count = ["get", "--prefix", "lock/job/", "--count-only", "-w", "fields"];
    let all = format!("\"Count\" : {}", waiters + 1);
    until("all stand in line", async || etcd.ctl(&count).await.contains(&all)).await;
}

/// The server's work since it started.
struct Work {
    cpu: f64,
    requests: f64,
    bytes: f64,
}

impl Work {
    async fn of(etcd: &Etcd) -> Self {
        let cpu = etcd.metric(0, CPU).await;
        let (requests, bytes) = (etcd.metric(0, REQUESTS).await, etcd.metric(0, BYTES).await);
        Self { cpu, requests, bytes }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu - earlier.cpu,
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
        }
    }
}
