//! The `leasehold` command: runs commands under distributed locks.

mod args;
mod cmd;
mod exit;
mod store;
mod supervised;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(usage) => return exit::usage(&usage),
    };
    match run(args) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// One thread: the supervised command dies with the thread that started it.
fn run(args: Args) -> Result<ExitCode, Failure> {
    if let Command::Exec(exec) = args.command {
        return Err(supervised::exec(exec));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
    runtime.block_on(async {
        match args.command {
            Command::Run(run) => cmd::run::run(run).await,
            Command::Status(status) => cmd::status::run(status).await,
            Command::List(list) => cmd::list::run(list).await,
            Command::Top(top) => cmd::top::run(top).await,
            Command::Release(release) => cmd::release::run(release).await,
            Command::Exec(_) => unreachable!("handled before there was a runtime"),
        }
    })
}
