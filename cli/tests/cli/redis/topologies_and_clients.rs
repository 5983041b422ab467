//! Sentinel and cluster, and both client crates.

use leasehold_testbed::{RedisCluster, RedisSentinel};

use super::*;

#[test]
fn of_redis_serve_the_command_alike() {
    let (one, sentinel) = (redis(), block_on(RedisSentinel::start()));
    let cluster = block_on(RedisCluster::start());
    for url in [one.url(), sentinel.url(), cluster.url()] {
        for client in ["redis", "fred"] {
            let url = format!("{url}?client={client}");
            let output = run_on(&url, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
            assert_eq!((code(&output), text(&output.stderr)), (0, String::new()), "{url}");
            assert!(text(&output.stdout).trim().parse::<u64>().is_ok(), "{url}");
        }
    }
}
