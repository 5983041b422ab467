//! Runs a case as a test.

use std::time::Instant;

use crate::harness::Harness;
use crate::list::cases;
use crate::log;
use crate::need::{Outcome, Skipped};

/// Runs the case `group::name` on the store of `H`.
///
/// If the environment variable `LEASEHOLD_CONFORMANCE_LOG` contains a path, this function appends
/// the outcome and the duration in milliseconds to the file at that path.
///
/// # Panics
///
/// Panics if the case fails or does not exist.
pub(crate) fn run_case<H: Harness>(group: &str, name: &str) -> Outcome {
    let case = cases::<H>().into_iter().find(|case| case.group == group && case.name == name);
    let case = case.unwrap_or_else(|| panic!("the case {group}::{name} does not exist"));
    let started = Instant::now();
    let outcome = case.run();
    let text = match outcome {
        Ok(()) => "passed".to_owned(),
        Err(Skipped(need)) => format!("skipped: no {need}"),
    };
    let took = started.elapsed().as_millis().to_string();
    log::write(&[H::NAME, &case.path(), &text, &took]);
    outcome
}
