//! The suite with this client crate: on one real Redis, on one that sentinels name and on a cluster.

use std::convert::identity;
use std::time::Duration;

use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{Disturbance, Groups, Harness, Need, suite};
use leasehold_core::{Holder, LockKey};
use leasehold_fred::FredBackend as Backend;

use family::{
    CLUSTER_LACKS, Cluster, FAILS, FAILS_AND_ADVANCES, OF_CLUSTER, Sentinels, Servers as _, Single,
};

#[macro_use]
#[path = "../../redis-support/tests/family/conformance.rs"]
mod family;

harness!(OneRedis, "fred", Single, Backend, identity, FAILS_AND_ADVANCES, {});
harness!(Sentinel, "fred, Sentinel", Sentinels, Backend, identity, FAILS, {
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
});
harness!(OnCluster, "fred, Cluster", Cluster, Backend, identity, FAILS, {
    const GROUPS: Groups = OF_CLUSTER;
    const LACKS: &[Need] = CLUSTER_LACKS;
});

suite!(OneRedis);

mod sentinel {
    use super::*;

    suite!(Sentinel);
}

mod cluster {
    use super::*;

    suite!(OnCluster);
}

#[test]
fn what_runs_here_is_documented() {
    const PAGE: &str = include_str!("../../docs/conformance.md");

    assert_documented::<OneRedis>(PAGE);
    assert_documented::<Sentinel>(PAGE);
    assert_documented::<OnCluster>(PAGE);
}
