//! Two processes that want one key: how long after the one begins to give it back the other has it.

use std::future::ready;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_testbed::Redis;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::args::Args;
use crate::child::{Child, PlannedScenario, Word, Workers};
use crate::contest::{Contest, Contestant, Turn};
use crate::database::{Database, Server};
use crate::lockers::{Lock, Locker, LockerKind, Visitor, native_connection};
use crate::machine;
use crate::measure::{Measure, percentile};
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

/// The fraction of releases after which the lock changes to the other process.
const PASSED_ON: Measure = Measure::more("fraction handed off", "");

const HAND_OVERS: Measure = Measure::more("hand-offs per second", "/s");

const PING: &str = "PING, redis";

/// A ping by a task that has slept as long as the others work: a process that sleeps, and a core, take their time to
/// wake.
const RESTED_PING: &str = "PING after 1 ms, redis";

/// A pause and no computation, so that cores are free for the measured work.
const WORK: Duration = Duration::from_millis(1);

pub(super) async fn run(args: &Args) -> Outcome {
    let redis = Redis::start().await;
    let title = "Redis, two processes, one key, 1 ms of work: from the release to the other's lock";
    let mut contest = Contest::new("redis-hand-over", title);
    for (name, pause) in [(PING, None), (RESTED_PING, Some(WORK))] {
        let connection = native_connection(&redis.url()).await;
        contest.add(args, Ping { name, pause, connection });
    }
    for kind in LockerKind::WAITING_ON_REDIS {
        contest.add(args, Pair { kind, url: redis.url(), workers: Workers::of(args) });
    }
    contest.targets = targets();
    contest.run(args).await
}

/// The same on a database, beside the lock that it has of its own.
pub(super) async fn run_on(database: Database, args: &Args) -> Outcome {
    let server = Server::start(database).await;
    let name = format!("{}-hand-over", database.name());
    let title = format!(
        "{database:?}, two processes, one key, 1 ms of work: from the release to the other's lock"
    );
    let mut contest = Contest::new(name, title);
    for kind in LockerKind::waiting_on(database) {
        contest.add(args, Pair { kind, url: server.url(), workers: Workers::of(args) });
    }
    contest.targets = targets_on(database);
    contest.run(args).await
}

/// Returns the targets on a database, some of which are relative to the database's own lock.
fn targets_on(database: Database) -> Vec<Target> {
    let [own, leasehold] = LockerKind::waiting_on(database).map(LockerKind::name);
    let at_most = |measure, bound| Target::new(leasehold, measure, Bound::AtMost(bound));
    match database {
        Database::Postgres => vec![at_most(Measure::P50, 2.5).beside(own)],
        Database::MariaDb => vec![
            at_most(Measure::P50, 1_000.0),
            at_most(Measure::P50, 7.0).beside(own),
            at_most(Measure::P99, 5_000.0),
        ],
        Database::Sqlite => vec![at_most(Measure::P50, 250.0)],
    }
}

fn targets() -> Vec<Target> {
    let kind = [LockerKind::Redis, LockerKind::Fred].map(LockerKind::name);
    let of = kind.map(|kind| {
        let beside_ping = |measure, bound| {
            Target::new(kind, measure, Bound::AtMost(bound)).beside_its(PING, Measure::P50)
        };
        [
            beside_ping(Measure::P50, 3.0),
            beside_ping(Measure::P99, 12.0),
            Target::new(kind, PASSED_ON, Bound::AtLeast(0.99)),
        ]
    });
    of.into_iter().flatten().collect()
}

/// The shortest way to the server and back.
struct Ping {
    name: &'static str,
    /// Before each.
    pause: Option<Duration>,
    connection: MultiplexedConnection,
}

#[async_trait]
impl Contestant for Ping {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < turn.time {
            if let Some(pause) = self.pause {
                sleep(pause).await;
            }
            let asked = Instant::now();
            let pong = redis::cmd("PING").query_async(&mut self.connection).await;
            let pong: String = pong.expect("the server is up");
            times.push(asked.elapsed());
            assert_eq!(pong, "PONG");
        }
        Round::new()
            .with(Measure::P50, percentile(&mut times, 50))
            .with(Measure::P99, percentile(&mut times, 99))
    }
}

/// Two processes.
struct Pair {
    kind: LockerKind,
    url: String,
    workers: Workers,
}

