//! The command line from which this program makes its commands. It is no verb: no user is to find it.

use std::env;
use std::ffi::OsString;

use crate::exit::{self, Failure};
use crate::supervised;

/// The first word of such a command line. The process id of the supervisor follows, and then the command.
pub(crate) const WORD: &str = "__exec";

/// Becomes a command that dies with its supervisor, if the command line asks for one.
///
/// Returns only if it does not, or if that cannot be.
pub(crate) fn run() -> Result<(), Failure> {
    let mut words = env::args_os().skip(1);
    if words.next().is_none_or(|word| word != WORD) {
        return Ok(());
    }
    let supervisor = words.next().and_then(|word| word.to_str()?.parse().ok());
    let command: Vec<OsString> = words.collect();
    match supervisor {
        Some(supervisor) if !command.is_empty() => Err(supervised::exec(supervisor, &command)),
        _ => Err(Failure::new(exit::USAGE, format!("{WORD} is for `leasehold run` itself"))),
    }
}
