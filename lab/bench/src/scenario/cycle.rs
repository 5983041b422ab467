//! Tasks that lock and release, again and again, until time is up.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::lockers::{Lock, Locker, LockerKind, Visitor};
use crate::measure::{Measure, micros, percentile};
use crate::round::Round;
use crate::store::Store;

/// Tasks that lock and release.
pub(super) struct Cycles<L> {
    kind: LockerKind,
    locker: L,
    tasks: usize,
    keys: Keys,
    store: Option<Store>,
}

/// The keys of the tasks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keys {
    /// Each its own key.
    Own,
    /// All the same one.
    Shared,
    /// As [`Keys::Own`], where a lock takes about as long as to look at the clock.
    OwnAndUntimed,
}

/// Adds the contestants `all`, of so many tasks each, to a contest. Each has the URL of its server, and perhaps a counter of the
/// server's commands.
pub(super) async fn add(
    contest: &mut Contest,
    args: &Args,
    all: &[LockerKind],
    (tasks, keys): (usize, Keys),
    server: impl Fn() -> (String, Option<Store>),
) {
    for kind in all.iter().copied().filter(|kind| kind.name().contains(&args.only)) {
        let (url, store) = server();
        let adding = Adding { contest, args, kind, tasks, keys, store };
        kind.visit(&url, adding).await;
    }
}

struct Adding<'a> {
    contest: &'a mut Contest,
    args: &'a Args,
    kind: LockerKind,
    tasks: usize,
    keys: Keys,
    store: Option<Store>,
}

impl Visitor for Adding<'_> {
    type Output = ();

    async fn visit<L: Locker>(self, locker: L) {
        let Self { contest, args, kind, tasks, keys, store } = self;
        contest.add(args, Cycles { kind, locker, tasks, keys, store });
    }
}

#[async_trait]
impl<L: Locker> Contestant for Cycles<L> {
    fn name(&self) -> String {
        self.kind.name().to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let (locks, keys, time) = (self.locks(turn), self.keys, turn.time);
        match &mut self.store {
            Some(store) if keys == Keys::Shared => {
                if turn.is_warm_up() {
                    return store.watch(counted(locks, time)).await.0;
                }
                let before = store.count().await;
                let (round, locks) = counted(locks, time).await;
                let sent = store.count().await.since(before).sent.filter(|_| locks > 0);
                round.with(Measure::REQUESTS, sent.map(|sent| sent as f64 / locks as f64))
            }
            _ if keys == Keys::Own => timed(locks, time).await,
            _ => counted(locks, time).await.0,
        }
    }
}

impl<L: Locker> Cycles<L> {
    /// A lock for each task.
    fn locks(&self, turn: Turn) -> Vec<L::Lock> {
        let prefix = turn.prefix();
        match self.keys {
            Keys::Own | Keys::OwnAndUntimed => {
                let key = |task| format!("{prefix}/{task:04}");
                (0..self.tasks).map(|task| self.locker.lock(&key(task))).collect()
            }
            Keys::Shared => self.locker.locks(&format!("{prefix}/hot"), self.tasks),
        }
    }
}

/// Measures each lock. A lock that ends after time is up does not count.
pub(super) async fn timed<L: Lock>(locks: Vec<L>, time: Duration) -> Round {
    let stop = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(locks.len() + 1));
    let mut tasks = JoinSet::new();
    for lock in locks {
        let (start, stop) = (Arc::clone(&start), Arc::clone(&stop));
        tasks.spawn(async move {
            start.wait().await;
            let mut times = Vec::new();
            loop {
                let asked = Instant::now();
                lock.turn(ready(())).await;
                let took = asked.elapsed();
                if stop.load(Ordering::Relaxed) {
                    return times;
                }
                times.push(took);
            }
        });
    }
    start.wait().await;
    let elapsed = wait(time).await;
    stop.store(true, Ordering::Relaxed);
    let times = tasks.join_all().await;

    let counts: Vec<u64> = times.iter().map(|times| times.len() as u64).collect();
    let mut times = times.concat();
    Round::new()
        .with(Measure::RATE, times.len() as f64 / elapsed.as_secs_f64())
        .with(Measure::P50, percentile(&mut times, 50))
        .with(Measure::P99, percentile(&mut times, 99))
        .with(Measure::EVENNESS, evenness(&counts))
}

/// Counts locks, and returns their number. Callers that still wait when time is up are dropped, since that wait may be
/// long.
pub(super) async fn counted<L: Lock>(locks: Vec<L>, time: Duration) -> (Round, u64) {
    counted_with(locks, time, || ready(())).await
}

/// Counts locks like [`counted`], with `work` under each of them.
pub(super) async fn counted_with<L, W>(
    locks: Vec<L>,
    time: Duration,
    work: impl Fn() -> W + Clone + Send + 'static,
) -> (Round, u64)
where
    L: Lock,
    W: Future<Output = ()> + Send + 'static,
{
    let counters: Vec<Arc<Counter>> = locks.iter().map(|_| Arc::default()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let start = Arc::new(Barrier::new(locks.len() + 1));
    let mut tasks = JoinSet::new();
    for (lock, counter) in locks.into_iter().zip(&counters) {
        let (start, stop, counter) = (Arc::clone(&start), Arc::clone(&stop), Arc::clone(counter));
        let work = work.clone();
        tasks.spawn(async move {
            start.wait().await;
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                lock.turn(work()).await;
                count += 1;
                counter.0.store(count, Ordering::Relaxed);
            }
        });
    }
    start.wait().await;
    let elapsed = wait(time).await;
    let counts: Vec<u64> =
        counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).collect();
    // A task that never has to wait ends by the one, a waiting task by the other.
    stop.store(true, Ordering::Relaxed);
    tasks.shutdown().await;

    let sum: u64 = counts.iter().sum();
    let time_per_lock = (counts.len() == 1 && sum > 0).then(|| micros(elapsed) / sum as f64);
    let rate = (counts.len() > 1).then(|| sum as f64 / elapsed.as_secs_f64());
    let round = Round::new()
        .with(Measure::RATE, rate)
        .with(Measure::TIME, time_per_lock)
        .with(Measure::EVENNESS, evenness(&counts));
    (round, sum)
}

/// Alone in its cache line, so that counting is nothing that tasks compete in.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Waits, and says how long it was.
async fn wait(time: Duration) -> Duration {
    let began = Instant::now();
    sleep(time).await;
    began.elapsed()
}

/// How many locks the slowest task had, of those of the fastest; `None` if there is only one task.
fn evenness(counts: &[u64]) -> Option<f64> {
    let (least, most) = (counts.iter().min()?, counts.iter().max()?);
    (counts.len() > 1 && *most > 0).then(|| *least as f64 / *most as f64)
}
