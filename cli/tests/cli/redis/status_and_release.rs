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
    assert!(said.contains(&format!("/{} (lease ", holder.id())), "{said}");
    let (_, left) = said.split_once("expires in ").expect("it says for how long");
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
    operator::asks_for_the_lock(&redis().url());
}

#[test]
fn a_forced_release_frees_the_lock_and_stops_the_holder() {
    operator::forces_a_release(&redis().url());
}
