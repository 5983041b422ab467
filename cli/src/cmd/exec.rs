//! `leasehold exec`, which `run` makes its commands from.

use std::ffi::OsString;

use crate::exit::Failure;
use crate::supervised;

/// Becomes a command that dies with the process that supervises it. For `run` itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The process that supervises.
    supervisor: i32,

    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only if that cannot be.
pub(crate) fn run(args: &Args) -> Failure {
    supervised::exec(args.supervisor, &args.command)
}
