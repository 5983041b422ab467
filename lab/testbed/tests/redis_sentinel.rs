//! The testbed's own Redis servers with sentinels.

use std::time::Duration;

use leasehold_testbed::{RedisOptions, RedisSentinel, SentinelOptions, until};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn a_write_is_replicated_and_all_die_when_dropped() {
    let redis = SentinelOptions::new().replicas(2).start().await;
    let addresses: Vec<_> = (0..redis.nodes())
        .map(|i| redis.node_address(i))
        .chain((0..redis.sentinels()).map(|i| redis.sentinel_address(i)))
        .collect();
    assert_eq!(redis.url(), format!("redis-sentinel://{}/mymaster", addresses[3..].join(",")));

    assert_eq!(redis.primary().await, 0);
    assert_eq!(redis.command(0, &["SET", "k", "v"]).await, "+OK");
    for i in [1, 2] {
        until("it is copied", async || redis.command(i, &["GET", "k"]).await.ends_with('v')).await;
    }
    drop(redis);

    for address in addresses {
        assert!(TcpStream::connect(address).await.is_err());
    }
}

#[tokio::test]
async fn another_primary_is_chosen_when_the_first_is_killed_and_it_comes_back_as_a_replica() {
    let mut redis = SentinelOptions::new().fast().start().await;

    redis.kill(0);
    until("the replica is the primary", async || redis.primary().await == 1).await;
    redis.restart(0).await;

    until("the first copies the second", async || copies(&redis, 0).await).await;
    redis.until_replicated().await;
    redis.kill(1);
    redis.restart(1).await;
    assert!(!copies(&redis, 1).await);
}

#[tokio::test]
async fn a_paused_primary_goes_on_as_one_until_it_is_told() {
    let redis = SentinelOptions::new().fast().start().await;

    redis.pause(0);
    let silence = timeout(Duration::from_millis(100), redis.command(0, &["PING"])).await;
    assert!(silence.is_err());
    until("the replica is the primary", async || redis.primary().await == 1).await;
    redis.resume(0);

    assert_eq!(redis.command(0, &["SET", "k", "lost"]).await, "+OK");
}

#[tokio::test]
async fn sentinels_are_told_to_fail_over_and_one_of_them_may_be_gone() {
    let mut redis = SentinelOptions::new().fast().start().await;

    redis.kill_sentinel(0);
    redis.failover().await;
    assert_eq!(redis.primary().await, 1);

    redis.restart_sentinel(0).await;
    redis.pause_sentinel(1);
    until("it hears of that", async || redis.primary().await == 1).await;
    redis.resume_sentinel(1);
}

#[tokio::test]
async fn an_isolated_primary_is_replaced_and_comes_back() {
    let redis = SentinelOptions::new().fast().proxied().start().await;
    assert_eq!(redis.proxies().len(), 5);

    redis.isolate(0);
    until("the replica is the primary", async || redis.primary().await == 1).await;
    assert_eq!(redis.command(0, &["SET", "k", "lost"]).await, "+OK");
    redis.heal();

    until("the first copies the second", async || copies(&redis, 0).await).await;
    redis.until_replicated().await;
    assert_eq!(redis.command(0, &["GET", "k"]).await, "$-1");
}

#[tokio::test]
async fn users_passwords_and_tls_are_in_force_and_let_servers_in() {
    let nodes = RedisOptions::new().acl("user default off");
    let nodes = nodes.acl("user locker on >secret ~lock:* +@all");
    let redis =
        SentinelOptions::new().nodes(nodes.tls()).sentinel_password("sesame").fast().start().await;
    assert!(redis.url().starts_with("rediss-sentinel://127.0.0.1:"));
    assert!(redis.certificates().authority().exists());

    redis.failover().await;

    assert_eq!(redis.primary().await, 1);
    assert!(redis.command(1, &["ACL", "LIST"]).await.contains("user locker on"));
}

#[tokio::test]
async fn it_starts_plainly_too() {
    let redis = RedisSentinel::start().await;

    redis.failover().await;

    assert_eq!(redis.primary().await, 1);
}

/// Whether a server is a replica by its own account.
async fn copies(redis: &RedisSentinel, i: usize) -> bool {
    redis.command(i, &["ROLE"]).await.contains("slave")
}
