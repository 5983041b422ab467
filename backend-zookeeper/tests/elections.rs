//! Elections, as others see them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{LockClient, LockOptions, TryLockError};
use leasehold_testbed::{ZooKeeper, patiently};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::task::JoinSet;

/// How many terms each candidate that campaigns has.
const TERMS: usize = 20;

async fn client(zookeeper: &ZooKeeper) -> LockClient<ZooKeeperBackend> {
    let backend = ZooKeeperBackend::connect(&patiently(&zookeeper.url())).await.unwrap();
    let options = LockOptions::new().ttl(Duration::from_secs(30));
    LockClient::builder(backend).options(options).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn others_see_only_candidates_that_lead() {
    let zookeeper = ZooKeeper::start().await;
    let led = Arc::new(Mutex::new(HashSet::new()));
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut campaigns, mut tries) = (JoinSet::new(), JoinSet::new());
    for n in 0..2 {
        let election = client(&zookeeper).await.election("job").unwrap();
        let led = Arc::clone(&led);
        campaigns.spawn(async move {
            for term in 0..TERMS {
                let name = format!("campaigns-{n}-{term}");
                let leadership = election.campaign(name.as_str()).await.unwrap();
                led.lock().unwrap().insert(name);
                leadership.resign().await.unwrap();
            }
        });
    }
    for n in 0..2 {
        let election = client(&zookeeper).await.election("job").unwrap();
        let (led, is_over) = (Arc::clone(&led), Arc::clone(&is_over));
        tries.spawn(async move {
            for attempt in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("tries-{n}-{attempt}");
                match election.try_campaign(name.as_str()).await {
                    Ok(leadership) => {
                        led.lock().unwrap().insert(name);
                        leadership.resign().await.unwrap();
                    }
                    Err(TryLockError::Busy(_)) => {}
                    Err(TryLockError::Failed(error)) => panic!("{error}"),
                }
            }
        });
    }
    let election = client(&zookeeper).await.election("job").unwrap();

    let mut seen = HashSet::new();
    while !campaigns.is_empty() {
        let leader = election.leader().await.expect("the key is used by elections alone");
        seen.extend(leader.map(|leader| leader.value().to_string()));
        while let Some(ended) = campaigns.try_join_next() {
            ended.unwrap();
        }
    }
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = tries.join_next().await {
        ended.unwrap();
    }

    let led = led.lock().unwrap();
    let refused: Vec<_> = seen.difference(&led).collect();
    assert!(refused.is_empty(), "{refused:?} were shown as leaders and never led");
}
