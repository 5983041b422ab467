//! One task with one key on Redis.

use std::sync::Arc;

use leasehold_testbed::Redis;

use super::cycle::{self, Keys};
use crate::args::Args;
use crate::contest::Contest;
use crate::lockers::LockerKind;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::store::Store;
use crate::target::{Bound, Target};

pub(super) async fn run(args: &Args) -> Outcome {
    let redis = Arc::new(Redis::start().await);
    let mut contest = Contest::new("redis-one", "Redis, one task, one key: lock and release");
    let store = || (redis.url(), Some(Store::new(&redis)));
    cycle::add(&mut contest, args, &LockerKind::ON_REDIS, (1, Keys::Own), store).await;
    contest.targets = targets();
    contest.run(args).await
}

/// The floors have no fencing tokens.
fn targets() -> Vec<Target> {
    let rate =
        |kind: LockerKind, bound| Target::new(kind.name(), Measure::RATE, Bound::AtLeast(bound));
    vec![
        rate(LockerKind::Redis, 1.0).beside(LockerKind::RedisFloor.name()),
        rate(LockerKind::RedisDyn, 0.93).beside(LockerKind::RedisFloor.name()),
        rate(LockerKind::Fred, 0.93).beside(LockerKind::FredFloor.name()),
        rate(LockerKind::Redis, 1.0).beside(LockerKind::Rslock.name()),
    ]
}
