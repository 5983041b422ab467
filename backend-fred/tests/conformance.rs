//! The suite with this client crate: on one real Redis in driven time and in real time, on one that sentinels name and on a cluster.

use std::convert::identity;
use std::time::Duration;

use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{Disturbance, Groups, Harness, Need, Subject, Time, suite};
use leasehold_core::{Holder, LockKey};
use leasehold_fred::FredBackend as Backend;

use family::{
    CLUSTER_LACKS, Cluster, Driven, FAILS, OF_CLUSTER, OF_REAL_TIME, Sentinels, Servers as _,
    Single,
};

#[macro_use]
#[path = "../../redis-support/tests/family/conformance.rs"]
mod family;

harness!(OneRedis, "fred", Driven, Backend, identity, &[], {});
harness!(OneInRealTime, "fred, real time", Single, Backend, identity, FAILS, {
    const SUBJECTS: &[Subject] = OF_REAL_TIME;
});
harness!(Sentinel, "fred, Sentinel", Sentinels, Backend, identity, FAILS, {
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
});
harness!(OnCluster, "fred, Cluster", Cluster, Backend, identity, FAILS, {
    const GROUPS: Groups = OF_CLUSTER;
    const LACKS: &[Need] = CLUSTER_LACKS;
});

suite!(OneRedis);

mod real_time {
    use super::*;

    suite!(OneInRealTime);
}

mod sentinel {
    use super::*;

    suite!(Sentinel);
}

mod cluster {
    use super::*;

    suite!(OnCluster);
}

#[test]
fn the_cases_that_run_here_are_documented() {
    const PAGE: &str = include_str!("../../docs/conformance.md");

    assert_documented::<OneRedis>(PAGE);
    assert_documented::<OneInRealTime>(PAGE);
    assert_documented::<Sentinel>(PAGE);
    assert_documented::<OnCluster>(PAGE);
}
