//! The `leasehold` command: runs commands under distributed locks.

mod args;
mod cmd;
mod config;
mod exit;
mod held;
mod help;
mod job;
mod key;
mod lease;
mod log;
mod obtain;
mod out;
mod place;
mod refused;
mod settings;
mod signals;
mod store;
mod time;
mod wanted;
mod work;

use std::process::ExitCode;

use clap::FromArgMatches;
use tracing::level_filters::LevelFilter;

use crate::args::{Args, Command};
use crate::exit::Failure;
use crate::refused::Refused;
use crate::signals::Signals;

fn main() -> ExitCode {
    run().unwrap_or_else(|failure| out::fail(&failure))
}

fn run() -> Result<ExitCode, Failure> {
    if let Some(done) = job::run_helper() {
        return done.map(|()| ExitCode::SUCCESS);
    }
    let args = settings::read(args::definition())?.and_then(|matches| {
        Args::from_arg_matches(&matches).map_err(|error| Refused { error, origin: None })
    });
    let args = match args {
        Ok(args) => args,
        Err(refused) => return Ok(refused.report()),
    };
    out::set_style(out::Style { json: args.style.json, quiet: args.style.quiet });
    let level = match args.command {
        // The result reports the forced release, so a warning would repeat it.
        Command::Release(_) => LevelFilter::ERROR,
        // Most cases provoke faults, which cause warnings.
        #[cfg(feature = "verify")]
        Command::Verify(_) => LevelFilter::OFF,
        _ => LevelFilter::WARN,
    };
    settings::warn_of_misspelled_variables();
    log::start(level, args.style.verbose, args.style.quiet)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(exit::UNSUPERVISED, format!("cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        signals::outlive_file_size_limit()?;
        match args.command {
            Command::Run(run) => cmd::run::run(run).await,
            Command::Hold(hold) => cmd::hold::run(hold).await,
            Command::Elect(elect) => cmd::elect::run(elect).await,
            Command::Status(status) => until_signal(cmd::status::run(status)).await,
            Command::List(list) => until_signal(cmd::list::run(list)).await,
            Command::Watch(watch) => until_signal(cmd::watch::run(watch)).await,
            Command::Top(top) => until_signal(cmd::top::run(top)).await,
            Command::Release(release) => until_signal(cmd::release::run(release)).await,
            Command::Doctor(doctor) => until_signal(cmd::doctor::run(doctor)).await,
            #[cfg(feature = "verify")]
            Command::Verify(verify) => until_signal(cmd::verify::run(verify)).await,
            #[cfg(not(feature = "verify"))]
            Command::Verify(_) => Err(place::disabled("subcommand verify", "verify")),
            Command::Acl(acl) => cmd::acl::run(&acl),
            Command::Tables(tables) => cmd::tables::run(&tables),
            Command::Completions(shell) => cmd::completions::run(&shell, args::definition()),
            Command::Man(man) => cmd::man::run(&man, args::pages()),
        }
    });
    // Each subcommand has released its locks, if that was possible in time. Dropping the runtime would wait for the remaining tasks.
    std::mem::forget(runtime);
    ended
}

/// Runs a subcommand until it is done or a signal terminates it.
async fn until_signal(
    subcommand: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::catch_ending()?;
    tokio::select! {
        done = subcommand => done,
        signal = signals.next() => Err(Failure::signal(signal)),
    }
}
