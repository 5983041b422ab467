//! The rules that a history is checked against.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::Rule;
use crate::history::event::{Event, EventKind, NO_TOKEN, Usage};
use crate::history::fault::Hit;
use crate::history::run::{Kind, Register, ViolationRow};

use super::bounds::Bounds;
use super::hold::{Hold, Holds};
use super::time::{Timeline, stalls};

/// The errors that a store may return while it or the network is disturbed.
const EXPECTED: [&str; 9] = [
    "granted",
    "busy",
    "cancelled",
    "indeterminate",
    "unavailable",
    // During a failover, only a replica may be reachable.
    "notwritable",
    "leaselost",
    "refused",
    "denied",
];

/// How late a call may return after its limit, which is the time that a caller needs to leave the
/// queue, plus two steps of a timer.
const LATE: Duration = Duration::from_millis(52);

/// How long a call waits for the first reply of the store, even if its limit is shorter.
const FIRST_ANSWER: Duration = Duration::from_millis(50);

/// The number of additional file descriptors above which a client has leaked connections.
const SPARE_FDS: u64 = 32;

/// The violations of a history.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) faults: &'a [Hit],
    bounds: Bounds,
    pub(super) violations: Vec<ViolationRow>,
    pub(super) longest_overlap: Duration,
    pub(super) longest_unserved: Duration,
    pub(super) until_free: Duration,
    pub(super) handed_off: u64,
}

/// A violation that has not been added to the run yet.
pub(super) struct Violation<'k> {
    rule: Rule,
    at: Duration,
    key: &'k str,
    length: Duration,
    holds: Vec<usize>,
    text: String,
}

impl<'k> Violation<'k> {
    pub(super) fn new(rule: Rule, at: Duration, key: &'k str, text: String) -> Self {
        Self { rule, at, key, length: Duration::ZERO, holds: Vec::new(), text }
    }

    pub(super) fn by(mut self, holds: impl IntoIterator<Item = usize>) -> Self {
        self.holds.extend(holds);
        self
    }
}

impl<'a> Rules<'a> {
    pub(super) fn new(timeline: &'a Timeline, faults: &'a [Hit], bounds: Bounds) -> Self {
        Self {
            timeline,
            faults,
            bounds,
            violations: Vec::new(),
            longest_overlap: Duration::ZERO,
            longest_unserved: Duration::ZERO,
            until_free: Duration::ZERO,
            handed_off: 0,
        }
    }

    /// [`Rule::Exclusion`].
    pub(super) fn check_permits(&mut self, holds: &Holds) {
        let all = holds.all();
        for (key, places) in holds.by_key() {
            for Overlap { from, until, holds } in overlaps(all, &places) {
                self.longest_overlap = self.longest_overlap.max(until - from);
                let who = holds.iter().map(|place| {
                    let Hold { process, task, token, units, .. } = &all[*place];
                    format!("process {process}, task {task} ({units} permits, token {token})")
                });
                let text = format!(
                    "{} considered themselves holders of {key}, whose limit is {}, at the same time for {:.1?}",
                    who.collect::<Vec<_>>().join(" and "),
                    all[holds[0]].limit,
                    until - from,
                );
                let length = until - from;
                self.violate(Violation {
                    length,
                    ..Violation::new(Rule::Exclusion, from, key, text).by(holds)
                });
            }
        }
    }

    /// [`Rule::Fencing`].
    pub(super) fn check_writes(&mut self, events: &[Event], holds: &Holds) {
        let all = holds.all();
        let mut last: HashMap<&str, usize> = HashMap::new();
        for event in events {
            let EventKind::Wrote { hold, register: Register::Fenced, accepted, .. } = event.kind
            else {
                continue;
            };
            let Some(place) = holds.place(event.process, hold) else {
                let text = format!("process {} wrote without holding the lock", event.process);
                self.violate(Violation::new(Rule::Fencing, event.at, "", text));
                continue;
            };
            let Hold { key, token, .. } = &all[place];
            if !accepted {
                // A holder that has a successor violates exclusion if the holder still considers itself
                // the holder, and violates the order of entries if it received its guard late.
                let is_successor = |it: &Hold| {
                    let is_later = it.from > all[place].from || all[place].is_late(it);
                    it.key == *key && it.token > *token && it.from <= event.at && is_later
                };
                if all[place].is_at(event.at) && !all.iter().any(is_successor) {
                    let text =
                        format!("{key} rejected a write from its holder, which has token {token}");
                    self.violate(Violation::new(Rule::Fencing, event.at, key, text).by([place]));
                }
                continue;
            }
            // The check uses the order of grants, which differs from the order of entries if an
            // entry is late.
            let this = &all[place];
            let succeeds =
                |it: &Hold| it.from > this.from && !it.is_late(this) && !this.shares_lease_with(it);
            let before = last.insert(key, place).filter(|it| succeeds(&all[*it]));
            if let Some(before) = before {
                let later = all[before].token;
                let text = format!(
                    "{key} accepted a write with token {token} after a write with the later token {later}"
                );
                self.violate(
                    Violation::new(Rule::Fencing, event.at, key, text).by([before, place]),
                );
            }
        }
    }

