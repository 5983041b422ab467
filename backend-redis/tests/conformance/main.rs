//! The suite with this client crate: on one real Redis in driven time and in real time, on one that sentinels name, on a cluster and on a quorum; also
//! without hand-over in the process, and with mutexes made of other kinds of lock.

use std::convert::identity;
use std::process::ExitCode;

use leasehold_conformance::{AsMutex, Groups, Need, Subject, Suites};
use leasehold_core::LockOptions;
use leasehold_redis::RedisBackend as Backend;
use leasehold_redis_tests::{
    CLUSTER_LACKS, Cluster, Driven, FAULTS_OF_SINGLE, OF_REAL_TIME, Sentinels, Single, harness,
};

mod quorum;

/// A cluster spreads keys over servers: their names, and all scripts that name several keys, meet it.
const OF_CLUSTER: Groups = Groups::Named(&[
    "bad_input",
    "cancellation",
    "fair",
    "fencing",
    "lost",
    "multi_lock",
    "mutual_exclusion",
    "renewal",
    "rw_lock",
    "semaphore",
    "waiting",
]);

/// Without hand-over, all holders of one process ask the store.
const OF_ASKING: Groups = Groups::Named(&["hand_over", "mutual_exclusion", "waiting"]);

harness!(OneRedis, "redis", Driven, Backend, identity, &[], {});
harness!(OneInRealTime, "redis, real time", Single, Backend, identity, FAULTS_OF_SINGLE, {
    const SUBJECTS: &[Subject] = OF_REAL_TIME;
});
harness!(Sentinel, "redis, Sentinel", Sentinels, Backend, identity, &Need::FAULTS, {
    const GROUPS: Groups = Groups::OF_TOPOLOGY;
    // Under load, the primary that sentinels name is one server like any other.
    const SUBJECTS: &[Subject] = &[Subject::Network, Subject::Store];
});
harness!(OnCluster, "redis, Cluster", Cluster, Backend, identity, &Need::FAULTS, {
    const GROUPS: Groups = OF_CLUSTER;
    const LACKS: &[Need] = CLUSTER_LACKS;
});
harness!(Asked, "redis, no hand-over", Single, Backend, identity, FAULTS_OF_SINGLE, {
    const GROUPS: Groups = OF_ASKING;

    fn options(&self) -> LockOptions {
        LockOptions::new().hand_over(false)
    }
});
harness!(Permit, "redis, semaphore(1)", Driven, AsMutex<Backend>, AsMutex::semaphore, &[], {
    const GROUPS: Groups = Groups::OF_KIND;
    const LACKS: &[Need] = AsMutex::<Backend>::LACKS;
});
harness!(WriteLock, "redis, write lock", Driven, AsMutex<Backend>, AsMutex::write_lock, &[], {
    const GROUPS: Groups = Groups::OF_KIND;
    const LACKS: &[Need] = AsMutex::<Backend>::LACKS;
});

fn main() -> ExitCode {
    Suites::new()
        .with::<OneRedis>("")
        .with::<OneInRealTime>("real_time")
        .with::<Sentinel>("sentinel")
        .with::<OnCluster>("cluster")
        .with::<Asked>("no_hand_over")
        .with::<Permit>("permit")
        .with::<WriteLock>("write_lock")
        .with::<quorum::AllAlive>("quorum::all_alive")
        .with::<quorum::TwoKilled>("quorum::two_killed")
        .documented_in(include_str!("../../../docs/conformance-cases.md"))
        .main()
}
