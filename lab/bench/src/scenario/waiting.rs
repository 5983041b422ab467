//! Clients that wait for one key on Redis: the server's work while they wait, and until each has had its turn.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{LockClient, LockGuard, Mutex};
use leasehold_redis::RedisBackend;
use leasehold_testbed::{Redis, patiently, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::store::Store;
use crate::target::{Bound, Target};

const IDLE_CPU: Measure = Measure::less("server's CPU while all wait", "% of a core");
const IDLE_SCRIPTS: Measure = Measure::less("scripts while all wait", "/s");
const TURN_CPU: Measure = Measure::less("server's CPU per turn", "ms");
const TURN_SCRIPTS: Measure = Measure::less("scripts per turn", "");

const MANY: &str = "4,000 waiters";

/// Backends with a connection each that the clients share.
const CONNECTIONS: usize = 4;

/// How long the clients wait while they are measured. A waiter asks for its place again every 1.7 s.
#[derive(Clone, Copy)]
struct Size {
    waiters: usize,
    /// The queue settles before it is measured: the rush of first attempts is over.
    settle: Duration,
    idle: Duration,
}

const FULL: Size =
    Size { waiters: 4_000, settle: Duration::from_secs(3), idle: Duration::from_secs(15) };

const QUICK: Size = Size { waiters: 40, settle: Duration::ZERO, idle: Duration::from_secs(1) };

pub(super) async fn run(args: &Args) -> Outcome {
    let size = args.scale(FULL, QUICK);
    let Size { waiters, idle, .. } = size;
    let title = format!("Redis, {waiters} clients in line for one fair lock, {idle:?}");
    let mut contest = Contest::new("redis-waiting", title);
    contest.warms_up = false;
    contest.add(args, Waiting { size });
    contest.targets = vec![Target::new(MANY, IDLE_CPU, Bound::AtMost(5.0))];
    contest.run(args).await
}

struct Waiting {
    size: Size,
}

#[async_trait]
impl Contestant for Waiting {
    fn name(&self) -> String {
        MANY.to_owned()
    }

    async fn round(&mut self, _turn: Turn) -> Round {
        let Size { waiters, settle, idle } = self.size;
        let redis = Arc::new(Redis::start().await);
        let mut backends = Vec::new();
        for _ in 0..CONNECTIONS {
            let backend = RedisBackend::connect(&patiently(&redis.url())).await;
            backends.push(backend.expect("the server is up"));
        }
        let held = take(mutex(&backends[0])).await;
        let mut waiting = JoinSet::new();
        for backend in backends.iter().cycle().take(waiters) {
            let mutex = mutex(backend);
            waiting.spawn(async move { give_up(take(mutex).await).await });
        }
        until("all stand in line", async || Work::of(&redis).await.scripts > waiters as u64).await;
        sleep(settle).await;

        let (before, began) = (Work::of(&redis).await, Instant::now());
        sleep(idle).await;
        let idle = Work::of(&redis).await.since(&before);
        let seconds = began.elapsed().as_secs_f64();

        let before = Work::of(&redis).await;
        give_up(held).await;
        waiting.join_all().await;
        let turns = Work::of(&redis).await.since(&before);

        Round::new()
            .with(IDLE_CPU, idle.cpu.as_secs_f64() / seconds * 1e2)
            .with(IDLE_SCRIPTS, idle.scripts as f64 / seconds)
            .with(TURN_CPU, turns.cpu.as_secs_f64() * 1e3 / waiters as f64)
            .with(TURN_SCRIPTS, turns.scripts as f64 / waiters as f64)
    }
}

/// The lock of a client of its own: the clients of one process would else send one contender.
fn mutex(backend: &RedisBackend) -> Mutex {
    let client = LockClient::new(backend.clone());
    let fair = client.options().fair(true);
    let mutex = client.mutex("job").and_then(|mutex| mutex.with_options(fair));
    mutex.expect("the key and the options are good")
}

async fn take(mutex: Mutex) -> LockGuard {
    mutex.lock().await.expect("the server is up")
}

async fn give_up(guard: LockGuard) {
    guard.release().await.expect("the server is up");
}

/// The server's work since it started.
struct Work {
    cpu: Duration,
    scripts: u64,
}

impl Work {
    async fn of(redis: &Arc<Redis>) -> Self {
        let cpu = Store::new(redis).cpu_time().await;
        Self { cpu, scripts: redis.calls(&["eval", "evalsha"]).await }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self { cpu: self.cpu - earlier.cpu, scripts: self.scripts - earlier.scripts }
    }
}
