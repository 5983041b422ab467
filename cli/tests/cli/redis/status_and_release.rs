//! The verbs `status` and `release`.

use super::*;

#[test]
fn status_names_the_holder_and_the_time_left() {
    let redis = redis();
    let status = |args: &[&str]| leasehold(&redis).arg("status").args(args).output().unwrap();
    let free = status(&["job"]);
    assert_eq!((code(&free), text(&free.stdout).trim()), (1, "job: free"));

    let mut holder = Running::start(&mut run(&redis, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
    let token = holder.line();
    let held = status(&["job"]);
    assert_eq!(code(&held), 0);
    let said = text(&held.stdout);
    assert!(said.contains(&format!("/{})", holder.id())), "{said}");
    let (_, left) = said.split_once("for another ").expect("it says for how long");
    let left: f64 = left.split_once('s').expect("in seconds").0.parse().unwrap();
    assert!((10.0..=30.0).contains(&left), "{said}");
    assert!(said.contains(&token), "{said}");

    let json: serde_json::Value =
        serde_json::from_slice(&status(&["--json", "job"]).stdout).unwrap();
    assert_eq!(json["held"], true);
    assert_eq!(json["key"], "job");
    assert_eq!(json["last_token"].to_string(), token);
    assert_eq!(json["holders"][0]["lease"].as_str().unwrap().len(), 8);
    assert!(json["holders"][0]["remaining_ms"].as_u64().unwrap() > 20_000);
    let value = ask(&redis, &["GET", "lock:job"]);
    let secret = value.split_once("\r\n").unwrap().1.split(' ').next().unwrap();
    assert!(!json.to_string().contains(&secret[..16]) && !said.contains(&secret[..16]));
}

#[test]
fn a_holder_that_is_asked_ends_if_it_wants_to() {
    let redis = redis();
    let ask_for_it = || leasehold(&redis).args(["release", "--ask", "job"]).output().unwrap();
    assert_eq!(code(&ask_for_it()), 1, "it is free");
    let deaf = "trap \"exit 3\" TERM; echo in; while true; do sleep 0.01; done";

    let mut holder = Running::start(&mut run(&redis, &["--on-asked", "term"], deaf));
    assert_eq!(holder.line(), "in");
    assert_eq!(code(&ask_for_it()), 0);
    assert_eq!(holder.end().0, Some(3));

    let mut holder = Running::start(&mut run(&redis, &[], deaf));
    assert_eq!(holder.line(), "in");
    assert_eq!(code(&ask_for_it()), 0);
    holder.signal("TERM");
    assert_eq!(holder.end().0, Some(3), "it went on until then");
}

#[test]
fn a_forced_release_frees_the_lock_and_stops_the_holder() {
    let redis = redis();
    let mut holder = Running::start(&mut run(&redis, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
    let token: u64 = holder.line().parse().unwrap();

    let forced = leasehold(&redis).args(["release", "--force", "job"]).output().unwrap();

    assert_eq!(code(&forced), 0);
    let said = text(&forced.stdout);
    let (_, stale) = said.split_once("tokens below ").unwrap();
    let stale: u64 = stale.split(' ').next().unwrap().parse().unwrap();
    assert!(stale > token);
    let (exit, complaint) = holder.end();
    assert_eq!(exit, Some(76), "{complaint}");
    let next = run(&redis, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
    assert!(text(&next.stdout).trim().parse::<u64>().unwrap() >= stale);

    let again = leasehold(&redis).args(["release", "--force", "job"]).output().unwrap();
    assert_eq!((code(&again), text(&again.stdout).trim()), (1, "job: was free"));
    let careless = leasehold(&redis).args(["release", "job"]).output().unwrap();
    assert_eq!(code(&careless), 64);
}
