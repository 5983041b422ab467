//! A lock's queue, and the rule that admits the next claim. The rule applies to all lock types.

use etcd_client::{GetResponse, KeyValue};
use leasehold_core::backend::rules::{fits, is_same_type};
use leasehold_core::backend::{Claim, Lease};

use crate::entry::{Entry, State};
use crate::layout::Range;

/// All holders and waiters of a lock at one revision of the store.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// The entries in the order of their creation.
    entries: Vec<Entry>,
    pub(crate) revision: i64,
}

/// The decision about a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The claim is compatible with all holders of the lock and with all waiters before it.
    Admitted,
    Refused,
    /// A different lease already uses the key of the claim's entry.
    Occupied,
    /// The lock is held as a different lock type.
    OtherKind,
}

impl Queue {
    /// Creates the queue from the entries in `range`. Locks whose names continue after a slash are
    /// excluded.
    pub(crate) fn new(range: &Range, found: &GetResponse, revision: i64) -> Self {
        let of_this_lock = |kv: &&KeyValue| {
            kv.key().get(range.start.len()..).is_some_and(|rest| !rest.contains(&b'/'))
        };
        let entries = found.kvs().iter().filter(of_this_lock).map(Entry::read).collect();
        Self::of(entries, revision)
    }

    fn of(mut entries: Vec<Entry>, revision: i64) -> Self {
        entries.sort_by_key(|entry| entry.created);
        // A program that follows the recipe holds the lock while its entry is the first entry.
        for (position, entry) in entries.iter_mut().enumerate() {
            if entry.state == State::Foreign {
                entry.state = if position == 0 { State::Held } else { State::Queued };
            }
        }
        Self { entries, revision }
    }

    /// Returns whether the lock is free and has no waiters.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the holders of the lock.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == State::Held)
    }

    /// Returns the waiters for the lock.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == State::Queued)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holders().next().is_some()
    }

    /// Returns whether the lock is held in the mode of `lease`, either exclusively or by permits.
    pub(crate) fn is_held_like(&self, lease: &Lease) -> bool {
        self.holders().next().is_some_and(|holder| is_same_type(lease.mode(), holder.mode))
    }

    /// Returns whether the lock is held by permits and no waiter requests it exclusively.
    pub(crate) fn is_held_in_units(&self) -> bool {
        self.is_held() && self.entries.iter().all(|entry| !entry.mode.is_mutex())
    }

    /// Returns the entry of the lease with this tag.
    pub(crate) fn entry(&self, tag: &str) -> Option<&Entry> {
        self.entries_of(tag).next()
    }

    /// Returns all entries of the lease with this tag. A late request may have created a second
    /// entry.
    pub(crate) fn entries_of(&self, tag: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.tag == tag)
    }

    /// Returns the waiters before the claim with this tag.
    pub(crate) fn before(&self, tag: &str) -> impl DoubleEndedIterator<Item = &Entry> {
        let own = self.entries.iter().position(|entry| entry.tag == tag);
        let before = &self.entries[..own.unwrap_or(self.entries.len())];
        before.iter().filter(|entry| entry.state == State::Queued)
    }

    /// Decides about the claim with this tag. `key` is the key of its entry, or the key that its
    /// entry would have.
    pub(crate) fn verdict(&self, claim: &Claim, tag: &str, key: &str) -> Verdict {
        let own = self.entry(tag);
        if own.is_some_and(|own| own.state == State::Held) {
            return Verdict::Admitted;
        }
        if self.is_held() && !self.is_held_like(claim.lease()) {
            return Verdict::OtherKind;
        }
        if own.is_none() && self.entries.iter().any(|entry| entry.key == key.as_bytes()) {
            // This abandoned entry belongs to the same client and was created very late. The entry
            // expires after its TTL.
            return Verdict::Occupied;
        }
        // A foreign program holds the lock as soon as all entries before its entry are gone. The
        // program does not check later entries.
        if self.before(tag).any(Entry::is_foreign) {
            return Verdict::Refused;
        }
        let others = self.holders().chain(self.before(tag)).map(|entry| entry.mode);
        if fits(claim.mode(), others) { Verdict::Admitted } else { Verdict::Refused }
    }

    /// Returns the waiters whose queue entries block the claim until they expire. Waiters behind an
    /// exclusive holder are not included.
    pub(crate) fn places_in_the_way(
        &self,
        claim: &Claim,
        tag: &str,
    ) -> impl Iterator<Item = &Entry> {
        let behind = self.is_held() && claim.mode().is_mutex();
        self.before(tag).filter(move |_| !behind)
    }

    /// Returns the last entry before the claim, which the claim waits for. Returns `None` if
    /// several entries must be removed before the claim can be admitted.
    pub(crate) fn predecessor(&self, claim: &Claim, tag: &str) -> Option<&Entry> {
        if !claim.mode().is_mutex() {
            return self.before(tag).next_back();
        }
        let own = self.entries.iter().position(|entry| entry.tag == tag)?;
        self.entries[..own].last()
    }
}
