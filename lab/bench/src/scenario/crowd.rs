//! Many waiters in several processes that want one key on Redis: the cost of a hand-over, and whether each waiter
//! gets the key.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_testbed::Redis;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::args::Args;
use crate::child::{Child, PlannedScenario, Word, Workers};
use crate::contest::{Contest, Contestant, Turn};
use crate::lockers::{Lock, Locker, LockerKind, Visitor};
use crate::machine;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::store::Store;
use crate::target::{Bound, Target};

const SENT: Measure = Measure::less("commands sent per hand-off", "");
const RUN: Measure = Measure::less("commands run per hand-off", "");
const CPU: Measure = Measure::less("CPU per hand-off", "ms");
const CPU_OF_SERVER: Measure = Measure::less("server CPU per hand-off", "ms");
const LEFT_WITHOUT: Measure = Measure::less("never served", "");
const HAND_OVERS: Measure = Measure::more("hand-offs per second", "/s");

const PROCESSES: usize = 4;

/// A pause and no computation: the CPU time is that of the hand-over.
const WORK: Duration = Duration::from_millis(5);

/// The numbers of processes and waiters, and their work.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Size {
    tasks_of_a_process: usize,
    /// How often each wants the lock.
    locks_of_a_task: usize,
    /// A waiter without the key by then counts as never served.
    patience: Duration,
}

const FULL: Size =
    Size { tasks_of_a_process: 50, locks_of_a_task: 3, patience: Duration::from_secs(30) };

const QUICK: Size =
    Size { tasks_of_a_process: 3, locks_of_a_task: 1, patience: Duration::from_secs(30) };

pub(super) async fn run(args: &Args) -> Outcome {
    let redis = Arc::new(Redis::start().await);
    let size = args.scale(FULL, QUICK);
    let title = format!(
        "Redis, {} waiters in {PROCESSES} processes, one key, 5 ms of work",
        PROCESSES * size.tasks_of_a_process
    );
    let mut contest = Contest::new("redis-crowd", title);
    for kind in LockerKind::WAITING_ON_REDIS {
        let (store, workers) = (Store::new(&redis), Workers::of(args));
        contest.add(args, Crowd { kind, store, workers, size });
    }
    let kind = [LockerKind::Redis, LockerKind::Fred].map(LockerKind::name);
    let targets = kind.map(|kind| {
        let at_most = |measure, bound| Target::new(kind, measure, Bound::AtMost(bound));
        [at_most(RUN, 10.0), at_most(CPU, 0.4), at_most(LEFT_WITHOUT, 0.0)]
    });
    contest.targets = targets.into_iter().flatten().collect();
    contest.run(args).await
}

struct Crowd {
    kind: LockerKind,
    store: Store,
    workers: Workers,
    size: Size,
}

#[async_trait]
impl Contestant for Crowd {
    fn name(&self) -> String {
        self.kind.name().to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        // To warm up, a few are enough.
        let size = if turn.is_warm_up() { QUICK } else { self.size };
        let plan = Plan {
            kind: self.kind,
            url: self.store.url(),
            key: format!("{}/crowd", turn.prefix()),
            size,
        };
        let mut children = Vec::new();
        for _ in 0..PROCESSES {
            children.push(Child::start(&self.workers, PlannedScenario::Crowd, &plan).await);
        }
        if turn.is_warm_up() {
            self.store.watch(all_at_once(children)).await;
            return Round::new();
        }
        let (commands, cpu) = (self.store.count().await, self.store.cpu_time().await);
        let began = Instant::now();
        let reports = all_at_once(children).await;
        let elapsed = began.elapsed();
        let cpu_of_server = self.store.cpu_time().await.saturating_sub(cpu);
        let commands = self.store.count().await.since(commands);

        let hand_overs: usize = reports.iter().map(|report| report.locks).sum();
        let without: usize = reports.iter().map(|report| report.left_without).sum();
        let cpu = cpu_of_server + reports.iter().map(|report| report.cpu).sum::<Duration>();
        let per_hand_over = |figure: f64| figure / hand_overs as f64;
        let millis = |time: Duration| per_hand_over(time.as_secs_f64() * 1e3);
        Round::new()
            .with(HAND_OVERS, hand_overs as f64 / elapsed.as_secs_f64())
            .with(SENT, commands.sent.map(|sent| per_hand_over(sent as f64)))
            .with(RUN, per_hand_over(commands.all as f64))
            .with(CPU, millis(cpu))
            .with(CPU_OF_SERVER, millis(cpu_of_server))
            .with(LEFT_WITHOUT, without as f64)
    }
}

async fn all_at_once(mut children: Vec<Child>) -> Vec<Report> {
    for child in &mut children {
        child.go().await;
    }
    join_all(children.into_iter().map(Child::report)).await
}

/// Asked of each process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    kind: LockerKind,
    url: String,
    key: String,
    size: Size,
}

/// The report of a process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    locks: usize,
    left_without: usize,
    cpu: Duration,
}

impl Plan {
    pub(crate) async fn run(self, word: Word) -> Report {
        let url = self.url.clone();
        let kind = self.kind;
        kind.visit(&url, Waiting { plan: self, word }).await
    }
}

struct Waiting {
    plan: Plan,
    word: Word,
}

impl Visitor for Waiting {
    type Output = Report;

    async fn visit<L: Locker>(self, locker: L) -> Report {
        let Self { plan: Plan { key, size, .. }, word } = self;
        // The work of the first lock alone, such as loading scripts.
        locker.lock(&format!("{key}/first")).turn(ready(())).await;
        let locks = locker.locks(&key, size.tasks_of_a_process);
        word.wait().await;
        let cpu = machine::cpu_time();
        let give_up = Instant::now() + size.patience;
        let mut tasks = JoinSet::new();
        for lock in locks {
            tasks.spawn(wait_in_turn(lock, size.locks_of_a_task, give_up));
        }
        let counts = tasks.join_all().await;
        Report {
            locks: counts.iter().sum(),
            left_without: counts.iter().filter(|count| **count == 0).count(),
            cpu: machine::cpu_time().saturating_sub(cpu),
        }
    }
}

/// Takes the lock so many times; says how often it got it before it was time to give up.
async fn wait_in_turn(lock: impl Lock, times: usize, give_up: Instant) -> usize {
    for count in 0..times {
        // A sleep that is not in a block would begin before the lock is had.
        let turn = lock.turn(async { sleep(WORK).await });
        if timeout_at(give_up, turn).await.is_err() {
            return count;
        }
    }
    times
}
