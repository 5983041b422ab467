//! Locks on three ZooKeeper servers, beside Apache Curator's on the same servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold::{LockClient, Mutex};
use leasehold_testbed::{Curator, CuratorEvent, ZooKeeper, ZooKeeperOptions, patiently};
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode};

use super::etcd_lock::Times;
use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::machine;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;

const OURS: &str = "leasehold, zookeeper";
const CURATOR: &str = "Curator, InterProcessMutex";
const FLOOR: &str = "create and delete by hand";

const HAND_OVERS: Measure = Measure::more("hand-offs per second", "/s");
const ACQUIRED: Measure = Measure::more("acquired per second", "/s");
const CPU: Measure = Measure::less("CPU of the client", "% of a core");
const CPU_OF_SERVERS: Measure = Measure::less("CPU of the servers", "% of a core");
const LOST: Measure = Measure::less("lost", "");

/// The servers' `tickTime`, which is usual.
const TICK: Duration = Duration::from_secs(2);

/// The TTL, and the session timeout of Curator.
const TTL: Duration = Duration::from_secs(30);

/// Where all locks lie.
const FOLDER: &str = "/bench";

/// One task with one key: on servers that wait for their disk, as they do by default, and on servers that do not.
pub(super) async fn lock(args: &Args) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (name, title, options) in [
        ("zookeeper-lock", "Three ZooKeeper servers: lock and release", options().durable()),
        (
            "zookeeper-lock-in-memory",
            "Three ZooKeeper servers that do not wait for their disks: lock and release",
            options(),
        ),
    ] {
        let zookeeper = options.start().await;
        let mut contest = Contest::new(name, title);
        contest.add(args, Floor::new(&zookeeper).await);
        contest.add(args, Ours(mutex(&zookeeper).await));
        let count = args.scale(300, 3);
        contest.add(args, Cycles { curator: zookeeper.curator(TTL).await, clients: 1, count });
        outcomes.push(contest.run(args).await);
    }
    outcomes
}

/// Two clients with one key, which release it at once: each lock is a hand-over.
pub(super) async fn hand_over(args: &Args) -> Outcome {
    let zookeeper = options().start().await;
    let title =
        "Three ZooKeeper servers that do not wait for their disks, two clients with one key";
    let mut contest = Contest::new("zookeeper-hand-over", title);
    let count = args.scale(300, 3);
    let clients = vec![mutex(&zookeeper).await, mutex(&zookeeper).await];
    contest.add(args, Rivals { clients, count });
    contest.add(args, Cycles { curator: zookeeper.curator(TTL).await, clients: 2, count });
    contest.run(args).await
}

/// 1,000 locks of one client that are held.
pub(super) async fn held(args: &Args) -> Outcome {
    let zookeeper = Arc::new(options().start().await);
    let (locks, hold) = args.scale((1_000, Duration::from_secs(20)), (10, Duration::from_secs(1)));
    let title = format!("Three ZooKeeper servers, {locks} locks held for {hold:?}");
    let mut contest = Contest::new("zookeeper-held", title);
    contest.warms_up = false;
    for is_ours in [true, false] {
        contest.add(args, Holder { zookeeper: Arc::clone(&zookeeper), is_ours, locks, hold });
    }
    contest.run(args).await
}

fn options() -> ZooKeeperOptions {
    ZooKeeperOptions::new().members(3).tick(TICK).optimized()
}

async fn client(zookeeper: &ZooKeeper) -> LockClient {
    let url = format!("{}{FOLDER}?tick-ms={}", zookeeper.url(), TICK.as_millis());
    leasehold::connect(&patiently(&url)).await.expect("the servers are up")
}

async fn mutex(zookeeper: &ZooKeeper) -> Mutex {
    client(zookeeper).await.mutex("job").expect("it is a good key")
}

/// An ephemeral node with a number, which is deleted again: the least that a lock can be.
struct Floor(Client);

impl Floor {
    async fn new(zookeeper: &ZooKeeper) -> Self {
        let servers = zookeeper.endpoints().join(",");
        Self(Client::connect(&servers).await.expect("the servers are up"))
    }
}

#[async_trait]
impl Contestant for Floor {
    fn name(&self) -> String {
        FLOOR.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let mut times = Times::new(turn);
        while times.go_on() {
            let began = Instant::now();
            let created = self.0.create("/floor-", b"", &mode).await.expect("the servers are up");
            let path = format!("/floor-{}", created.1);
            self.0.delete(&path, None).await.expect("the servers are up");
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
            cycle(&self.0).await;
            times.add(began);
        }
        times.round()
    }
}

