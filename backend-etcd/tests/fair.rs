//! First come, first served, across processes.

use leasehold_conformance::fairness::Contest;
use leasehold_core::LockOptions;
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::Etcd;

const CONTEST: Contest = Contest::new(20);

/// The work of a process of the test; it does nothing when it is called as a test of its own.
#[tokio::test]
async fn a_process() {
    let connect = async |url: String| EtcdBackend::connect(&url).await.unwrap();
    CONTEST.take_turns(LockOptions::new(), connect).await;
}

#[tokio::test]
async fn claims_are_served_in_the_order_of_acknowledged_places() {
    let server = Etcd::start().await;

    CONTEST.assert_first_come_first_served("fair::a_process", &server.url()).await;
}
