//! Summarizes a run for a terminal.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::history::run::{HoldRow, Run, ViolationRow};

/// The maximum number of violations in a summary, and of holds of a violation. Further rows would
/// not add information.
const TOLD: usize = 8;

/// Displays a run in a few lines.
///
/// `leasehold verify` prints this summary.
///
/// ```
/// use leasehold_conformance::history::run::Run;
/// use leasehold_conformance::history::summary::Summary;
///
/// let run = Run { title: "One Redis".to_owned(), seed: 7, ..Run::default() };
///
/// assert!(Summary(&run).to_string().starts_with("One Redis: seed 7"));
/// ```
#[derive(Debug)]
pub struct Summary<'a>(pub &'a Run);

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Run { title, seed, seconds, holds, violations, figures, faults, .. } = self.0;
        writeln!(
            f,
            "{title}: seed {seed}, {seconds:.0} s, {} calls: {}",
            figures.calls,
            Counts(&figures.outcomes)
        )?;
        writeln!(f, "  {} holds: {}", holds.len(), Counts(&figures.holds))?;
        writeln!(
            f,
            "  {} faults of {} kinds, {} while a lock was held",
            faults.len(),
            figures.faults.len(),
            figures.faults_on_holds
        )?;
        let [p50, p99, max] = figures.loss_latency_ms;
        writeln!(
            f,
            "  losses: {}; delay of the notification after the deadline: {p50:.1} ms (median), {p99:.1} ms (99 %), {max:.1} ms (maximum)",
            Counts(&figures.losses)
        )?;
        let [accepted, refused] = figures.writes;
        writeln!(
            f,
            "  fenced writes: {accepted} accepted, {refused} rejected; unfenced: {} lost updates",
            figures.lost_updates
        )?;
        writeln!(
            f,
            "  the machine stalled for {:.0} ms; longest overlap {:.0} ms, longest wait without a holder {:.0} ms, all locks free after {:.0} ms; {} open files during the run, {} afterwards",
            figures.stalled_ms,
            figures.longest_overlap_ms,
            figures.longest_unserved_ms,
            figures.until_free_ms,
            figures.fds[0],
            figures.fds[1]
        )?;
        write!(
            f,
            "  violations: {}; excused: {}",
            Counts(&figures.violations),
            Counts(&figures.excused)
        )?;
        let broken = violations.iter().filter(|violation| violation.excused.is_none());
        for ViolationRow { rule, at_ms, text, holds: involved, .. } in broken.take(TOLD) {
            write!(f, "\n    {rule} at {:.2} s: {text}", at_ms / 1_000.0)?;
            for HoldRow { process, task, key, token, from_ms, until_ms, end, .. } in
                involved.iter().take(TOLD).map(|place| &holds[*place])
            {
                write!(
                    f,
                    "\n      process {process}, task {task} held {key} with token {token} from {:.3} s to {:.3} s ({})",
                    from_ms / 1_000.0,
                    until_ms / 1_000.0,
                    format!("{end:?}").to_lowercase()
                )?;
            }
        }
        Ok(())
    }
}

struct Counts<'a, K>(&'a BTreeMap<K, u64>);

impl<K: Display> Display for Counts<'_, K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let counts: Vec<_> = self.0.iter().map(|(name, count)| format!("{count} {name}")).collect();
        f.write_str(&counts.join(", "))
    }
}
