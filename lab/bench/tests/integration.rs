//! The bench runs, and measures everything that it promises. These tests do not check any figure.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// Runs the bench, as short as it can be.
fn measured(scenarios: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("temporary folders can be made");
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(scenarios)
        .args(["--quick", "--rounds", "1", "--markdown", "--json"])
        .arg(&json)
        .arg("--svg")
        .arg(folder.path())
        .output()
        .expect("the bench can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let tables = String::from_utf8(output.stdout).expect("it is text");
    let all: Value = serde_json::from_slice(&fs::read(json).expect("it was written")).unwrap();
    assert_eq!(all["quick"], true);
    let outcomes = all["outcomes"].as_array().expect("there are some").clone();
    for outcome in &outcomes {
        let name = outcome["scenario"].as_str().expect("it is text");
        assert!(tables.contains(&format!("<!-- bench: {name} -->")), "{tables}");
        let plot = fs::read_to_string(folder.path().join(format!("{name}.svg")));
        assert!(plot.expect("it was drawn").contains("</svg>"));
    }
    outcomes
}

/// The figures of all contestants that have this measure.
fn figures(outcome: &Value, measure: &str) -> Vec<f64> {
    let all = outcome["figures"].as_array().expect("there are some");
    let of = all.iter().find(|figures| figures["measure"]["name"] == measure);
    let rows = of.unwrap_or_else(|| panic!("no {measure}: {outcome}"))["rows"].as_array();
    rows.expect("there are some")
        .iter()
        .filter_map(|row| row["spread"]["median"].as_f64())
        .collect()
}

fn assert_complete(outcome: &Value, measure: &str) {
    let figures = figures(outcome, measure);
    let contestants = outcome["contestants"].as_array().expect("there are some");
    assert_eq!(figures.len(), contestants.len(), "{measure}: {outcome}");
    assert!(figures.iter().all(|figure| *figure > 0.0), "{measure}: {figures:?}");
}

#[test]
fn a_lock_is_measured_beside_all_others() {
    let [memory, one] = &measured(&["memory", "redis-one"])[..] else {
        panic!("two were asked for")
    };

    assert_complete(memory, "time per lock");
    for measure in ["locks per second", "p50", "p99"] {
        assert_complete(one, measure);
    }
    assert_eq!(one["targets"].as_array().map(Vec::len), Some(4));
}

#[test]
fn locks_on_a_cluster_are_measured_beside_those_on_a_server() {
    let outcomes = measured(&["redis-cluster"]);

    assert_eq!(outcomes.len(), 2);
    for outcome in &outcomes {
        assert_complete(outcome, "locks per second");
        assert_eq!(outcome["targets"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_hot_key_is_measured_with_the_servers_own_counts() {
    let [hot] = &measured(&["redis-hot"])[..] else { panic!("one was asked for") };

    assert_complete(hot, "locks per second");
    // The first has no server, and hears of nothing.
    assert!(figures(hot, "requests per lock").iter().skip(1).all(|requests| *requests > 0.0));
}

#[test]
fn processes_measure_together() {
    let outcomes = measured(&["redis-hand-over", "redis-crowd", "--only", "leasehold"]);

    let [hand_over, crowd] = &outcomes[..] else { panic!("two were asked for") };
    assert_complete(hand_over, "fraction handed off");
    for measure in ["commands sent per hand-off", "CPU per hand-off"] {
        assert_complete(crowd, measure);
    }
    assert_eq!(figures(crowd, "never served"), [0.0, 0.0]);
}

#[test]
fn leases_are_held_and_counted() {
    let scenarios = ["redis-held", "redis-held-million", "--only", "leasehold"];
    let [held, million] = &measured(&scenarios)[..] else { panic!("two were asked for") };

    assert_eq!(figures(held, "lost"), [0.0, 0.0]);
    assert_eq!(figures(million, "lost"), [0.0]);
    assert_complete(held, "memory per lease");
    assert_complete(million, "memory per lease");
}

#[test]
fn waiters_in_line_are_served_and_their_servers_work_measured() {
    let [waiting] = &measured(&["redis-waiting"])[..] else { panic!("one was asked for") };

    assert_complete(waiting, "scripts per turn");
    // No waiter needs to ask for its place again in so short a time.
    assert_eq!(figures(waiting, "server's CPU while all wait").len(), 1);
}

#[test]
fn a_quorum_is_measured_beside_one_server() {
    let [lock, waiters] = &measured(&["quorum"])[..] else { panic!("two are measured") };

    assert_complete(lock, "locks per second");
    assert_complete(waiters, "locks per second");
}

#[test]
fn locks_on_databases_are_measured_beside_their_own() {
    let outcomes = measured(&["postgres-lock", "mariadb-lock", "sqlite-lock"]);

    assert_eq!(outcomes.len(), 10);
    for outcome in &outcomes {
        assert_complete(outcome, "locks per second");
    }
}

#[test]
fn locks_on_zookeeper_are_measured_beside_those_of_curator() {
    let outcomes = measured(&["zookeeper-lock", "zookeeper-hand-over", "zookeeper-held"]);

    let [lock, in_memory, hand_over, held] = &outcomes[..] else { panic!("four are measured") };
    assert_complete(lock, "locks per second");
    assert_complete(in_memory, "locks per second");
    assert_complete(hand_over, "hand-offs per second");
    assert_complete(held, "acquired per second");
    assert_eq!(figures(held, "lost"), [0.0]);
}

/// SQLite's own lock has no queue: it may pass to no other process for as long as this measures.
#[test]
fn hand_overs_on_databases_are_measured() {
    let [hand_over] = &measured(&["sqlite-hand-over", "--only", "leasehold"])[..] else {
        panic!("one was asked for")
    };

    assert_complete(hand_over, "hand-offs per second");
}

#[test]
fn leases_on_databases_are_held_and_their_tables_sized() {
    let scenarios = ["sql-held", "sql-churn", "sql-snapshot"];
    let [held, churn, snapshot] = &measured(&scenarios)[..] else { panic!("three were asked for") };

    assert_eq!(figures(held, "lost"), [0.0, 0.0, 0.0]);
    assert_complete(held, "memory per lease");
    assert_complete(churn, "size at the end");
    assert_complete(snapshot, "CPU per lock, end ÷ start");
}
