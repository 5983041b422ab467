//! A server that lets one address have few connections.

use std::time::{Duration, Instant};

use leasehold_core::{ErrorKind, LockClient, LockOptions};
use leasehold_testbed::{ZooKeeper, ZooKeeperOptions, until_some};
use leasehold_zookeeper::{ZooKeeperBackend, ZooKeeperConfig};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::TICK;

/// How many connections the server lets an address have.
const LIMIT: usize = 8;

const TTL: Duration = Duration::from_secs(4);

/// How long a waiter may take to acquire a lock that is free.
const SOON: Duration = Duration::from_secs(1);

async fn start() -> ZooKeeper {
    let options = ZooKeeperOptions::new().tick(TICK);
    options.set("maxClientCnxns", &LIMIT.to_string()).start().await
}

async fn try_connect(
    servers: &[String],
) -> Result<LockClient<ZooKeeperBackend>, leasehold_core::Error> {
    let config = ZooKeeperConfig::from_servers(servers).unwrap().tick(TICK).unwrap();
    let options = LockOptions::new().ttl(TTL).outage_wait(Duration::from_secs(60));
    let client = LockClient::builder(ZooKeeperBackend::connect_with(config).await?);
    Ok(client.options(options).build().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_lock_and_a_waiter_is_served_at_the_limit_of_connections() {
    let zookeeper = start().await;
    let servers = zookeeper.endpoints();
    let holder = try_connect(&servers).await.unwrap();
    let guard = holder.mutex("job").unwrap().lock().await.unwrap();
    // As many wait as can connect, and as many again try to.
    let (served, mut serves) = mpsc::unbounded_channel();
    for _ in 0..LIMIT * 2 {
        let (servers, served) = (servers.clone(), served.clone());
        tokio::spawn(async move {
            let client = loop {
                match try_connect(&servers).await {
                    Ok(client) => break client,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
                sleep(SOON / 5).await;
            };
            let guard = client.mutex("job").unwrap().lock().await.unwrap();
            served.send(Instant::now()).unwrap();
            guard.release().await.unwrap();
        });
    }

    assert!(timeout(TTL * 5, guard.lost()).await.is_err(), "its lock is lost");
    let since = Instant::now();
    guard.release().await.unwrap();

    let first = serves.recv().await.unwrap();

    assert!(first - since < SOON, "the first waiter was served after {:?}", first - since);
    for _ in 1..LIMIT * 2 {
        timeout(TTL * 30, serves.recv()).await.expect("all waiters are served");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_names_the_limit_of_connections() {
    let zookeeper = start().await;
    let servers = zookeeper.endpoints();
    let mut clients = Vec::new();
    // The last connection is left to holders.
    while clients.len() < LIMIT - 1 {
        clients.push(until_some("connected", async || try_connect(&servers).await.ok()).await);
    }

    let error = try_connect(&servers).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("maxClientCnxns"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_lock_though_other_programs_use_all_other_connections() {
    let zookeeper = start().await;
    let servers = zookeeper.endpoints();
    let holder = try_connect(&servers).await.unwrap();
    let guard = holder.mutex("job").unwrap().lock().await.unwrap();

    let mut others = Vec::new();
    while others.len() < LIMIT - 1 {
        others.extend(Client::connect(&servers[0]).await);
    }

    let kept = timeout(TTL * 5, guard.lost()).await.is_err();

    assert!(kept, "its lock is lost");
    guard.release().await.unwrap();
}
