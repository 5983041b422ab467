//! The command on a ZooKeeper that allows only short sessions.

use leasehold_testbed::ZooKeeperOptions;
use serde_json::Value;

use crate::support::{Running, block_on, code, fails, leasehold_on, text};

/// Below the usual TTL: servers with a `tickTime` of half a second have it.
const LONGEST: &str = "10000";

#[test]
fn usual_ttl_gives_way_to_the_longest_that_a_server_allows() {
    let server = block_on(ZooKeeperOptions::new().set("maxSessionTimeout", LONGEST).start());
    let url = server.url();
    let mut holder = leasehold_on(&url);
    let mut holder = Running::start(holder.args(["hold", "job"]));
    assert!(holder.line().starts_with("job: held"));

    let status = leasehold_on(&url).args(["status", "--json", "job"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let doctor = leasehold_on(&url).arg("doctor").output().unwrap();

    assert_eq!(status["holders"][0]["kind"], "mutex", "{status}");
    assert!(status["holders"][0]["remaining_ms"].as_u64() <= Some(10_000), "{status}");
    assert_eq!(code(&doctor), 0, "{}", text(&doctor.stderr));
    let said = text(&doctor.stdout);
    assert!(said.contains("a lock without --ttl has 10s instead of 30s"), "{said}");
    let chosen = ["run", "--ttl", "30", "other", "true"];
    fails(leasehold_on(&url).args(chosen), 64, "ttl: 30s is too long");
    let only = ["verify", "--only", "mutual_exclusion::a_held_lock_is_refused_at_once"];
    let verified = leasehold_on(&url).args(only).output().unwrap();
    assert_eq!(code(&verified), 0, "{}{}", text(&verified.stdout), text(&verified.stderr));
}