    /// [`Rule::TokenOrder`] and [`Rule::EntryOrder`].
    ///
    /// If a lease ends early, another caller may be granted a lease while the reply to the first
    /// grant is still in transit. The first caller then receives its guard late, which violates the
    /// order of entries but not the order of grants.
    pub(super) fn check_tokens(&mut self, holds: &Holds) {
        let all = holds.all();
        for (key, places) in holds.by_key() {
            let mut used = HashMap::new();
            let mut last: Option<usize> = None;
            for place in places {
                let Hold { token, from, .. } = &all[place];
                if *token == NO_TOKEN {
                    continue;
                }
                if let Some(other) = used.insert(*token, place) {
                    // The token of a shared lease was checked at the first entry.
                    if all[other].shares_lease_with(&all[place]) {
                        continue;
                    }
                    let text = format!("two guards of {key} have the same token, {token}");
                    self.violate(
                        Violation::new(Rule::TokenOrder, *from, key, text).by([other, place]),
                    );
                }
                if !all[place].is_alone() || !all[place].is_real() {
                    continue;
                }
                let Some(before) = last.filter(|before| all[*before].token > *token) else {
                    last = Some(place);
                    continue;
                };
                let earlier = all[before].token;
                let text = format!(
                    "{key} was acquired with token {token} after the larger token {earlier}"
                );
                let is_late = all[place].is_late(&all[before]);
                let rule = if is_late { Rule::EntryOrder } else { Rule::TokenOrder };
                self.violate(Violation::new(rule, *from, key, text).by([before, place]));
            }
        }
    }

    /// [`Rule::HonestGuard`].
    pub(super) fn check_guards(&mut self, events: &[Event], holds: &Holds) {
        let mut lost = HashSet::new();
        for event in events {
            let (hold, verdict) = match event.kind {
                EventKind::Lost { hold, .. } => {
                    lost.insert((event.process, hold));
                    continue;
                }
                EventKind::Held { hold, .. } if lost.contains(&(event.process, hold)) => (
                    hold,
                    "the guard reported the lease as held after it had reported the lease as lost",
                ),
                EventKind::Held { hold, deadline } if deadline < event.at => {
                    (hold, "the guard reported the lease as held after the deadline")
                }
                EventKind::WentOn { hold } => (hold, "the lease was lost, but the work continued"),
                _ => continue,
            };
            let place = holds.place(event.process, hold);
            let key = place.map_or("", |place| &holds.all()[place].key);
            let text = format!("hold {hold} of process {}: {verdict}", event.process);
            self.violate(Violation::new(Rule::HonestGuard, event.at, key, text).by(place));
        }
    }

    /// [`Rule::ExplainedFailure`] for losses.
    pub(super) fn check_losses(&mut self, events: &[Event], holds: &Holds) {
        let Some(after_effects) = self.bounds.after_effects else { return };
        for event in events {
            let EventKind::Lost { hold, reason, .. } = &event.kind else { continue };
            let Some(place) = holds.place(event.process, *hold) else { continue };
            let Hold { key, from, lease, .. } = &holds.all()[place];
            let is_wanted = reason == "maxhold" || !lease.is_renewed;
            let explains = |hit: &Hit| hit.explains(key, *from, event.at, after_effects);
            if !is_wanted && !self.faults.iter().any(explains) {
                let text = format!("the lease of {key} was lost without a fault: {reason}");
                self.violate(
                    Violation::new(Rule::ExplainedFailure, event.at, key, text).by([place]),
                );
            }
        }
    }

