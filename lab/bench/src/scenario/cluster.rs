//! Many tasks with a key each on a cluster, beside a server by itself.

use std::time::Duration;

use leasehold_testbed::{ClusterOptions, Redis};

use super::cycle::{self, Keys};
use crate::args::Args;
use crate::contest::Contest;
use crate::lockers::LockerKind;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::target::{Bound, Target};

/// On a server by itself, and on a cluster.
const PAIRS: [(LockerKind, LockerKind); 2] =
    [(LockerKind::Redis, LockerKind::RedisCluster), (LockerKind::Fred, LockerKind::FredCluster)];

/// The cluster has one node: several would compete for the processors of one machine, and the figure is that of a node.
pub(super) async fn run(args: &Args) -> Vec<Outcome> {
    let redis = Redis::start().await;
    let node = ClusterOptions::new().primaries(1).replicas(0).node_timeout(Duration::from_secs(60));
    let cluster = node.start().await;
    let mut outcomes = Vec::new();
    for tasks in [64, 512] {
        let title = format!("One node of a cluster, {tasks} tasks, a key each: lock and release");
        let mut contest = Contest::new(format!("redis-cluster-{tasks}"), title);
        for (by_itself, in_cluster) in PAIRS {
            let keys = (tasks, Keys::Own);
            cycle::add(&mut contest, args, &[by_itself], keys, || (redis.url(), None)).await;
            cycle::add(&mut contest, args, &[in_cluster], keys, || (cluster.url(), None)).await;
            let rate = Target::new(in_cluster.name(), Measure::RATE, Bound::AtLeast(0.9));
            contest.targets.push(rate.beside(by_itself.name()));
        }
        outcomes.push(contest.run(args).await);
    }
    outcomes
}
