//! Histories of real processes, judged by the rules of simulations.

mod belief;
mod event;

pub use self::event::{Event, EventKind};

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use self::belief::{Belief, HoldId};

/// The violations that a verdict tells of; more of the same history say nothing new.
const TOLD: usize = 5;

/// The events of several processes on one machine that read one clock.
///
/// The history of an honest store keeps V1 to V4 and V6 of the [rules](crate). It tells nothing of the waits of callers (V5) and of
/// leases that are handed over (V7).
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_simulation::{Event, EventKind, History};
///
/// let [second, third] = [2, 3].map(Duration::from_secs);
/// let enters = |at, process, token| {
///     let kind = EventKind::Entered { key: "job".to_owned(), token, units: 1, limit: 1, deadline: at + second };
///     Event { at, process, hold: 1, kind }
/// };
///
/// let history = History::new(vec![enters(second, 1, 7), enters(third, 2, 8)]);
///
/// assert!(history.judge(second).violations()[0].starts_with("V1"));
/// ```
#[derive(Clone, Debug)]
pub struct History {
    events: Vec<Event>,
}

/// The promises that a history breaks, and the number of events that were judged.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    violations: Vec<String>,
    events: usize,
    holds: usize,
    losses: usize,
    writes: usize,
    refused: usize,
    longest_until_free: Duration,
}

impl History {
    /// Takes the events of all processes in any order. Events of one process with the same time, and all writes, are in the order in
    /// which they happened.
    pub fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { events }
    }

    /// Judges the history. Each key must be free `free_within` after the last process that used it has ended.
    pub fn judge(&self, free_within: Duration) -> Verdict {
        let mut verdict = Verdict { events: self.events.len(), ..Verdict::default() };
        let beliefs = Belief::all_of(&self.events);
        verdict.holds = beliefs.len();
        verdict.judge_units(&beliefs);
        verdict.judge_writes(&self.events, &beliefs);
        verdict.judge_tokens(&beliefs);
        verdict.judge_looks(&self.events);
        verdict.judge_freedom(&self.events, free_within);
        verdict
    }
}

impl Verdict {
    /// The promises that were broken, the first few.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The events that were judged.
    pub fn events(&self) -> usize {
        self.events
    }

    /// The guards that callers received.
    pub fn holds(&self) -> usize {
        self.holds
    }

    /// The guards that told their callers of a loss.
    pub fn losses(&self) -> usize {
        self.losses
    }

    /// The writes that the fenced resource accepted or refused.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// The writes that it refused: those of holders that others had succeeded.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// How long after the last process had ended the last key was free.
    pub fn longest_until_free(&self) -> Duration {
        self.longest_until_free
    }

    /// V1: no more units are believed to be held than there are.
    fn judge_units(&mut self, beliefs: &[Belief<'_>]) {
        let mut keys: BTreeMap<&str, Vec<(Duration, i64, &Belief<'_>)>> = BTreeMap::new();
        for belief in beliefs {
            let steps = keys.entry(belief.key).or_default();
            steps.push((belief.from, belief.units.into(), belief));
            steps.push((belief.until, -i64::from(belief.units), belief));
        }
        for (key, mut steps) in keys {
            // At the same time, ends come first.
            steps.sort_by_key(|(at, units, _)| (*at, *units));
            let mut units = 0;
            for (at, change, belief) in steps {
                units += change;
                if units > belief.limit.into() {
                    let Belief { limit, token, id, .. } = belief;
                    self.violate(format!(
                        "V1: {units} units of {key} are believed, of {limit}, when process {} enters with token {token} at {at:?}",
                        id.process
                    ));
                    break;
                }
            }
        }
    }

    /// V2: the resource accepts no write by a holder that a later one has succeeded there, and refuses none of the present one.
    fn judge_writes(&mut self, events: &[Event], beliefs: &[Belief<'_>]) {
        let beliefs: HashMap<HoldId, &Belief<'_>> =
            beliefs.iter().map(|belief| (belief.id, belief)).collect();
        let mut last: HashMap<&str, &Belief<'_>> = HashMap::new();
        for event in events {
            let EventKind::Wrote { accepted } = event.kind else { continue };
            self.writes += 1;
            self.refused += usize::from(!accepted);
            let Some(belief) = beliefs.get(&HoldId::of(event)) else {
                self.violate(format!("V2: process {} writes without a hold", event.process));
                continue;
            };
            let Belief { key, token, .. } = *belief;
            let is_present = belief.from <= event.at && event.at < belief.until;
            if !accepted && is_present {
                self.violate(format!("V2: {key} refuses its holder with token {token}"));
            }
            if !accepted {
                continue;
            }
            let before = last.insert(key, belief).filter(|before| before.from > belief.from);
            if let Some(before) = before {
                let later = before.token;
                self.violate(format!("V2: {key} accepts a write with token {token} after {later}"));
            }
        }
    }

    /// V3: tokens grow in the order of grants, which is that of beliefs where one excludes the other.
    fn judge_tokens(&mut self, beliefs: &[Belief<'_>]) {
        let mut used = HashSet::new();
        let mut last: HashMap<&str, u64> = HashMap::new();
        for Belief { key, token, limit, .. } in beliefs {
            if !used.insert((key, token)) {
                self.violate(format!("V3: two guards of {key} have token {token}"));
            }
            if *limit > 1 {
                continue;
            }
            let before = last.insert(key, *token).filter(|before| before > token);
            if let Some(before) = before {
                self.violate(format!("V3: {key} is entered with token {token} after {before}"));
            }
        }
    }

    /// V4: no guard says *held* after it has said *lost*, or after its deadline.
    fn judge_looks(&mut self, events: &[Event]) {
        let mut lost = HashSet::new();
        for event in events {
            let (hold, process) = (event.hold, event.process);
            match event.kind {
                EventKind::Held { .. } if lost.contains(&HoldId::of(event)) => {
                    self.violate(format!("V4: hold {hold} of process {process} is held again"));
                }
                EventKind::Held { deadline } if deadline < event.at => {
                    self.violate(format!("V4: hold {hold} of process {process} is held too long"));
                }
                EventKind::Lost => {
                    self.losses += 1;
                    lost.insert(HoldId::of(event));
                }
                _ => {}
            }
        }
    }

    /// V6: all keys are free a while after all processes have ended.
    fn judge_freedom(&mut self, events: &[Event], within: Duration) {
        let mut keys: BTreeMap<&str, Option<Duration>> = BTreeMap::new();
        for event in events {
            match &event.kind {
                EventKind::Entered { key, .. } => {
                    keys.entry(key).or_default();
                }
                EventKind::Freed { key, after } => {
                    keys.insert(key, Some(*after));
                }
                _ => {}
            }
        }
        for (key, after) in keys {
            match after {
                Some(after) if after <= within => {
                    self.longest_until_free = self.longest_until_free.max(after);
                }
                Some(after) => self.violate(format!("V6: {key} is free after {after:?}")),
                None => self.violate(format!("V6: {key} is never free")),
            }
        }
    }

    fn violate(&mut self, violation: String) {
        if self.violations.len() < TOLD && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { violations, events, holds, losses, writes, refused, longest_until_free } = self;
        write!(
            f,
            "{events} events: {holds} holds ({losses} lost), {writes} writes ({refused} refused), all free after {longest_until_free:.2?}"
        )?;
        violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}