#[async_trait]
impl Contestant for Pair {
    fn name(&self) -> String {
        self.kind.name().to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let plan = Plan {
            kind: self.kind,
            url: self.url.clone(),
            key: format!("{}/pair", turn.prefix()),
            time: turn.time,
        };
        let mut one = Child::start(&self.workers, PlannedScenario::HandOver, &plan).await;
        let mut other = Child::start(&self.workers, PlannedScenario::HandOver, &plan).await;
        one.go().await;
        other.go().await;
        let (one, other) = tokio::join!(one.report(), other.report());
        measured([one, other])
    }
}

/// Asked of each of two processes: to lock, work and release, again and again.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    kind: LockerKind,
    url: String,
    key: String,
    time: Duration,
}

/// The report of a process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// From when until when it wanted the lock.
    from: Duration,
    until: Duration,
    held: Vec<Held>,
}

/// From when until when a process had the lock: until it began to give it back.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Held {
    from: Duration,
    until: Duration,
}

impl Plan {
    pub(crate) async fn run(self, word: Word) -> Report {
        let url = self.url.clone();
        let kind = self.kind;
        kind.visit(&url, Holding { plan: self, word }).await
    }
}

struct Holding {
    plan: Plan,
    word: Word,
}

impl Visitor for Holding {
    type Output = Report;

    async fn visit<L: Locker>(self, locker: L) -> Report {
        let Self { plan, word } = self;
        let lock = locker.lock(&plan.key);
        // The work of the first lock alone, such as loading scripts.
        locker.lock(&format!("{}/first", plan.key)).turn(ready(())).await;
        word.wait().await;
        let from = machine::now();
        let until = from + plan.time;
        let mut held = Vec::new();
        while machine::now() < until {
            let turn = lock.turn(async {
                let from = machine::now();
                sleep(WORK).await;
                Held { from, until: machine::now() }
            });
            held.push(turn.await);
        }
        Report { from, until, held }
    }
}

/// Puts together the reports of both processes, as long as both wanted the lock.
fn measured([one, other]: [Report; 2]) -> Round {
    let both = one.from.max(other.from)..one.until.min(other.until);
    let [one, other] = [one.held, other.held].map(Vec::into_iter);
    let mut all: Vec<(usize, Held)> =
        one.map(|held| (0, held)).chain(other.map(|held| (1, held))).collect();
    all.sort_by_key(|(_, held)| held.from);
    all.retain(|(_, held)| both.contains(&held.from));

    let mut times = Vec::new();
    for pair in all.windows(2) {
        let [(before, had), (after, has)] = pair else { unreachable!("a window has two") };
        assert!(had.until <= has.from, "two processes had the lock at once");
        if before != after {
            times.push(has.from - had.until);
        }
    }
    let releases = all.len().saturating_sub(1);
    let passed_on = (releases > 0).then(|| times.len() as f64 / releases as f64);
    let elapsed = both.end.saturating_sub(both.start);
    Round::new()
        .with(Measure::P50, percentile(&mut times, 50))
        .with(Measure::P99, percentile(&mut times, 99))
        .with(PASSED_ON, passed_on)
        .with(HAND_OVERS, times.len() as f64 / elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report<const N: usize>(held: [[u64; 2]; N]) -> Report {
        let micros = Duration::from_micros;
        let held = held.map(|[from, until]| Held { from: micros(from), until: micros(until) });
        Report { from: micros(0), until: micros(100), held: held.to_vec() }
    }

    #[test]
    fn only_grants_to_the_other_process_are_hand_overs() {
        let one = report([[0, 10], [20, 30], [50, 60], [110, 120]]);
        let other = report([[35, 40], [62, 70]]);

        let round = measured([one, other]);

        // After 5, 10 and 2. The last lock of the one came when the other did not want it any more.
        assert_eq!(round.figure(Measure::P50), Some(5.0));
        assert_eq!(round.figure(PASSED_ON), Some(0.75));
    }

    #[test]
    fn a_lock_that_one_process_keeps_to_itself_is_never_passed_on() {
        let round = measured([report([[0, 10], [20, 30]]), report([[110, 120]])]);

        assert_eq!(round.figure(PASSED_ON), Some(0.0));
        assert_eq!(round.figure(Measure::P50), None);
    }

    #[test]
    #[should_panic(expected = "at once")]
    fn two_holders_at_once_are_noticed() {
        measured([report([[0, 10], [20, 30]]), report([[5, 12], [31, 33]])]);
    }
}
