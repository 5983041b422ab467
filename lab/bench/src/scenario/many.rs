//! Many tasks with a key each on Redis.

use std::sync::Arc;

use leasehold_testbed::{Redis, RedisOptions};

use super::cycle::{self, Keys};
use crate::args::Args;
use crate::contest::Contest;
use crate::lockers::LockerKind;
use crate::machine::Apart;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::store::Store;
use crate::target::{Bound, Target};

const PEERS: &[&str] =
    &[LockerKind::Rslock.name(), LockerKind::AsyncRedisLock.name(), LockerKind::RedisLock.name()];

/// How many tasks, and how much faster than the floor.
const SIZES: [(usize, f64); 2] = [(64, 1.2), (512, 1.8)];

pub(super) async fn run(args: &Args) -> Vec<Outcome> {
    measure(args, Redis::start().await, ("redis-many", "")).await
}

/// The same, where the server and this process do not compete for processors.
pub(super) async fn run_apart(args: &Args) -> Vec<Outcome> {
    let Some(apart) = Apart::new() else {
        eprintln!("redis-many-apart: left out, since it needs two processors");
        return Vec::new();
    };
    let redis = RedisOptions::new().args(["--server_cpulist".to_owned(), apart.server()]);
    let name = ("redis-many-apart", ", and processors of their own");
    measure(args, redis.start().await, name).await
}

async fn measure(args: &Args, redis: Redis, (name, how): (&str, &str)) -> Vec<Outcome> {
    let redis = Arc::new(redis);
    let mut outcomes = Vec::new();
    for (tasks, of_floor) in SIZES {
        let title = format!("Redis, {tasks} tasks, a key each{how}: lock and release");
        let mut contest = Contest::new(format!("{name}-{tasks}"), title);
        let store = || (redis.url(), Some(Store::new(&redis)));
        cycle::add(&mut contest, args, &LockerKind::ON_REDIS, (tasks, Keys::Own), store).await;
        let rate = |kind: LockerKind, bound| {
            Target::new(kind.name(), Measure::RATE, Bound::AtLeast(bound))
        };
        contest.targets = vec![
            rate(LockerKind::Redis, of_floor).beside(LockerKind::RedisFloor.name()),
            rate(LockerKind::Fred, 1.2).beside(LockerKind::FredFloor.name()),
            rate(LockerKind::Redis, 1.0).beside_best_of(PEERS),
            Target::new(LockerKind::Redis.name(), Measure::P99, Bound::AtMost(1.0))
                .beside(LockerKind::RedisFloor.name()),
        ];
        outcomes.push(contest.run(args).await);
    }
    outcomes
}
