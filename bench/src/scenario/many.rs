//! Many tasks with a key each on Redis.

use std::sync::Arc;

use leasehold_testbed::Redis;

use super::cycle::{self, Keys};
use crate::args::Args;
use crate::contest::Contest;
use crate::lockers::Who;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::store::Store;
use crate::target::{Bound, Target};

const PEERS: &[&str] = &[Who::Rslock.name(), Who::AsyncRedisLock.name(), Who::RedisLock.name()];

/// How many tasks; how much faster than the floor, and how much than the best peer.
const SIZES: [(usize, f64, f64); 2] = [(64, 1.2, 1.5), (512, 1.5, 2.0)];

pub(super) async fn run(args: &Args) -> Vec<Outcome> {
    let redis = Arc::new(Redis::start().await);
    let mut outcomes = Vec::new();
    for (tasks, of_floor, of_peers) in SIZES {
        let title = format!("Redis, {tasks} tasks, a key each: lock and release");
        let mut contest = Contest::new(format!("redis-many-{tasks}"), title);
        let store = || (redis.url(), Some(Store::new(&redis)));
        cycle::add(&mut contest, args, &Who::ON_REDIS, (tasks, Keys::Own), store).await;
        let rate = |who: Who, bound| Target::new(who.name(), Measure::RATE, Bound::AtLeast(bound));
        contest.targets = vec![
            rate(Who::Redis, of_floor).beside(Who::RedisFloor.name()),
            rate(Who::Fred, of_floor).beside(Who::FredFloor.name()),
            rate(Who::Redis, of_peers).beside_best_of(PEERS),
        ];
        outcomes.push(contest.run(args).await);
    }
    outcomes
}
