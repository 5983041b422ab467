//! Real processes that lock, work, are stopped and are killed, for a few seconds on each store: the checker of histories finds nothing
//! to object to, and finds it at once where the processes only seem to share a store.

use std::process::{Command, Output};

fn judged(store: &str) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-histories"))
        .args([store, "--seconds", "5", "--processes", "4"])
        .output()
        .expect("the program can be started");
    let verdict = String::from_utf8(output.stdout.clone()).expect("it is text");
    (output, verdict)
}

#[track_caller]
fn assert_kept(store: &str) {
    let (output, verdict) = judged(store);

    assert!(output.status.success(), "{verdict}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sqlite_keeps_its_promises() {
    assert_kept("sqlite");
}

#[test]
fn postgres_keeps_its_promises() {
    assert_kept("postgres");
}

#[test]
fn mariadb_keeps_its_promises() {
    assert_kept("mariadb");
}

#[test]
fn a_store_for_each_process_breaks_them() {
    let (output, verdict) = judged("memory");

    assert!(!output.status.success(), "{verdict}");
    assert!(verdict.contains("V1: "), "{verdict}");
}
