//! Many tasks of one process with one key on Redis.

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

const TASKS: usize = 64;

/// The first is the best that a lock within a process can reach.
const LOCKERS: [LockerKind; 7] = [
    LockerKind::Tokio,
    LockerKind::Redis,
    LockerKind::Fred,
    LockerKind::Rslock,
    LockerKind::RslockEager,
    LockerKind::AsyncRedisLock,
    LockerKind::RedisLock,
];

pub(super) async fn run(args: &Args) -> Outcome {
    let redis = Arc::new(Redis::start().await);
    let title = format!("Redis, {TASKS} tasks of one process, one key: lock and release");
    let mut contest = Contest::new("redis-hot", title);
    let store = || (redis.url(), Some(Store::new(&redis)));
    cycle::add(&mut contest, args, &LOCKERS, (TASKS, Keys::Shared), store).await;
    contest.targets = targets();
    contest.run(args).await
}

fn targets() -> Vec<Target> {
    let at_least =
        |measure, bound| Target::new(LockerKind::Redis.name(), measure, Bound::AtLeast(bound));
    vec![
        at_least(Measure::RATE, 0.25).beside(LockerKind::Tokio.name()),
        at_least(Measure::RATE, 30.0).beside(LockerKind::Rslock.name()),
        at_least(Measure::EVENNESS, 0.5),
        Target::new(LockerKind::Redis.name(), Measure::REQUESTS, Bound::AtMost(0.1)),
        Target::new(LockerKind::Fred.name(), Measure::REQUESTS, Bound::AtMost(0.1)),
    ]
}
