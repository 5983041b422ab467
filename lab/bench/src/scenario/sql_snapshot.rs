//! Locks of one key while another transaction in the same database has an old snapshot.

use async_trait::async_trait;
use leasehold::Mutex;
use leasehold_testbed::patiently;

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::database::{Database, Server};
use crate::lockers::LockerKind;
use crate::machine;
use crate::measure::{Measure, micros};
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

const FIRST: Measure = Measure::less("CPU per lock at the start", "µs");
const LAST: Measure = Measure::less("CPU per lock at the end", "µs");
const GROWTH: Measure = Measure::less("CPU per lock, end ÷ start", "");

pub(super) async fn run(args: &Args) -> Outcome {
    let locks = args.scale(200_000, 2_000);
    let part = locks / 20;
    let title = format!(
        "One task that locks one key {locks} times under an old snapshot. The start and the end are {part} locks each."
    );
    let mut contest = Contest::new("sql-snapshot", title);
    contest.warms_up = false;
    for database in [Database::Postgres, Database::MariaDb] {
        contest.add(args, OldSnapshot { database, locks, part });
    }
    let postgres = LockerKind::Sql(Database::Postgres).name();
    contest.targets.push(Target::new(postgres, GROWTH, Bound::AtMost(2.0)));
    // The start and the end of a round are compared, and a round takes minutes.
    contest.run(&args.once()).await
}

struct OldSnapshot {
    database: Database,
    locks: u32,
    /// The number of locks at the start and at the end that are measured.
    part: u32,
}

#[async_trait]
impl Contestant for OldSnapshot {
    fn name(&self) -> String {
        LockerKind::Sql(self.database).name().to_owned()
    }

    async fn round(&mut self, _turn: Turn) -> Round {
        let server = Server::start(self.database).await;
        let client = leasehold::connect(&patiently(&server.url())).await.expect("it is up");
        let mutex = client.mutex("snapshot").expect("it is a key");
        let _snapshot = server.open_snapshot().await;
        let first = cpu_per_lock(&server, &mutex, self.part).await;
        cpu_per_lock(&server, &mutex, self.locks - 2 * self.part).await;
        let last = cpu_per_lock(&server, &mutex, self.part).await;
        Round::new().with(FIRST, first).with(LAST, last).with(GROWTH, last / first)
    }
}

/// Returns the CPU time of the client and the server for one lock, in microseconds.
async fn cpu_per_lock(server: &Server, mutex: &Mutex, locks: u32) -> f64 {
    let cpu = || machine::cpu_time() + server.cpu_time();
    let before = cpu();
    for _ in 0..locks {
        let guard = mutex.lock().await.expect("the server is up");
        guard.release().await.expect("the server is up");
    }
    micros(cpu().saturating_sub(before)) / f64::from(locks)
}
