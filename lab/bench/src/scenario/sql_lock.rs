//! Locks on a database by one task and by 64 tasks, each with a separate key. Servers are measured twice: with commits
//! that wait for the disk, and with commits that do not wait.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::cycle::{self, Keys};
use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::database::{Database, Server};
use crate::lockers::LockerKind;
use crate::machine;
use crate::measure::{Measure, micros};
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

const CPU: Measure = Measure::less("CPU per lock", "µs");

pub(super) async fn run(database: Database, args: &Args) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for is_durable in [true, false] {
        if is_durable && database == Database::Sqlite {
            continue;
        }
        for tasks in [1, 64] {
            let server = match is_durable {
                true => Server::start_durable(database).await,
                false => Server::start(database).await,
            };
            outcomes.push(run_on(&Arc::new(server), database, (is_durable, tasks), args).await);
        }
    }
    outcomes
}

async fn run_on(
    server: &Arc<Server>,
    database: Database,
    (is_durable, tasks): (bool, usize),
    args: &Args,
) -> Outcome {
    let many = if tasks == 1 { String::new() } else { format!("-{tasks}") };
    let in_memory = if is_durable { "" } else { "-in-memory" };
    let name = format!("{}-lock{many}{in_memory}", database.name());
    let waits = if is_durable { "waits" } else { "does not wait" };
    let title = format!(
        "{database:?} that {waits} for its disk, {tasks} tasks with a key each: lock and release"
    );
    let mut contest = Contest::new(name, title);
    let kinds = LockerKind::on(database, tasks);
    cycle::add(&mut contest, args, &kinds, (tasks, Keys::Own), || (server.url(), None)).await;
    let metered = |contestant| -> Box<dyn Contestant> {
        Box::new(Metered { contestant, server: Arc::clone(server) })
    };
    contest.contestants = contest.contestants.into_iter().map(metered).collect();
    contest.targets = targets(database, is_durable, tasks);
    contest.run(args).await
}

/// Returns the targets of Leasehold, relative to the baseline and to ShedLock's statements.
fn targets(database: Database, is_durable: bool, tasks: usize) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};

    let [baseline, shedlock] = LockerKind::baselines_on(database).map(LockerKind::name);
    let of_baseline = |measure, bound| {
        Target::new(LockerKind::Sql(database).name(), measure, bound).beside(baseline)
    };
    let of_shedlock = |measure, bound| {
        Target::new(LockerKind::Sql(database).name(), measure, bound).beside(shedlock)
    };
    let (rate, cpu, p99) = (Measure::RATE, CPU, Measure::P99);
    match (database, is_durable, tasks) {
        (Database::Postgres, false, 1) => vec![
            of_baseline(rate, AtLeast(0.65)),
            of_baseline(cpu, AtMost(1.5)),
            of_shedlock(cpu, AtMost(1.5)),
        ],
        (Database::Postgres, true, 1) => vec![of_baseline(rate, AtLeast(0.85))],
        (Database::Postgres, false, _) => vec![of_baseline(rate, AtLeast(2.5))],
        (Database::Postgres, true, _) => vec![of_baseline(rate, AtLeast(10.0))],
        (Database::MariaDb, false, 1) => vec![
            of_baseline(rate, AtLeast(0.65)),
            of_baseline(cpu, AtMost(1.6)),
            of_baseline(p99, AtMost(2.0)),
            of_shedlock(cpu, AtMost(1.3)),
        ],
        (Database::MariaDb, true, 1) => vec![
            of_baseline(rate, AtLeast(0.8)),
            of_baseline(p99, AtMost(1.5)),
            of_shedlock(rate, AtLeast(0.85)),
        ],
        (Database::MariaDb, false, _) => vec![of_baseline(rate, AtLeast(1.1))],
        (Database::MariaDb, true, _) | (Database::Sqlite, _, 2..) => {
            vec![of_baseline(rate, AtLeast(2.0))]
        }
        (Database::Sqlite, ..) => {
            vec![of_baseline(rate, AtLeast(0.7)), of_baseline(cpu, AtMost(1.4))]
        }
    }
}

/// A contestant with the CPU time that the contestant and the server use. On a busy machine, the CPU time is more
/// reliable than the rate.
struct Metered {
    contestant: Box<dyn Contestant>,
    server: Arc<Server>,
}

#[async_trait]
impl Contestant for Metered {
    fn name(&self) -> String {
        self.contestant.name()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let (began, cpu) = (Instant::now(), machine::cpu_time() + self.server.cpu_time());
        let round = self.contestant.round(turn).await;
        let cpu = (machine::cpu_time() + self.server.cpu_time()).saturating_sub(cpu);
        let locks = round.figure(Measure::RATE).map(|rate| rate * began.elapsed().as_secs_f64());
        let per_lock = locks.filter(|locks| *locks > 0.0).map(|locks| micros(cpu) / locks);
        let all = Round::new().with(CPU, per_lock);
        round.measures().fold(all, |all, measure| all.with(measure, round.figure(measure)))
    }
}
