//! Servers that answer, but cannot grant a lock: exit code 73.

use super::*;

/// A wait in which a busy machine makes several attempts, and which ends after one of them.
const WAIT: &str = "--wait=10s";

/// Runs a command under a lock that cannot be granted.
fn refused(redis: &Redis, options: &[&str], says: &str) {
    fails(&mut run(redis, options, "true"), 73, says);
}

#[test]
fn too_few_replicas_are_named_even_if_the_wait_ends_between_two_attempts() {
    let redis = redis();
    let url = format!("{}?wait-replicas=2&wait-replicas-ms=300", redis.url());
    let cause = "only 0 of 2 replicas acknowledged the lock within 300ms";

    for wait in ["--no-wait", WAIT] {
        fails(&mut run_on(&url, &[wait], "true"), 73, cause);
    }
}

#[test]
fn too_few_replicas_to_write_are_named_even_if_the_wait_ends_between_two_attempts() {
    let redis = redis();
    ask(&redis, &["CONFIG", "SET", "min-replicas-to-write", "1"]);

    refused(&redis, &["--no-wait"], "min-replicas-to-write");
    let waited = run(&redis, &[WAIT], "true").output().unwrap();

    let said = text(&waited.stderr);
    assert_eq!(code(&waited), 73, "{said}");
    assert!(said.contains("min-replicas-to-write") && !said.contains("no reply in time"), "{said}");
}

#[test]
fn full_memory_is_named_with_the_remedy() {
    let redis = redis();
    ask(&redis, &["CONFIG", "SET", "maxmemory", "1"]);

    refused(&redis, &["--no-wait"], "raise its maxmemory or delete data (server said: OOM");
}

#[test]
fn replica_is_named() {
    let redis = redis();
    ask(&redis, &["REPLICAOF", "127.0.0.1", "1"]);

    refused(&redis, &["--no-wait"], "this server is a replica; connect to the primary");
}
