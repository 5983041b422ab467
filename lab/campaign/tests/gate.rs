//! Short campaigns. The checker finds no violation, unless each process has a separate store.

use std::process::{Command, Output};

use leasehold_conformance::Rule;
use leasehold_conformance::history::run::Run;
use leasehold_testbed::Folder;

/// Runs a campaign without a firewall, which takes no rights.
pub(crate) fn campaign(args: &[&str]) -> (Output, Run) {
    let folder = Folder::in_memory("campaign-");
    let file = folder.path().join("runs.json");
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-campaign"))
        .args(args)
        .args(["--seed", "1", "--json"])
        .arg(&file)
        .output()
        .expect("the program can be started");
    let json = std::fs::read(file).expect("the runs were written");
    let runs: Vec<Run> = serde_json::from_slice(&json).expect("they are runs");
    let [run] = <[Run; 1]>::try_from(runs).expect("one class was asked for");
    (output, run)
}

#[track_caller]
fn assert_kept(class: &str, seconds: &str, faults: usize) {
    let (output, run) = campaign(&[class, "--seconds", seconds]);

    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(run.faults.len() >= faults, "{said}");
    assert!(run.figures.faults_on_holds > 0, "{said}");
}

#[test]
fn one_redis_keeps_its_promises() {
    assert_kept("redis", "45", 6);
}

#[test]
fn redis_with_sentinel_keeps_its_promises() {
    assert_kept("sentinel", "45", 6);
}

#[test]
fn sqlite_keeps_its_promises() {
    assert_kept("sqlite", "12", 1);
}

#[test]
fn postgres_keeps_its_promises() {
    assert_kept("postgres", "12", 1);
}

#[test]
fn mariadb_keeps_its_promises() {
    assert_kept("mariadb", "12", 1);
}

#[test]
fn a_store_for_each_process_breaks_them() {
    let (output, run) = campaign(&["memory", "--seconds", "2"]);

    assert!(!output.status.success());
    // A stale write (`fencing`) requires a pause at a certain moment, so `checker.rs` tests this rule.
    for rule in [Rule::Exclusion, Rule::TokenOrder, Rule::EntryOrder] {
        assert!(run.figures.violations.contains_key(&rule), "{:?}", run.figures.violations);
    }
}