    /// [`Rule::BoundedWait`] while no fault is in effect, and [`Rule::ExplainedFailure`].
    pub(super) fn check_calls(&mut self, events: &[Event], holds: &Holds) {
        let mut calls = HashMap::new();
        let busy = self.busy_times(events, holds);
        let bound = self.bounds.ttl + self.bounds.recovery;
        for event in events {
            match &event.kind {
                EventKind::Asked { call, key, limit } => {
                    calls.insert((event.process, *call), (event.at, key, *limit));
                }
                EventKind::Answered { call, outcome } => {
                    if !EXPECTED.contains(&outcome.as_str()) {
                        let text = format!("a call failed with the unexpected outcome {outcome}");
                        self.violate(Violation::new(Rule::ExplainedFailure, event.at, "", text));
                    }
                    let Some((asked, key, limit)) = calls.remove(&(event.process, *call)) else {
                        continue;
                    };
                    if let Some(limit) = limit {
                        self.check_limit(event, key, asked, limit);
                    }
                    let Some(busy) = busy.get(key.as_str()) else { continue };
                    let (from, unserved) = longest_gap(busy, asked, event.at);
                    self.longest_unserved = self.longest_unserved.max(unserved);
                    if unserved > bound {
                        let text = format!(
                            "process {} waited {unserved:.1?} for {key}, although the key had no \
                             holder and no fault was active",
                            event.process
                        );
                        let length = unserved;
                        self.violate(Violation {
                            length,
                            ..Violation::new(Rule::BoundedWait, from, key, text)
                        });
                    }
                }
                _ => {}
            }
        }
    }

    /// A process that was paused may return late from its calls.
    fn check_limit(&mut self, answered: &Event, key: &str, asked: Duration, limit: Duration) {
        let Event { at, process, .. } = answered;
        let waited = *at - asked;
        let was_paused =
            |hit: &Hit| hit.stopped.contains(process) && hit.from <= *at && asked <= hit.until;
        if waited > limit.max(FIRST_ANSWER) + limit / 50 + LATE
            && !self.faults.iter().any(was_paused)
        {
            let text = format!("a wait for {key} with a limit of {limit:.1?} took {waited:.1?}");
            let length = waited;
            self.violate(Violation {
                length,
                ..Violation::new(Rule::BoundedWait, asked, key, text)
            });
        }
    }

    /// [`Rule::NoResidue`] and [`Rule::SoundRun`].
    pub(super) fn check_end(&mut self, events: &[Event]) {
        let mut at_work: BTreeMap<u32, u64> = BTreeMap::new();
        let mut finished = HashSet::new();
        for event in events {
            let Event { at, process, kind } = event;
            match kind {
                EventKind::Uses(Usage { fds, .. }) => {
                    let most = at_work.entry(*process).or_default();
                    *most = (*most).max(*fds);
                }
                EventKind::Finished(usage) => {
                    finished.insert(*process);
                    self.check_usage(event, usage, at_work.get(process).copied());
                }
                EventKind::Ended if !finished.contains(process) => {
                    let text = format!("process {process} exited before its work was done");
                    self.violate(Violation::new(Rule::SoundRun, *at, "", text));
                }
                EventKind::Missing => {
                    let text = format!("a line from process {process} is missing");
                    self.violate(Violation::new(Rule::SoundRun, *at, "", text));
                }
                EventKind::Freed { key, after } => {
                    self.until_free = self.until_free.max(*after);
                    if *after > self.bounds.ttl + self.bounds.recovery {
                        let text = format!(
                            "{key} became free only {after:.1?} after its last client had left"
                        );
                        self.violate(Violation::new(Rule::NoResidue, *at, key, text));
                    }
                }
                EventKind::RanPaused => {
                    let text = format!("process {process} ran although it was paused");
                    self.violate(Violation::new(Rule::SoundRun, *at, "", text));
                }
                EventKind::Remained { what } => {
                    let text = format!("{what} remained after the clients' work");
                    self.violate(Violation::new(Rule::NoResidue, *at, "", text));
                }
                EventKind::Left { key } => {
                    let text = format!("{key} still exists in the store after the run");
                    self.violate(Violation::new(Rule::NoResidue, *at, key, text));
                }
                _ => {}
            }
        }
    }

    fn check_usage(&mut self, event: &Event, usage: &Usage, at_work: Option<u64>) {
        let process = event.process;
        for (map, entries) in usage.entries.iter().filter(|(_, entries)| **entries > 0) {
            let text = format!("process {process} still has {entries} entries in its map of {map}");
            self.violate(Violation::new(Rule::NoResidue, event.at, "", text));
        }
        if let Some(most) = at_work.filter(|most| usage.fds > most + SPARE_FDS) {
            let text = format!(
                "process {process} has {} open files at the end, but had at most {most} during the run",
                usage.fds
            );
            self.violate(Violation::new(Rule::NoResidue, event.at, "", text));
        }
    }

