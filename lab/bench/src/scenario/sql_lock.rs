//! One task with one key on a database: with its disk, and without, where the rest is the cost of clients, protocols and
//! statements.

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

const CPU: Measure = Measure::less("CPU per lock", "µs");

pub(super) async fn run(database: Database, args: &Args) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    if database != Database::Sqlite {
        let server = Arc::new(Server::start_durable(database).await);
        let title = format!("{database:?}, one task, one key: lock and release");
        outcomes.push(
            run_on(&server, database, (format!("{}-lock", database.name()), title), args).await,
        );
    }
    let server = Arc::new(Server::start(database).await);
    let title = format!(
        "{database:?} that does not wait for its disk, one task, one key: lock and release"
    );
    let name = format!("{}-lock-in-memory", database.name());
    outcomes.push(run_on(&server, database, (name, title), args).await);
    outcomes
}

async fn run_on(
    server: &Arc<Server>,
    database: Database,
    (name, title): (String, String),
    args: &Args,
) -> Outcome {
    let kind: &[LockerKind] = match database {
        Database::Postgres => &LockerKind::ON_POSTGRES,
        Database::MariaDb => &LockerKind::ON_MARIADB,
        Database::Sqlite => &LockerKind::ON_SQLITE,
    };
    let mut contest = Contest::new(name, title);
    cycle::add(&mut contest, args, kind, (1, Keys::Own), || (server.url(), None)).await;
    let metered = |contestant| -> Box<dyn Contestant> {
        Box::new(Metered { contestant, server: Arc::clone(server) })
    };
    contest.contestants = contest.contestants.into_iter().map(metered).collect();
    contest.run(args).await
}

/// A contestant with the CPU that it takes, here and in the server: on a busy machine it says more than time.
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
