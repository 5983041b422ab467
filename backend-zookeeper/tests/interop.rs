//! How it goes with Apache Curator.

mod jobs;

use std::time::Duration;

use leasehold_core::{LockClient, LockOptions};
use leasehold_testbed::{CuratorEvent, ZooKeeper, ZooKeeperOptions, patiently};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::time::timeout;

use self::jobs::{Jobs, Kind};

/// Longer than an election on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// How long a notice may take.
const SOON: Duration = Duration::from_secs(10);

/// Curator's path of our lock `job`.
const PATH: &str = "/locks/job";

async fn client(zookeeper: &ZooKeeper) -> LockClient<ZooKeeperBackend> {
    let options = LockOptions::new().ttl(LONG).outage_wait(LONG).without_description();
    let url = patiently(&format!("{}/locks?tick-ms=500", zookeeper.url()));
    let backend = ZooKeeperBackend::connect(&url).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

mod one_line {
    use super::*;

    #[tokio::test]
    async fn is_that_of_both_libraries() {
        let zookeeper = ZooKeeper::start().await;
        let mut jobs = Jobs::start(&zookeeper).await;

        for _ in 0..3 {
            jobs.ask_ours(&zookeeper, Kind::Mutex).await;
            jobs.ask_curators(&zookeeper, Kind::Mutex).await;
        }

        jobs.run_in_order(async |_| {}).await;
    }

    #[tokio::test]
    async fn is_that_of_readers_and_writers_of_both_libraries() {
        let zookeeper = ZooKeeper::start().await;
        let mut jobs = Jobs::start(&zookeeper).await;

        for kind in [Kind::Reader, Kind::Reader, Kind::Writer, Kind::Writer, Kind::Reader] {
            jobs.ask_ours(&zookeeper, kind).await;
            jobs.ask_curators(&zookeeper, kind).await;
        }

        jobs.run_in_order(async |_| {}).await;
    }
}

mod a_killed_leader {
    use super::*;

    #[tokio::test]
    async fn leaves_forty_jobs_one_at_a_time_and_in_order() {
        run_while_the_leader_is_killed(&[Kind::Mutex; 20]).await;
    }

    #[tokio::test]
    async fn leaves_forty_readers_and_writers_in_order() {
        use Kind::{Reader, Writer};

        run_while_the_leader_is_killed(&[Writer, Reader, Reader, Writer, Reader].repeat(4)).await;
    }

    /// Has a job of each library ask for each of these kinds, and kills the leader just before one of them releases the lock.
    async fn run_while_the_leader_is_killed(kinds: &[Kind]) {
        let mut zookeeper = ZooKeeperOptions::new().members(3).start().await;
        let mut jobs = Jobs::start(&zookeeper).await;
        for kind in kinds {
            jobs.ask_ours(&zookeeper, *kind).await;
            jobs.ask_curators(&zookeeper, *kind).await;
        }
        let first = zookeeper.leader().await;

        jobs.run_in_order(async |turn| {
            if turn == 4 {
                zookeeper.kill_member(first);
            }
        })
        .await;

        assert_ne!(zookeeper.leader().await, first);
    }
}

mod a_request_to_revoke {
    use super::*;

    #[tokio::test]
    async fn reaches_curator() {
        let zookeeper = ZooKeeper::start().await;
        let client = client(&zookeeper).await;
        let mut curator = zookeeper.curator(LONG).await;
        curator.mutex("theirs", PATH).await;
        assert_eq!(curator.event().await, CuratorEvent::Held("theirs".to_owned()));

        client.request_revocation("job").await.unwrap();

        assert_eq!(curator.event().await, CuratorEvent::Asked("theirs".to_owned()));
    }

    #[tokio::test]
    async fn reaches_us_and_leaves_us_the_lock() {
        let zookeeper = ZooKeeper::start().await;
        let client = client(&zookeeper).await;
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let mut curator = zookeeper.curator(LONG).await;

        curator.revoke("theirs", PATH).await;

        assert!(timeout(SOON, guard.revocation_requested()).await.expect("we are told"));
        guard.extend(LONG).await.unwrap();
        curator.mutex("theirs", PATH).await;
        guard.release().await.unwrap();
        while curator.event().await != CuratorEvent::Held("theirs".to_owned()) {}
    }
}
