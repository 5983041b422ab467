//! The testbed's own servers.

use std::time::Duration;

use leasehold_testbed::{Pace, Redis, RedisOptions};
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
async fn a_restart_keeps_the_saved_data_and_nothing_else() {
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

/// The server's wall clock, in microseconds.
async fn time(redis: &Redis) -> u64 {
    let reply = redis
        .command(&["EVAL", "local t = redis.call('TIME') return t[1] * 1e6 + t[2]", "0"])
        .await;
    reply.strip_prefix(':').unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_clock_that_stands_still_goes_only_as_it_is_set() {
    const HOUR: Duration = Duration::from_secs(3_600);

    let redis = RedisOptions::new().clock(Pace::Still).start().await;
    let begun = time(&redis).await;
    redis.command(&["SET", "k", "v", "PX", "3600000"]).await;
    for tick in 1..=1_000 {
        redis.clock().advance(Duration::from_millis(1));
        assert_eq!(time(&redis).await, begun + tick * 1_000);
    }
    assert_eq!(redis.command(&["PTTL", "k"]).await, ":3599000");

    redis.clock().advance(HOUR - Duration::from_secs(1));
    assert_eq!(redis.command(&["GET", "k"]).await, "$1\r\nv", "it ends in its last millisecond");
    redis.clock().advance(Duration::from_millis(1));
    assert_eq!(redis.command(&["GET", "k"]).await, "$-1");

    redis.clock().set_back(HOUR + Duration::from_millis(1));
    assert_eq!(time(&redis).await, begun);
}

#[tokio::test]
async fn a_clock_that_runs_is_ahead_of_that_of_the_machine() {
    let redis = RedisOptions::new().clock(Pace::Running).start().await;
    redis.clock().advance(Duration::from_secs(3_600));

    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let shown = Duration::from_micros(time(&redis).await);
    let after = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();

    let ahead = shown - Duration::from_secs(3_600);
    assert!(
        before - Duration::from_micros(1) <= ahead && ahead <= after,
        "{before:?} {ahead:?} {after:?}"
    );
}
