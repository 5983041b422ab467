//! A case as a test.

use std::fs::File;
use std::io::Write;

use crate::case::Skipped;
use crate::harness::Harness;
use crate::list::cases;

/// Runs the case `group::name` on the store of `H`, and notes the outcome in the file that the
/// environment variable `LEASEHOLD_CONFORMANCE_LOG` names, if it does.
///
/// # Panics
///
/// If the case fails, or there is no such case.
pub fn run_case<H: Harness>(group: &str, name: &str) {
    let case = cases::<H>().into_iter().find(|case| case.group == group && case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {group}::{name}"));
    let outcome = match case.run() {
        Ok(()) => "passed".to_owned(),
        Err(Skipped(need)) => {
            println!("skipped: {} has no {need}", H::NAME);
            format!("skipped: no {need}")
        }
    };
    if let Some(path) = std::env::var_os("LEASEHOLD_CONFORMANCE_LOG") {
        let line = format!("{}\t{}\t{outcome}\n", H::NAME, case.path());
        let log = File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the log can be written");
    }
}
