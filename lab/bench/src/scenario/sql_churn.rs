//! Keys that come and go on databases, some of which are left to their TTL: how large the tables become.

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
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;

const FIRST: Measure = Measure::less("size when it begins", "kB");
const HALF: Measure = Measure::less("size after half of it", "kB");
const LAST: Measure = Measure::less("size when it ends", "kB");

/// Each tries to lock and release fifty times a second: a pace that leaves the machine time for other things.
const TASKS: usize = 8;
const PACE: Duration = Duration::from_millis(20);

/// Many more than there are locks.
const KEYS: u64 = 1_000_000_000;

const TTL: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &Args) -> Outcome {
    let time = args.scale(Duration::from_secs(600), Duration::from_millis(500));
    let title =
        format!("{time:?} of locks on fresh keys, one in twenty left to its TTL of {TTL:?}");
    let mut contest = Contest::new("sql-churn", title);
    contest.warms_up = false;
    for database in [Database::Postgres, Database::MariaDb, Database::Sqlite] {
        contest.add(args, Churn { database, time });
    }
    // One takes half an hour, and sizes do not depend on other load on the machine.
    contest.run(&args.once()).await
}

struct Churn {
    database: Database,
    time: Duration,
}

#[async_trait]
impl Contestant for Churn {
    fn name(&self) -> String {
        format!("leasehold, {}", self.database.name())
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
        let locks: u32 = tasks.join_all().await.into_iter().sum();
        let last = server.bytes().await;
        Round::new()
            .with(FIRST, first / 1e3)
            .with(HALF, half / 1e3)
            .with(LAST, last / 1e3)
            .with(Measure::RATE, f64::from(locks) / self.time.as_secs_f64())
    }
}

async fn churn(client: LockClient, until: Instant) -> u32 {
    let options = LockOptions::new().ttl(TTL).renewal(RenewalMode::Off);
    let (mut locks, mut pace) = (0, interval(PACE));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        pace.tick().await;
        let mutex = client.mutex(format!("churn/{}", fastrand::u64(..KEYS))).expect("it is a key");
        let mutex = mutex.with_options(options.clone()).expect("they are possible");
        let guard = mutex.lock().await.expect("the server is up");
        locks += 1;
        if fastrand::u8(..20) == 0 {
            forget(guard);
        } else {
            guard.release().await.expect("the server is up");
        }
    }
    locks
}
