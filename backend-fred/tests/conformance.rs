//! The suite with this client crate: on one real Redis in driven time and in real time, on one that sentinels name and on a cluster.

use std::convert::identity;
use std::process::ExitCode;

use leasehold_conformance::{Groups, Need, Subject, Suites};
use leasehold_fred::FredBackend as Backend;
use leasehold_redis_tests::{
    CLUSTER_LACKS, Cluster, Driven, FAULTS_OF_SINGLE, OF_REAL_TIME, Sentinels, Single, harness,
};

harness!(OneRedis, "fred", Driven, Backend, identity, &[], {});
harness!(OneInRealTime, "fred, real time", Single, Backend, identity, FAULTS_OF_SINGLE, {
    const SUBJECTS: &[Subject] = OF_REAL_TIME;
});
harness!(Sentinel, "fred, Sentinel", Sentinels, Backend, identity, &Need::FAULTS, {
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
    // Under load, the primary that sentinels name is one server like any other.
    const SUBJECTS: &[Subject] = &[Subject::Network, Subject::Store];
});
harness!(OnCluster, "fred, Cluster", Cluster, Backend, identity, &Need::FAULTS, {
    // Names and scripts are those of the other client crate, and so is the choice of the server.
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
    const LACKS: &[Need] = CLUSTER_LACKS;
});

fn main() -> ExitCode {
    Suites::new()
        .with::<OneRedis>("")
        .with::<OneInRealTime>("real_time")
        .with::<Sentinel>("sentinel")
        .with::<OnCluster>("cluster")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
