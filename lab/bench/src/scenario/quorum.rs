//! A quorum of five Redis servers beside one of them: alone, with a member that is stopped, and where clients compete for one key.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::LockClient;
use leasehold_core::backend::LockBackend;
use leasehold_quorum::Quorum;
use leasehold_redis::{RedisBackend, RedisConfig};
use leasehold_testbed::{Redis, patiently};
use tokio::time::sleep;

use super::cycle::{counted_with, timed};
use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::lockers::{Lock, Locker};
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

const MEMBERS: usize = 5;

/// How long a client that competes for the key keeps it. Without work under the lock, the last holder would acquire it again before the others.
const WORK: Duration = Duration::from_millis(5);

/// How much longer than others a turn with competing clients is: 12 s.
const LONGER: u32 = 8;

/// So many locks are counted with their requests.
const COUNTED: u64 = 200;

const ONE: &str = "one Redis";
const ALL_UP: &str = "quorum of 5";
const ONE_STOPPED: &str = "quorum of 5, one stopped";
const TWO: &str = "2 clients";
const FIFTY: &str = "50 clients";

pub(super) async fn run(args: &Args) -> Vec<Outcome> {
    let servers = Arc::new(join_all((0..MEMBERS).map(|_| Redis::start())).await);
    vec![alone(&servers, args).await, competing(&servers, args).await]
}

async fn alone(servers: &Arc<Vec<Redis>>, args: &Args) -> Outcome {
    let mut contest = Contest::new("quorum-lock", "Redis, one task, one key: lock and release");
    // A server of its own, on which no member notes anything.
    let single = Arc::new(vec![Redis::start().await]);
    let client = LockClient::new(member(&single[0]));
    contest.add(args, Alone { name: ONE, client, servers: single, is_one_stopped: false });
    for (name, is_one_stopped) in [(ALL_UP, false), (ONE_STOPPED, true)] {
        let (client, servers) = (LockClient::new(quorum(servers)), Arc::clone(servers));
        contest.add(args, Alone { name, client, servers, is_one_stopped });
    }
    let at_least = Bound::AtLeast(1.0 / 1.3);
    contest.targets = vec![Target::new(ONE_STOPPED, Measure::RATE, at_least).beside(ALL_UP)];
    contest.run(args).await
}

async fn competing(servers: &Arc<Vec<Redis>>, args: &Args) -> Outcome {
    let title = "Quorum of 5 Redis, clients that compete for one key, 5 ms under the lock";
    let mut contest = Contest::new("quorum-waiters", title);
    for (name, clients) in [(TWO, 2), ("10 clients", 10), ("30 clients", 30), (FIFTY, 50)] {
        let clients = (0..clients).map(|_| LockClient::new(quorum(servers))).collect();
        contest.add(args, Competing { name, clients });
    }
    let clients = (0..50).map(|_| LockClient::new(member(&servers[0]))).collect();
    contest.add(args, Competing { name: "50 clients, one Redis", clients });
    contest.targets = vec![
        Target::new(FIFTY, Measure::RATE, Bound::AtLeast(0.5)).beside(TWO),
        Target::new(FIFTY, Measure::EVENNESS, Bound::AtLeast(0.1)),
    ];
    contest.run(args).await
}

fn member(redis: &Redis) -> RedisBackend {
    let config = RedisConfig::from_url(&patiently(&redis.url())).expect("it is a server's URL");
    RedisBackend::connect_lazily(config)
}

fn quorum(servers: &[Redis]) -> Quorum<RedisBackend> {
    let members = servers.iter().map(|redis| (redis.address(), member(redis)));
    Quorum::builder(members).build().expect("there are five with different names")
}

/// One task without competitors.
struct Alone<B: LockBackend> {
    name: &'static str,
    client: LockClient<B>,
    servers: Arc<Vec<Redis>>,
    is_one_stopped: bool,
}

#[async_trait]
impl<B: LockBackend> Contestant for Alone<B> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let stopped = self.servers.last().filter(|_| self.is_one_stopped);
        let lock = self.client.lock(&format!("{}/alone", turn.prefix()));
        // The first lock finds out which members answer.
        lock.turn(ready(())).await;
        if let Some(redis) = stopped {
            redis.pause();
            lock.turn(ready(())).await;
        }
        let round = timed(vec![lock], turn.time).await;
        if let Some(redis) = stopped {
            redis.resume();
            return round;
        }
        let (lock, before) = (self.client.lock("counted"), self.requests().await);
        for _ in 0..COUNTED {
            lock.turn(ready(())).await;
        }
        let requests = self.requests().await - before;
        round.with(Measure::REQUESTS, requests as f64 / COUNTED as f64)
    }
}

impl<B: LockBackend> Alone<B> {
    /// How many scripts all servers have run.
    async fn requests(&self) -> u64 {
        let calls = self.servers.iter().map(|redis| redis.calls(&["eval", "evalsha"]));
        join_all(calls).await.into_iter().sum()
    }
}

/// Clients that compete for one key.
struct Competing<B: LockBackend> {
    name: &'static str,
    clients: Vec<LockClient<B>>,
}

#[async_trait]
impl<B: LockBackend> Contestant for Competing<B> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let key = format!("{}/competing", turn.prefix());
        let locks = self.clients.iter().map(|client| client.lock(&key)).collect();
        counted_with(locks, turn.time * LONGER, || sleep(WORK)).await.0
    }
}
