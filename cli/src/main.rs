//! The `leasehold` command: runs commands under distributed locks.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the command `leasehold` supervises commands by means of Linux; the library runs elsewhere too"
);

mod args;
mod cmd;
mod exit;
mod held;
mod key;
mod log;
mod obtain;
mod out;
mod signals;
mod store;
mod supervised;
mod time;
mod tree;
mod work;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(usage) => return exit::usage(&usage),
    };
    run(args).unwrap_or_else(Failure::report)
}

/// One thread: the supervised command dies with the thread that started it.
fn run(args: Args) -> Result<ExitCode, Failure> {
    if let Command::Exec(exec) = args.command {
        return Err(cmd::exec::run(&exec));
    }
    out::set_style(out::Style { json: args.style.json, quiet: args.style.quiet });
    log::start(args.style.verbose, args.style.quiet)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
    runtime.block_on(async {
        match args.command {
            Command::Run(run) => cmd::run::run(run).await,
            Command::Status(status) => cmd::status::run(status).await,
            Command::Release(release) => cmd::release::run(release).await,
            Command::Exec(_) => unreachable!("handled before there was a runtime"),
        }
    })
}
