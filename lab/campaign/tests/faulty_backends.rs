//! A short campaign finds each flaw of a store.

use std::process::Output;

use leasehold_campaign::report;
use leasehold_conformance::Rule;
use leasehold_conformance::history::run::Run;

use crate::gate::campaign;

fn campaign_on(flaw: &str) -> (Output, Run) {
    // Permits are a tenth of all calls: on a busy machine, five seconds see too few of them meet.
    let seconds = if flaw == "single-units" { "15" } else { "5" };
    campaign(&["sqlite", "--seconds", seconds, "--processes", "2", "--flaw", flaw])
}

#[track_caller]
fn assert_found(flaw: &str, rule: Rule) {
    let (output, run) = campaign_on(flaw);

    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let found = &run.figures.violations;
    assert!(found.contains_key(&rule), "{found:?}");
    assert!(report::html(&[run]).contains(&format!(r#""rule":"{rule}""#)));
}

#[test]
fn second_grants_are_found() {
    assert_found("second-grants", Rule::Exclusion);
}

#[test]
fn empty_renewals_are_found() {
    assert_found("empty-renewals", Rule::Exclusion);
}

#[test]
fn short_leases_are_found() {
    assert_found("short-leases", Rule::Exclusion);
}

#[test]
fn single_units_are_found() {
    assert_found("single-units", Rule::Exclusion);
}

#[test]
fn evictions_are_found() {
    assert_found("evictions", Rule::Exclusion);
}

#[test]
fn stale_tokens_are_found() {
    assert_found("stale-tokens", Rule::TokenOrder);
}

#[test]
fn late_replies_break_no_promise() {
    let (output, run) = campaign_on("late-replies");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(run.holds.len() > 20, "{} holds", run.holds.len());
}
