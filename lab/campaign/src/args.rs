//! The arguments of the program.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use leasehold_conformance::FaultKind;

use crate::campaign::Size;
use crate::class::Class;
use crate::fault::CATALOGUE;
use crate::faulty_backend::Flaw;

/// Disturbs real stores and real clients of Leasehold, and judges the history of both.
///
/// It fails if a history breaks a promise.
#[derive(Debug, Parser)]
#[command(name = "leasehold-campaign")]
pub struct Args {
    /// The classes of stores, one after the other; all real ones unless told otherwise.
    #[arg(value_enum)]
    classes: Vec<Class>,
    /// The URL of a store that is up already, such as a pooler or another database, instead of those. Only clients are disturbed.
    #[arg(long, conflicts_with = "classes")]
    pub url: Option<String>,
    /// The seed of the schedule of faults. Without one, it is drawn.
    #[arg(long)]
    seed: Option<u64>,
    /// How long faults come, for each class.
    #[arg(long, default_value_t = 90)]
    seconds: u64,
    /// How long faults come, in hours, for each class: a soak.
    #[arg(long, conflicts_with = "seconds")]
    soak: Option<f64>,
    /// How many client processes there are at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// How many tasks each process has.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    tasks: u32,
    /// The TTL of all leases, in milliseconds, in place of the default TTL of the class.
    #[arg(long)]
    ttl_ms: Option<u64>,
    /// The kinds of faults to cause, such as `client-stopped`. Without this option, all kinds that fit the store.
    #[arg(long, value_delimiter = ',', value_parser = kind_of)]
    faults: Vec<FaultKind>,
    /// The namespaces of the network and of mounts are the campaign's own, as `scripts/campaign` has them: faults of packets and of a file's
    /// disk are possible.
    #[arg(long)]
    pub namespaces: bool,
    /// Writes the runs to a file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Writes the record of all events to a folder: a file for each class, with one event on each line, as JSON.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Writes a page that shows the runs to a file, as HTML.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// The clients see a store with this flaw: to see that it is found.
    #[arg(long, value_enum)]
    flaw: Option<Flaw>,
    /// Be a client process, whose plan comes through a pipe.
    #[arg(long, hide = true)]
    pub child: bool,
}

impl Args {
    /// The classes to visit.
    pub fn classes(&self) -> Vec<Class> {
        match &self.classes[..] {
            _ if self.url.is_some() => vec![Class::Given],
            [] => Class::REAL.into(),
            classes => classes.into(),
        }
    }

    /// The size of each campaign.
    pub fn size(&self) -> Size {
        let soak = self.soak.map(|hours| Duration::from_secs_f64(hours * 3_600.0));
        let time = soak.unwrap_or(Duration::from_secs(self.seconds));
        Size {
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            time,
            processes: self.processes,
            tasks: self.tasks,
            // Some hundreds of samples of each process.
            sample_every: (time / 300).max(Duration::from_secs(1)),
            ttl: self.ttl_ms.map(Duration::from_millis),
            kinds: self.faults.clone(),
            flaw: self.flaw,
            record: self.record.clone(),
        }
    }
}

/// Returns the kind of fault with this name, if the catalogue contains the kind.
fn kind_of(name: &str) -> Result<FaultKind, String> {
    let mut kinds = CATALOGUE.iter().map(|fault| fault.kind);
    kinds.find(|kind| kind.name() == name).ok_or_else(|| {
        "the campaign does not cause such a fault; see the table in docs/reliability.md".to_owned()
    })
}
