//! The state of a key during a step.

use std::collections::HashMap;

use leasehold_core::backend::Claim;
use leasehold_core::backend::entry::{Entry, Tokens};
use leasehold_entry::Tag;
use uuid::Uuid;

use crate::observed::Observed;
use crate::stored::{Released, Stored, Timer};

/// The tag of a revocation request among the timers.
pub(crate) const REQUEST: Uuid = Uuid::nil();

/// The validity of a lease is at least this part of its TTL, in percent.
const VALIDITY: i64 = 99;

/// The time of a step, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The clock of this process.
    pub(crate) local: i64,
    /// The earliest and the latest store time.
    pub(crate) store: (i64, i64),
    /// The maximum difference between two clocks of the store.
    pub(crate) skew: i64,
}

/// The state of a key. A step changes the [entry](Self::entry), which contains neither expired
/// leases nor expired queue entries.
#[derive(Debug)]
pub(crate) struct State {
    stored: Stored,
    at: Now,
    now: i64,
    /// The entry before the step.
    before: Entry<Tag, i64>,
    /// The ends in the document, in which the entry has different ends.
    ends: HashMap<Uuid, (i64, Option<Timer>)>,
    /// Whether an earlier write of the same operation may have been applied.
    pub(crate) may_be_applied: bool,
    /// Whether the outcome of the step is not valid for a remembered document.
    pub(crate) needs_read: bool,
    /// Whether to write the document even if the step has not changed it.
    pub(crate) must_write: bool,
    /// The lease or queue entry whose end the step has set, even if the end has not changed.
    prolonged: Option<Uuid>,
}

impl Now {
    /// Returns the time to which durations are added, which is the latest time that a clock of the
    /// store may show.
    fn latest(&self) -> i64 {
        self.store.1.saturating_add(self.skew)
    }

    /// Returns for how long a lease or a queue entry remains.
    ///
    /// A lease expires when the store's clock shows its end. If this process has read the document
    /// without the last renewal, the lease also remains for its validity after that read, because
    /// the clock of the store may have been set.
    ///
    /// A step that removes an expired lease replaces the version that was read. A renewal changes
    /// the version, so it prevents this write.
    fn remaining(&self, tag: &Uuid, end: i64, timer: Option<Timer>, observed: &Observed) -> i64 {
        let by_store = end.saturating_sub(self.store.0);
        // Another program has written this end.
        let Some(timer) = timer else { return by_store };
        let by_observer = observed.not_before(tag, timer.write).map_or(0, |after| {
            let valid_until = after.saturating_add(timer.lasts / 100 * VALIDITY);
            valid_until.saturating_sub(self.local)
        });
        // An inexact clock would otherwise show more than the TTL.
        by_store.max(by_observer).min(timer.lasts)
    }
}

impl State {
    pub(crate) fn new(mut stored: Stored, observed: &Observed, at: Now) -> Self {
        let (now, mut ends) = (at.latest(), HashMap::new());
        let asked = stored.asked.map(|timer| (REQUEST, timer));
        let timers: HashMap<_, _> =
            stored.timers.iter().map(|(tag, timer)| (*tag, *timer)).chain(asked).collect();
        let mut read = |tag: Uuid, end: &mut i64| {
            let timer = timers.get(&tag).copied();
            ends.insert(tag, (*end, timer));
            *end = now.saturating_add(at.remaining(&tag, *end, timer, observed));
        };
        let entry = &mut stored.document.entry;
        entry.holders.iter_mut().for_each(|held| read(held.name.id, &mut held.ends));
        entry.queue.iter_mut().for_each(|waiter| read(waiter.name.id, &mut waiter.ends));
        entry.asked_until.iter_mut().for_each(|end| read(REQUEST, end));
        entry.expire(now);
        let before = entry.clone();
        Self {
            stored,
            at,
            now,
            before,
            ends,
            may_be_applied: false,
            needs_read: false,
            must_write: false,
            prolonged: None,
        }
    }

    pub(crate) fn entry(&mut self) -> &mut Entry<Tag, i64> {
        &mut self.stored.document.entry
    }

    /// Returns whether the step replaces a document that this version cannot read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.stored.is_unreadable
    }

    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    /// Returns the limits for the next token, which is at least the store time in microseconds. If
    /// the document is lost, tokens therefore do not start again.
    pub(crate) fn tokens(&self) -> Tokens {
        Tokens { above: 0, at_least: self.at.store.0.try_into().unwrap_or_default() }
    }

    /// Returns the claim as the entry can grant or queue it.
    pub(crate) fn limited(&self, tag: &Tag, claim: &Claim) -> Claim {
        self.stored.document.limited(tag, claim, self.tokens())
    }

    /// Records that the step has granted, renewed or queued this lease.
    pub(crate) fn prolong(&mut self, tag: &Tag) {
        self.prolonged = Some(tag.id);
        self.must_write = true;
    }

    pub(crate) fn released(&mut self) -> &mut Released {
        &mut self.stored.released
    }

    /// Returns whether the step has granted, renewed or queued a lease.
    pub(crate) fn prolongs(&self) -> bool {
        self.prolonged.is_some()
    }

    /// Returns whether the step has changed the entry.
    pub(crate) fn is_changed(&self) -> bool {
        self.must_write || self.stored.document.entry != self.before
    }

    /// Returns the contents of the document to write. The ends that the step has set get the number
    /// of the write.
    pub(crate) fn written(self, write: u64) -> Stored {
        let Self { mut stored, now, before, ends, prolonged, .. } = self;
        let old = |tag: &Uuid| {
            let holders = before.holders.iter().map(|held| (held.name.id, held.ends));
            let queue = before.queue.iter().map(|waiter| (waiter.name.id, waiter.ends));
            let asked = before.asked_until.map(|end| (REQUEST, end));
            holders.chain(queue).chain(asked).find(|(of, _)| of == tag).map(|(_, end)| end)
        };
        let mut timers = HashMap::new();
        let mut write_end = |tag: Uuid, end: &mut i64| {
            let is_kept = old(&tag) == Some(*end) && prolonged != Some(tag);
            let kept = ends.get(&tag).filter(|_| is_kept);
            let timer = Timer { write, lasts: end.saturating_sub(now) };
            let (stored_end, timer) = kept.copied().unwrap_or((*end, Some(timer)));
            *end = stored_end;
            timers.extend(timer.map(|timer| (tag, timer)));
        };
        let entry = &mut stored.document.entry;
        entry.holders.iter_mut().for_each(|held| write_end(held.name.id, &mut held.ends));
        entry.queue.iter_mut().for_each(|waiter| write_end(waiter.name.id, &mut waiter.ends));
        entry.asked_until.iter_mut().for_each(|end| write_end(REQUEST, end));
        stored.asked = timers.remove(&REQUEST);
        stored.timers = timers;
        stored.write = Some(write);
        stored.is_unreadable = false;
        stored
    }
}