async fn cycle(mutex: &Mutex) {
    let guard = mutex.lock().await.expect("the servers are up");
    guard.release().await.expect("the servers are up");
}

/// Clients of ours that want the same key, so often each.
struct Rivals {
    clients: Vec<Mutex>,
    count: usize,
}

#[async_trait]
impl Contestant for Rivals {
    fn name(&self) -> String {
        OURS.to_owned()
    }

    async fn round(&mut self, _turn: Turn) -> Round {
        let (began, count) = (Instant::now(), self.count);
        let tasks = self.clients.iter().cloned().map(|mutex| {
            tokio::spawn(async move {
                for _ in 0..count {
                    cycle(&mutex).await;
                }
            })
        });
        let clients = tasks.len();
        for ended in join_all(tasks).await {
            ended.expect("it does not panic");
        }
        Round::new().with(HAND_OVERS, (clients * count) as f64 / began.elapsed().as_secs_f64())
    }
}

/// Clients of Curator that want the same mutex, so often each.
struct Cycles {
    curator: Curator,
    clients: usize,
    count: usize,
}

#[async_trait]
impl Contestant for Cycles {
    fn name(&self) -> String {
        CURATOR.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let path = format!("{FOLDER}/curator-{}", turn.round);
        for client in 0..self.clients {
            self.curator.cycles(&client.to_string(), &path, self.count).await;
        }
        let mut longest = Duration::ZERO;
        for _ in 0..self.clients {
            longest = longest.max(done(&mut self.curator).await);
        }
        let measure = if self.clients == 1 { Measure::RATE } else { HAND_OVERS };
        Round::new().with(measure, (self.clients * self.count) as f64 / longest.as_secs_f64())
    }
}

async fn done(curator: &mut Curator) -> Duration {
    match curator.event().await {
        CuratorEvent::Done(_, took) => took,
        other => panic!("{other:?}"),
    }
}

/// A client that holds many locks, of ours or of Curator's.
struct Holder {
    zookeeper: Arc<ZooKeeper>,
    is_ours: bool,
    locks: usize,
    hold: Duration,
}

#[async_trait]
impl Contestant for Holder {
    fn name(&self) -> String {
        if self.is_ours { OURS.to_owned() } else { CURATOR.to_owned() }
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let name = turn.prefix().replace('/', "-");
        if self.is_ours { self.hold_ours(&name).await } else { self.hold_curators(&name).await }
    }
}

impl Holder {
    async fn hold_ours(&self, name: &str) -> Round {
        let client = client(&self.zookeeper).await;
        let (began, mut guards) = (Instant::now(), Vec::new());
        for number in 0..self.locks {
            let mutex = client.mutex(format!("{name}-{number}")).expect("it is a good key");
            guards.push(mutex.lock().await.expect("the servers are up"));
        }
        let acquiring = began.elapsed();
        let round = self.hold(acquiring, machine::cpu_time).await;
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        client.shutdown(TTL).await.expect("the servers are up");
        round.with(LOST, lost as f64)
    }

    async fn hold_curators(&self, name: &str) -> Round {
        let mut curator = self.zookeeper.curator(TTL).await;
        curator.many("holder", &format!("{FOLDER}/{name}"), self.locks).await;
        let acquiring = done(&mut curator).await;
        let id = curator.id().to_string();
        self.hold(acquiring, || machine::cpu_time_of(&id)).await
    }

    /// Measures the cost of holding the acquired leases.
    async fn hold(&self, acquiring: Duration, client: impl Fn() -> Duration) -> Round {
        let servers = || -> Duration {
            let ids = self.zookeeper.ids().into_iter();
            ids.map(|id| machine::cpu_time_of(&id.to_string())).sum()
        };
        let before = (client(), servers());
        sleep(self.hold).await;
        let percent = |now: Duration, before: Duration| {
            100.0 * now.saturating_sub(before).as_secs_f64() / self.hold.as_secs_f64()
        };
        Round::new()
            .with(ACQUIRED, self.locks as f64 / acquiring.as_secs_f64())
            .with(CPU, percent(client(), before.0))
            .with(CPU_OF_SERVERS, percent(servers(), before.1))
    }
}
