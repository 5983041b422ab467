//! The testbed's own servers.

use std::time::Duration;

use leasehold_testbed::{Redis, RedisOptions};
use tokio::time::timeout;

#[tokio::test]
async fn a_server_answers_until_it_is_dropped() {
    let redis = Redis::start().await;
    assert_eq!(redis.command(&["SET", "k", "v"]).await, "+OK");
    assert_eq!(redis.command(&["GET", "k"]).await, "$1\r\nv");

    let address = redis.address();
    drop(redis);

    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_paused_server_is_silent_and_goes_on_where_it_was() {
    let redis = Redis::start().await;

    redis.pause();
    let silence = timeout(Duration::from_millis(200), redis.command(&["PING"])).await;
    assert!(silence.is_err());

    redis.resume();
    assert_eq!(redis.command(&["PING"]).await, "+PONG");
}

#[tokio::test]
async fn a_restart_keeps_what_was_saved_and_nothing_else() {
    let mut forgetful = Redis::start().await;
    let mut durable = RedisOptions::new().append_only().start().await;
    for redis in [&mut forgetful, &mut durable] {
        redis.command(&["SET", "k", "v"]).await;
        redis.kill();
        redis.restart().await;
    }

    assert_eq!(forgetful.command(&["GET", "k"]).await, "$-1");
    assert_eq!(durable.command(&["GET", "k"]).await, "$1\r\nv");
}

#[tokio::test]
async fn a_server_is_shut_down_in_order() {
    let mut redis = RedisOptions::new().args(["--maxmemory", "100mb"]).start().await;

    redis.terminate();
    redis.restart().await;

    assert!(redis.command(&["CONFIG", "GET", "maxmemory"]).await.ends_with("104857600"));
}

#[tokio::test]
async fn servers_die_when_a_test_panics() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async {
        let redis = Redis::start().await;
        sender.send(redis.address()).unwrap();
        panic!("as a test does");
    });

    assert!(panicked.await.unwrap_err().is_panic());
    assert!(tokio::net::TcpStream::connect(receiver.await.unwrap()).await.is_err());
}

#[tokio::test]
async fn access_rules_and_tls_are_in_force() {
    let redis = RedisOptions::new()
        .acl("user default off")
        .acl("user locker on >secret ~lock:* +@all")
        .tls()
        .start()
        .await;

    assert!(redis.command(&["PING"]).await.starts_with("-NOAUTH"));
    assert!(redis.tls_url().starts_with("rediss://localhost:"));
    assert!(redis.certificates().authority().exists());
}
