//! The arguments of the program.

use std::time::Duration;

use clap::Parser;

use crate::store::Kind;

/// Judges the beliefs of processes that lock, work, are stopped and are killed, on stores that it starts itself.
///
/// It fails if a history breaks a promise.
#[derive(Debug, Parser)]
#[command(name = "leasehold-histories")]
pub(crate) struct Args {
    /// The stores, one after the other.
    #[arg(default_values_t = [Kind::Sqlite, Kind::Postgres, Kind::Mariadb], value_enum)]
    stores: Vec<Kind>,
    /// The URL of a store that is up already, such as a pooler or another database, instead of those.
    #[arg(long, conflicts_with = "stores")]
    pub(crate) url: Option<String>,
    /// How long the processes run.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// How many there are at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) processes: u32,
    /// The TTL of all leases, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    ttl_ms: u64,
    /// The plan of the process that started this one.
    #[arg(long, hide = true)]
    pub(crate) child: Option<String>,
}

impl Args {
    pub(crate) fn stores(&self) -> &[Kind] {
        &self.stores
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
