//! The command on a quorum of three real servers.

use leasehold_testbed::Redis;
use serde_json::Value;

use crate::operator;
use crate::support::{Running, block_on, code, leasehold_on, run_on, text};

/// Servers that are no members yet.
fn servers() -> [Redis; 3] {
    [(); 3].map(|()| block_on(Redis::start()))
}

/// The quorum of these servers, with time for a machine that is busy.
fn url(servers: &[Redis]) -> String {
    let hosts: Vec<String> = servers.iter().map(Redis::address).collect();
    format!("redlock+redis://{}?member-timeout-ms=10000", hosts.join(","))
}

fn status_in_json(url: &str) -> Value {
    let status = leasehold_on(url).args(["status", "--json", "job"]).output().unwrap();
    serde_json::from_slice(&status.stdout).unwrap()
}

#[test]
fn command_runs_while_one_of_three_members_is_dead() {
    let mut servers = servers();
    let url = url(&servers);
    let print_token = || {
        let output = run_on(&url, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
        assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
        text(&output.stdout).trim().parse::<u64>().unwrap()
    };
    let first = print_token();

    servers[1].kill();

    assert!(print_token() > first);
    servers[2].kill();
    let output = run_on(&url, &["--wait", "0s"], "echo ran").output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (69, String::new()));
    let complaint = text(&output.stderr);
    assert!(complaint.contains(&servers[1].address()), "{complaint}");
    assert!(complaint.contains(&servers[2].address()), "{complaint}");
}

#[test]
fn status_shows_the_view_of_each_member() {
    let mut servers = servers();
    let url = url(&servers);
    let mut holder = Running::start(&mut run_on(&url, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
    let token: u64 = holder.line().parse().unwrap();
    servers[0].kill();

    let status = leasehold_on(&url).args(["status", "job"]).output().unwrap();

    assert_eq!(code(&status), 0);
    let said = text(&status.stdout);
    let dead = format!("job: on {}: ", servers[0].address());
    assert!(said.contains(&dead) && !said.contains(&format!("{dead}held")), "{said}");
    for server in &servers[1..] {
        assert!(said.contains(&format!("job: on {}: held by ", server.address())), "{said}");
    }
    let json = status_in_json(&url);
    assert_eq!(json["held"], true);
    assert!(json["last_token"].as_u64().unwrap() >= token, "{json}");
    let members = json["members"].as_array().unwrap();
    let votes: Vec<_> = members.iter().map(|member| member["vote"] == true).collect();
    assert_eq!(votes.iter().filter(|vote| **vote).count(), 2, "{json}");
    for member in members {
        assert_eq!(member["vote"] == true, member["failure"].is_null(), "{member}");
        assert_eq!(member["vote"] == true, member["holders"].is_array(), "{member}");
    }
}

#[test]
fn store_of_one_server_has_no_members() {
    let server = block_on(Redis::start());

    assert!(status_in_json(&server.url()).get("members").is_none());
}

#[test]
fn quorums_of_other_members_are_refused() {
    let servers = servers();
    assert_eq!(code(&run_on(&url(&servers), &[], "true").output().unwrap()), 0);
    let other = block_on(Redis::start());
    let [a, b, _] = servers.each_ref().map(Redis::address);
    let hosts = [a, b, other.address()].join(",");

    let stranger = run_on(&format!("redlock+redis://{hosts}"), &[], "echo ran").output().unwrap();

    assert_eq!((code(&stranger), text(&stranger.stdout)), (64, String::new()));
    let complaint = text(&stranger.stderr);
    assert!(complaint.contains("is configured for a different quorum"), "{complaint}");
}

#[test]
fn two_names_of_one_server_are_refused() {
    let servers = servers();
    let [one, other, _] = servers.each_ref().map(Redis::address);
    let same = other.replace("127.0.0.1", "localhost");

    let twice = format!("redlock+redis://{one},{other},{same}");
    let refused = run_on(&twice, &[], "echo ran").output().unwrap();

    assert_eq!((code(&refused), text(&refused.stdout)), (64, String::new()));
    assert!(text(&refused.stderr).contains("the same server"), "{}", text(&refused.stderr));
}

#[test]
fn holder_that_is_asked_ends_if_it_wants_to() {
    operator::asks_for_the_lock(&url(&servers()));
}

#[test]
fn forced_release_ends_the_lease_on_all_members() {
    operator::forces_a_release(&url(&servers()));
}
