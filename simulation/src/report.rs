//! The outcome of a simulation.

use std::fmt;
use std::time::Duration;

use crate::incident::Incident;

/// The outcome of one simulation.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) without: Vec<usize>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) violations: Vec<String>,
    pub(crate) guards: u64,
    pub(crate) granted_overlaps: u64,
    pub(crate) messages: u64,
    pub(crate) trace: u64,
    pub(crate) time: Duration,
}

impl Report {
    /// The promises that were broken, the first few.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The incidents, in the order in which they began.
    pub fn incidents(&self) -> &[Incident] {
        &self.incidents
    }

    /// The guards that callers received.
    pub fn guards(&self) -> u64 {
        self.guards
    }

    /// How often the judge saw an overlap that the promises grant, after a store had lost leases.
    pub fn granted_overlaps(&self) -> u64 {
        self.granted_overlaps
    }

    /// The requests that the store applied.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// A digest of all messages in their order: equal runs have equal traces.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// How long the simulation lasted, in its own time.
    pub fn time(&self) -> Duration {
        self.time
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, guards, messages, time, .. } = self;
        writeln!(f, "seed {seed}: {guards} guards, {messages} messages in {time:.1?}")?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        for incident in &self.incidents {
            writeln!(f, "  with {incident}")?;
        }
        let without: Vec<_> = self.without.iter().map(ToString::to_string).collect();
        write!(f, "replay: SIMULATION_SEED={seed} SIMULATION_WITHOUT={} ", without.join(","))?;
        write!(f, "cargo test -p leasehold-simulation --test seeds replay -- --nocapture")
    }
}
