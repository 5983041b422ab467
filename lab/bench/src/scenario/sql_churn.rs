//! Locks on keys that are used only once: how large the tables of databases become.

use std::mem::forget;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{LockClient, LockOptions, RenewalMode};
use leasehold_testbed::patiently;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::database::{Database, Server};
use crate::lockers::LockerKind;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

const FIRST: Measure = Measure::less("size at the start", "kB");
const HALF: Measure = Measure::less("size after half of the time", "kB");
const LAST: Measure = Measure::less("size at the end", "kB");
const ROWS: Measure = Measure::less("rows per key of the last minute", "");

/// Each task acquires at most fifty locks per second.
const TASKS: usize = 8;
const PACE: Duration = Duration::from_millis(20);

/// The number of possible keys, so that a key is rarely used twice.
const KEYS: u64 = 1_000_000_000;

/// After this time, an unused row may be deleted.
const RECENT: Duration = Duration::from_secs(60);

const TTL: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &Args) -> Outcome {
    let time = args.scale(Duration::from_secs(600), Duration::from_millis(500));
    let title =
        format!("Locks on new keys for {time:?}. One in twenty expires after its TTL of {TTL:?}.");
    let mut contest = Contest::new("sql-churn", title);
    contest.warms_up = false;
    for database in [Database::Postgres, Database::MariaDb, Database::Sqlite] {
        let churn = Churn { database, time };
        contest.targets.push(Target::new(churn.leasehold(), ROWS, Bound::AtMost(2.5)));
        contest.add(args, churn);
    }
    // A round takes half an hour, and sizes do not depend on other load on the machine.
    contest.run(&args.once()).await
}

struct Churn {
    database: Database,
    time: Duration,
}

impl Churn {
    const fn leasehold(&self) -> &'static str {
        LockerKind::Sql(self.database).name()
    }
}

#[async_trait]
impl Contestant for Churn {
    fn name(&self) -> String {
        self.leasehold().to_owned()
    }

    async fn round(&mut self, _turn: Turn) -> Round {
        let server = Server::start(self.database).await;
        let client = leasehold::connect(&patiently(&server.url())).await.expect("it is up");
        let first = server.bytes().await;
        let until = Instant::now() + self.time;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            tasks.spawn(churn(client.clone(), until));
        }
        sleep(self.time / 2).await;
        let half = server.bytes().await;
        let locks = tasks.join_all().await.concat();
        let (last, rows) = (server.bytes().await, server.rows().await);
        let recent = locks.iter().filter(|locked| locked.elapsed() < RECENT).count();
        Round::new()
            .with(FIRST, first / 1e3)
            .with(HALF, half / 1e3)
            .with(LAST, last / 1e3)
            .with(ROWS, (recent > 0).then(|| rows / recent as f64))
            .with(Measure::RATE, locks.len() as f64 / self.time.as_secs_f64())
    }
}

/// Returns the time of each lock. Each lock has a new key.
async fn churn(client: LockClient, until: Instant) -> Vec<Instant> {
    let options = LockOptions::new().ttl(TTL).renewal(RenewalMode::Off);
    let (mut locks, mut pace) = (Vec::new(), interval(PACE));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        pace.tick().await;
        let mutex = client.mutex(format!("churn/{}", fastrand::u64(..KEYS))).expect("it is a key");
        let mutex = mutex.with_options(options.clone()).expect("they are possible");
        let guard = mutex.lock().await.expect("the server is up");
        locks.push(Instant::now());
        if fastrand::u8(..20) == 0 {
            forget(guard);
        } else {
            guard.release().await.expect("the server is up");
        }
    }
    locks
}