    /// For each key, returns the periods in which the key is held, a fault is in effect or the
    /// machine stalls. The periods are sorted and do not overlap.
    fn busy_times<'e>(
        &self,
        events: &[Event],
        holds: &'e Holds,
    ) -> HashMap<&'e str, Vec<(Duration, Duration)>> {
        let faults = self.faults.iter().map(|hit| (hit.from, hit.until));
        let faults: Vec<_> = faults.chain(stalls(events)).collect();
        let mut keys: HashMap<&str, Vec<_>> = HashMap::new();
        for hold in holds.all() {
            let times = keys.entry(&hold.key).or_insert_with(|| faults.clone());
            times.push((hold.from, hold.until));
        }
        // A caller of a multi-lock keeps the keys that it has acquired while it waits for the
        // remaining keys.
        for hold in holds.all().iter().filter(|hold| hold.kind == Kind::Multi) {
            keys.remove(hold.key.as_str());
        }
        keys.values_mut().for_each(join_overlapping);
        keys
    }

    pub(super) fn violate(&mut self, violation: Violation<'_>) {
        let Violation { rule, at, key, length, holds, text } = violation;
        let excused = Hit::excuse(self.faults, rule, at, length, self.bounds.ttl);
        self.violations.push(ViolationRow {
            rule,
            at_ms: self.timeline.ms(at),
            key: key.to_owned(),
            text,
            holds,
            length_ms: length.as_secs_f64() * 1_000.0,
            excused: excused.map(str::to_owned),
        });
    }
}

/// A period in which more permits are held than the limit allows.
struct Overlap {
    from: Duration,
    until: Duration,
    holds: Vec<usize>,
}

fn overlaps(all: &[Hold], places: &[usize]) -> Vec<Overlap> {
    let mut steps: Vec<(Duration, bool, usize)> = Vec::new();
    for place in places.iter().filter(|place| all[**place].is_real()) {
        steps.push((all[*place].from, true, *place));
        steps.push((all[*place].until, false, *place));
    }
    // If an end and a start have the same time, the end sorts first.
    steps.sort_by_key(|(at, begins, _)| (*at, *begins));
    let (mut overlaps, mut present): (Vec<Overlap>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut open: Option<Overlap> = None;
    for (at, begins, place) in steps {
        if begins {
            present.push(place);
        } else {
            present.retain(|it| *it != place);
        }
        let units: u64 = units_of(all, &present);
        let is_over = present.iter().any(|it| units > u64::from(all[*it].limit));
        match (&mut open, is_over) {
            (None, true) => open = Some(Overlap { from: at, until: at, holds: present.clone() }),
            (Some(overlap), true) => overlap.holds.extend(begins.then_some(place)),
            (Some(_), false) => {
                overlaps.extend(open.take().map(|overlap| Overlap { until: at, ..overlap }));
            }
            (None, false) => {}
        }
    }
    overlaps
}

/// Returns the number of permits that are in use. Guards of one task with a common lease and token use
/// the same permits. A different task is a different owner, which must not enter the lock.
fn units_of(all: &[Hold], present: &[usize]) -> u64 {
    let permits = |place: usize| {
        let Hold { process, task, lease, token, .. } = &all[place];
        (*process, *task, lease.id, *token)
    };
    let is_first = |number: &usize| {
        present[..*number].iter().all(|it| permits(*it) != permits(present[*number]))
    };
    (0..present.len()).filter(is_first).map(|number| u64::from(all[present[number]].units)).sum()
}

fn join_overlapping(times: &mut Vec<(Duration, Duration)>) {
    times.sort();
    let mut joined: Vec<(Duration, Duration)> = Vec::with_capacity(times.len());
    for (from, until) in times.drain(..) {
        match joined.last_mut().filter(|(_, last)| from <= *last) {
            Some((_, last)) => *last = until.max(*last),
            None => joined.push((from, until)),
        }
    }
    *times = joined;
}

/// Returns the longest period between `from` and `until` that is not part of `times`, with its
/// start.
fn longest_gap(
    times: &[(Duration, Duration)],
    from: Duration,
    until: Duration,
) -> (Duration, Duration) {
    let mut longest = (from, Duration::ZERO);
    let mut start = from;
    let first = times.partition_point(|(_, end)| *end <= from);
    for (begin, end) in &times[first..] {
        let gap = (*begin).min(until).saturating_sub(start);
        if gap > longest.1 {
            longest = (start, gap);
        }
        start = start.max(*end);
        if start >= until {
            return longest;
        }
    }
    let gap = until.saturating_sub(start);
    if gap > longest.1 { (start, gap) } else { longest }
}
