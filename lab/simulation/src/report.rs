//! The outcome of a simulation.

use std::fmt;
use std::time::Duration;

use leasehold_conformance::Rule;
use leasehold_conformance::history::run::Run;

use crate::incident::Incident;

/// The maximum number of violations in a report. Further violations of a run would not add information.
const SHOWN: usize = 5;

/// The outcome of one simulation.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) without: Vec<usize>,
    pub(crate) incidents: Vec<Incident>,
    /// The history, with the result of the check.
    pub(crate) run: Run,
    pub(crate) messages: u64,
    pub(crate) trace: u64,
    pub(crate) time: Duration,
}

impl Report {
    /// Whether a rule was violated.
    pub fn is_violated(&self) -> bool {
        !self.run.figures.violations.is_empty()
    }

    /// Whether this rule was violated.
    pub fn violates(&self, rule: Rule) -> bool {
        self.run.figures.violations.contains_key(&rule)
    }

    /// The number of guards that callers received.
    pub fn guards(&self) -> u64 {
        self.run.holds.len() as u64
    }

    /// The number of guards that callers received by hand-off within their process.
    pub fn handed_off(&self) -> u64 {
        self.run.figures.handed_off
    }

    /// The number of overlaps that the guarantees permit after a store has lost leases.
    pub fn excused_overlaps(&self) -> u64 {
        self.run.figures.excused.get(&Rule::Exclusion).copied().unwrap_or_default()
    }

    /// How long the longest overlap lasted.
    pub fn longest_overlap(&self) -> Duration {
        Duration::from_secs_f64(self.run.figures.longest_overlap_ms / 1_000.0)
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
        let Self { seed, messages, time, .. } = self;
        let losses: u64 = self.run.figures.losses.values().sum();
        writeln!(
            f,
            "seed {seed}: {} guards ({} handed off, {losses} lost), {messages} messages in {time:.1?}; \
             {} excused overlaps, of up to {:.3?}",
            self.guards(),
            self.handed_off(),
            self.excused_overlaps(),
            self.longest_overlap(),
        )?;
        let violations = self.run.violations.iter().filter(|it| it.excused.is_none());
        for violation in violations.take(SHOWN) {
            let at = Duration::from_secs_f64(violation.at_ms / 1_000.0);
            writeln!(f, "  {}: {} (at {at:.3?})", violation.rule, violation.text)?;
        }
        for incident in &self.incidents {
            writeln!(f, "  with {incident}")?;
        }
        let without: Vec<_> = self.without.iter().map(ToString::to_string).collect();
        write!(f, "replay: SIMULATION_SEED={seed} SIMULATION_WITHOUT={} ", without.join(","))?;
        write!(f, "cargo test -p leasehold-simulation --test integration replay -- --nocapture")
    }
}
