//! Writes the log of a run to a file shared by all tests.

use std::env;
use std::fs::File;
use std::io::Write;

/// Appends a line to the file that the environment variable `LEASEHOLD_CONFORMANCE_LOG` names, if
/// it is set.
pub(crate) fn write(cells: &[&str]) {
    let Some(path) = env::var_os("LEASEHOLD_CONFORMANCE_LOG") else { return };
    let line = cells.join("\t") + "\n";
    let log = File::options().create(true).append(true).open(path);
    log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the log can be written");
}
