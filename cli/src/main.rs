//! The `leasehold` command: runs commands under distributed locks.

mod args;
mod cmd;
mod config;
mod exit;
mod held;
mod key;
mod log;
mod obtain;
mod out;
mod place;
mod signals;
mod store;
mod supervised;
mod time;
mod tree;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use tracing::level_filters::LevelFilter;

use crate::args::{Args, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    run().unwrap_or_else(Failure::report)
}

/// One thread: the supervised command dies with the thread that started it.
fn run() -> Result<ExitCode, Failure> {
    cmd::exec::run()?;
    let matches = config::apply(Args::command())?.try_get_matches();
    let read = matches.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches)));
    let (args, matches) = match read {
        Ok(read) => read,
        Err(usage) => return Ok(exit::usage(&usage)),
    };
    out::set_style(out::Style { json: args.style.json, quiet: args.style.quiet });
    let level = match args.command {
        // The result tells of the forced release, so a warning would tell of it twice.
        Command::Release(_) => LevelFilter::ERROR,
        // Most cases are about faults.
        #[cfg(feature = "verify")]
        Command::Verify(_) => LevelFilter::OFF,
        _ => LevelFilter::WARN,
    };
    store::check_origin(&matches)?;
    log::start(level, args.style.verbose, args.style.quiet)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
    let ended = runtime.block_on(async {
        signals::outlive_file_size_limit()?;
        match args.command {
            Command::Run(run) => cmd::run::run(run).await,
            Command::Hold(hold) => cmd::hold::run(hold).await,
            Command::Elect(elect) => cmd::elect::run(elect).await,
            Command::Status(status) => cmd::status::run(status).await,
            Command::List(list) => cmd::list::run(list).await,
            Command::Watch(watch) => cmd::watch::run(watch).await,
            Command::Top(top) => cmd::top::run(top).await,
            Command::Release(release) => cmd::release::run(release).await,
            Command::Doctor(doctor) => cmd::doctor::run(doctor).await,
            #[cfg(feature = "verify")]
            Command::Verify(verify) => cmd::verify::run(verify).await,
            Command::Acl(acl) => cmd::acl::run(&acl),
            Command::Completions(shell) => cmd::completions::run(&shell),
            Command::Man(man) => cmd::man::run(&man),
        }
    });
    // Each verb has given back its locks, for as long as that makes sense. The end of a runtime would wait for the rest.
    std::mem::forget(runtime);
    ended
}
