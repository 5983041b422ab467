//! The outcome of a simulation.

use std::fmt;
use std::time::Duration;

use leasehold_conformance::Rule;

use crate::incident::Incident;
use crate::judge::Tally;

/// The outcome of one simulation.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) without: Vec<usize>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) tally: Tally,
    pub run: leasehold_conformance::history::run::Run,
    pub(crate) messages: u64,
    pub(crate) trace: u64,
    pub(crate) time: Duration,
}

impl Report {
    /// The first few violations.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Whether one of the violations is a violation of this rule.
    pub fn breaks(&self, rule: Rule) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }

    /// The incidents, in the order in which they began.
    pub fn incidents(&self) -> &[Incident] {
        &self.incidents
    }

    /// The guards that callers received.
    pub fn guards(&self) -> u64 {
        self.tally.guards
    }

    /// The guards that callers received by hand-off within their process.
    pub fn handed_over(&self) -> u64 {
        self.tally.handed_over
    }

    /// The guards that reported a loss.
    pub fn losses(&self) -> u64 {
        self.tally.losses
    }

    /// How often more of a key was believed to be held than there is, as the promises grant after a store has lost leases.
    pub fn granted_overlaps(&self) -> u64 {
        self.tally.granted_overlaps
    }

    /// How long the longest of these overlaps lasted.
    pub fn longest_overlap(&self) -> Duration {
        self.tally.longest_overlap
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

/// A violation of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, tally, messages, time, .. } = self;
        let Tally { guards, handed_over, losses, granted_overlaps, longest_overlap } = tally;
        writeln!(
            f,
            "seed {seed}: {guards} guards ({handed_over} handed over, {losses} lost), {messages} messages in {time:.1?}; \
             {granted_overlaps} overlaps that the promises grant, of up to {longest_overlap:.3?}"
        )?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        for incident in &self.incidents {
            writeln!(f, "  with {incident}")?;
        }
        let without: Vec<_> = self.without.iter().map(ToString::to_string).collect();
        write!(f, "replay: SIMULATION_SEED={seed} SIMULATION_WITHOUT={} ", without.join(","))?;
        write!(f, "cargo test -p leasehold-simulation --test integration replay -- --nocapture")
    }
}
