//! A short campaign finds each flaw of a store.

use leasehold_conformance::history::report;

use crate::gate::campaign;

#[track_caller]
fn assert_found(lie: &str, rule: &str) {
    let args = ["sqlite", "--seconds", "5", "--processes", "2", "--lie", lie];
    let (output, run) = campaign(&args);

    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let found = &run.figures.violations;
    assert!(found.contains_key(rule), "{found:?}");
    assert!(report::html(&[run]).contains(&format!(r#""rule":"{rule}""#)));
}

#[test]
fn second_grants_are_found() {
    assert_found("second-grants", "V1");
}

#[test]
fn empty_renewals_are_found() {
    assert_found("empty-renewals", "V1");
}

#[test]
fn short_leases_are_found() {
    assert_found("short-leases", "V1");
}

#[test]
fn single_units_are_found() {
    assert_found("single-units", "V1");
}

#[test]
fn evictions_are_found() {
    assert_found("evictions", "V1");
}

#[test]
fn stale_tokens_are_found() {
    assert_found("stale-tokens", "tokens");
}
