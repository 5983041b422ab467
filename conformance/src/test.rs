//! Runs a case as a test.

use std::time::Instant;

use crate::case::Skipped;
use crate::harness::Harness;
use crate::list::cases;
use crate::log;

/// Runs the case `group::name` on the store of `H`. The [`suite!`](crate::suite) macro calls this
/// function.
///
/// If the environment variable `LEASEHOLD_CONFORMANCE_LOG` contains a path, the outcome and the
/// duration in milliseconds are appended to this file.
///
/// # Panics
///
/// Panics if the case fails or does not exist.
pub fn run_case<H: Harness>(group: &str, name: &str) {
    let case = cases::<H>().into_iter().find(|case| case.group == group && case.name == name);
    let case = case.unwrap_or_else(|| panic!("the case {group}::{name} does not exist"));
    let started = Instant::now();
    let outcome = match case.run() {
        Ok(()) => "passed".to_owned(),
        Err(Skipped(need)) => {
            println!("skipped: {} does not support {need}", H::NAME);
            format!("skipped: no {need}")
        }
    };
    let took = started.elapsed().as_millis().to_string();
    log::write(&[H::NAME, &case.path(), &outcome, &took]);
}
