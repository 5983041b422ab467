//! The testbed's own Redis Clusters.

use std::time::Duration;

use leasehold_testbed::{ClusterOptions, RedisCluster, RedisOptions, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn a_write_is_replicated_and_all_die_when_dropped() {
    let cluster = RedisCluster::start().await;
    let addresses: Vec<_> = (0..cluster.nodes()).map(|i| cluster.node_address(i)).collect();
    assert_eq!(cluster.url(), format!("redis-cluster://{}", addresses.join(",")));

    let owner = cluster.owner_of("k").await;
    assert_eq!(cluster.command(owner, &["SET", "k", "v"]).await, "+OK");
    let replica = cluster.replica_of(owner).await;
    until("it is copied", async || cluster.command(replica, &["DBSIZE"]).await == ":1").await;
    let moved = cluster.command(replica, &["GET", "k"]).await;
    assert!(moved.ends_with(&cluster.node_address(owner)), "{moved}");
    drop(cluster);

    for address in addresses {
        assert!(TcpStream::connect(address).await.is_err());
    }
}

#[tokio::test]
async fn a_replica_takes_over_from_a_killed_primary_which_comes_back_as_a_replica() {
    let mut cluster = RedisCluster::start().await;
    let first = cluster.owner_of("k").await;
    cluster.command(first, &["SET", "k", "v"]).await;

    cluster.kill(first);
    let second = cluster.until_owned_by_another("k", first).await;

    assert_eq!(cluster.command(second, &["SET", "k", "w"]).await, "+OK");
    cluster.until_settled().await;
    cluster.restart(first).await;
    cluster.until_settled().await;
    assert_eq!(cluster.owner_of("k").await, second);
    assert_eq!(cluster.replica_of(second).await, first);
}

#[tokio::test]
async fn a_paused_primary_is_replaced_too() {
    let cluster = RedisCluster::start().await;
    let first = cluster.owner_of("k").await;

    cluster.pause(first);
    let silence = timeout(Duration::from_millis(100), cluster.command(first, &["PING"])).await;
    assert!(silence.is_err());
    let second = cluster.until_owned_by_another("k", first).await;
    cluster.resume(first);

    cluster.until_settled().await;
    assert_eq!(cluster.replica_of(second).await, first);
}

#[tokio::test]
async fn a_replica_takes_over_when_it_is_told_to() {
    let cluster = RedisCluster::start().await;
    let first = cluster.owner_of("k").await;

    let second = cluster.replica_of(first).await;
    cluster.failover(second).await;
    cluster.until_settled().await;

    assert_eq!(cluster.owner_of("k").await, second);
}

#[tokio::test]
async fn a_slot_moves_with_its_keys() {
    let cluster = ClusterOptions::new().replicas(0).start().await;
    let (old, slot) = (cluster.owner_of("{k}").await, cluster.slot_of("{k}").await);
    let (new, other) = ((old + 1) % 3, (old + 2) % 3);
    for key in ["{k}1", "{k}2", "{k}3"] {
        cluster.command(old, &["SET", key, "v"]).await;
    }

    cluster.begin_migration(slot, old, new).await;
    let ask = cluster.command(old, &["GET", "{k}4"]).await;
    assert_eq!(ask, format!("-ASK {slot} {}", cluster.node_address(new)));
    cluster.move_key("{k}1", old, new).await;
    let again = cluster.command(old, &["MGET", "{k}1", "{k}2"]).await;
    assert!(again.starts_with("-TRYAGAIN"), "{again}");
    cluster.move_keys(slot, old, new).await;
    cluster.end_migration(slot, old, new).await;

    for i in [old, other] {
        let moved = cluster.command(i, &["GET", "{k}2"]).await;
        assert_eq!(moved, format!("-MOVED {slot} {}", cluster.node_address(new)));
    }
    assert_eq!(cluster.command(new, &["MGET", "{k}1", "{k}2"]).await, "*2\r\n$1\r\nv\r\n$1\r\nv");
    assert_eq!(cluster.owner_of("{k}").await, new);
    cluster.until_settled().await;
}

#[tokio::test]
async fn an_isolated_node_does_not_answer_clients() {
    let cluster = ClusterOptions::new().proxied().start().await;
    let owner = cluster.owner_of("k").await;
    let mut stream = TcpStream::connect(cluster.node_address(owner)).await.unwrap();

    cluster.isolate(owner);
    stream.write_all(b"SET k v\r\n").await.unwrap();
    let silence = timeout(Duration::from_millis(100), stream.read_u8()).await;
    assert!(silence.is_err());
    assert_eq!(cluster.command(owner, &["GET", "k"]).await, "$-1");
    cluster.heal();

    assert_eq!(stream.read_u8().await.unwrap(), b'+');
    let other = cluster.command((owner + 1) % 3, &["GET", "k"]).await;
    assert!(other.ends_with(&cluster.node_address(owner)), "{other}");
}

#[tokio::test]
async fn users_and_tls_are_in_force_and_let_nodes_in() {
    let nodes = RedisOptions::new().acl("user default off");
    let nodes = nodes.acl("user locker on >secret ~lock:* +@all");
    let cluster = ClusterOptions::new().nodes(nodes.tls()).proxied().start().await;
    assert!(cluster.url().starts_with("rediss-cluster://127.0.0.1:"));
    assert!(cluster.certificates().authority().exists());
    let (owner, slot) = (cluster.owner_of("k").await, cluster.slot_of("k").await);
    cluster.command(owner, &["SET", "k", "v"]).await;

    let new = (owner + 1) % 3;
    cluster.migrate_slot(slot, owner, new).await;

    assert_eq!(cluster.command(new, &["GET", "k"]).await, "$1\r\nv");
    cluster.until_settled().await;
    let moved = cluster.command(owner, &["GET", "k"]).await;
    assert!(moved.starts_with(&format!("-MOVED {slot} ")), "{moved}");
}

#[tokio::test]
async fn one_node_may_be_a_cluster() {
    let cluster = ClusterOptions::new()
        .primaries(1)
        .replicas(0)
        .nodes(RedisOptions::new().args(["--maxmemory", "100mb"]))
        .start()
        .await;

    assert_eq!(cluster.command(0, &["SET", "k", "v"]).await, "+OK");
}
