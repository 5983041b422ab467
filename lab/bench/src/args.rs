//! The arguments of the bench.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::scenario::Scenario;

/// Measures locks, side by side in one run, on servers that it starts itself.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-bench")]
pub(crate) struct Args {
    /// The scenarios to measure. Without any, the bench measures all, which takes an hour and a half.
    scenarios: Vec<Scenario>,
    /// How often each contestant is measured, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Too short to mean anything: only to see that all of it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only contestants with this in their names, for a profiler.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Threads of the runtime, in each process.
    #[arg(long, value_name = "THREADS", default_value_t = 2, value_parser = at_least_one)]
    pub(crate) workers: usize,
    /// Prints tables for `docs/performance.md`.
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Writes all figures of all rounds to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draws a plot of each scenario into a folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// The plan of this process, which the parent process provides.
    #[arg(long, hide = true)]
    pub(crate) child: Option<String>,
}

impl Args {
    pub(crate) fn scenarios(&self) -> &[Scenario] {
        match &self.scenarios[..] {
            [] => Scenario::value_variants(),
            chosen => chosen,
        }
    }

    /// Returns these arguments with one round.
    pub(crate) fn once(&self) -> Self {
        Self { rounds: 1, ..self.clone() }
    }

    /// `full`, or `quick` if it is only to be seen that all works.
    pub(crate) fn scale<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long a contestant is measured in a round, where that can be chosen.
    pub(crate) fn time(&self) -> Duration {
        self.scale(Duration::from_millis(1_500), Duration::from_millis(300))
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there must be one".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}
