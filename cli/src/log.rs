//! The log, on stderr.

use std::io::stderr;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::out;

/// Starts the log with the events that `RUST_LOG` selects, by default those from `level` on. `--verbose` adds events of Leasehold, and
/// `--quiet` turns the log off.
pub(crate) fn start(level: LevelFilter, verbose: u8, quiet: bool) -> Result<(), Failure> {
    let is_default = verbose == 0 && std::env::var_os("RUST_LOG").is_none_or(|it| it.is_empty());
    // By default, the result reports the loss of a lock, and a warning would repeat it.
    let unreported = filter_fn(move |event| !(is_default && event.name() == "leasehold.lost"));
    let filter = match (quiet, verbose, std::env::var("RUST_LOG")) {
        (true, ..) => return Ok(()),
        (false, 0, Ok(directives)) if !directives.is_empty() => Targets::from_str(&directives)
            .map_err(|error| {
                Failure::usage(format!(
                    "invalid value in RUST_LOG: {error}; use, for example, leasehold=debug,warn"
                ))
            })?,
        // The warnings of this crate repeat the name of each server that a client cannot reach. Our own events report it once.
        (false, 0, _) => {
            Targets::new().with_default(level).with_target("zookeeper_client", LevelFilter::ERROR)
        }
        (false, 1, _) => ours(LevelFilter::DEBUG),
        (false, ..) => ours(LevelFilter::TRACE),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    let lines = if out::style().json { lines.json().boxed() } else { lines.boxed() };
    // A second start has no effect.
    drop(tracing_subscriber::registry().with(lines).with(filter).with(unreported).try_init());
    Ok(())
}

/// Events of Leasehold from `level` on, and the warnings of other crates.
fn ours(level: LevelFilter) -> Targets {
    Targets::new().with_target("leasehold", level).with_default(LevelFilter::WARN)
}
