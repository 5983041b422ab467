//! One task with one key on Redis.

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

pub(super) async fn run(args: &Args) -> Outcome {
    let redis = Arc::new(Redis::start().await);
    let mut contest = Contest::new("redis-one", "Redis, one task, one key: lock and release");
    let store = || (redis.url(), Some(Store::new(&redis)));
    cycle::add(&mut contest, args, &Who::ON_REDIS, (1, Keys::Own), store).await;
    contest.targets = targets();
    contest.run(args).await
}

/// The floors have no fencing tokens.
fn targets() -> Vec<Target> {
    let rate = |who: Who, bound| Target::new(who.name(), Measure::RATE, Bound::AtLeast(bound));
    vec![
        rate(Who::Redis, 0.93).beside(Who::RedisFloor.name()),
        rate(Who::RedisErased, 0.93).beside(Who::RedisFloor.name()),
        rate(Who::Fred, 0.93).beside(Who::FredFloor.name()),
        rate(Who::Redis, 1.0).beside(Who::Rslock.name()),
    ]
}
