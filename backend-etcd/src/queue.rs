//! All holders of a lock and its waiters, in order, and the rule that admits the next: the same for all kinds of lock.

use etcd_client::{GetResponse, KeyValue};
use leasehold_core::backend::{Claim, Lease};

use crate::entry::{Entry, State};
use crate::layout::Range;

/// All holders of a lock and its waiters, as they stood at one revision of the store.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// In the order in which they came.
    entries: Vec<Entry>,
    pub(crate) revision: i64,
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// There is room for it beside all holders of the lock and all waiters before it.
    Admitted,
    Refused,
    /// Its entry would be where one of another lease is.
    Occupied,
    /// The lock is held as one of another kind.
    OtherKind,
}

impl Queue {
    /// Takes the entries in `range`, except those of locks whose names go on after a slash.
    pub(crate) fn new(range: &Range, found: &GetResponse, revision: i64) -> Self {
        let of_this_lock = |kv: &&KeyValue| {
            kv.key().get(range.start.len()..).is_some_and(|rest| !rest.contains(&b'/'))
        };
        let entries = found.kvs().iter().filter(of_this_lock).map(Entry::read).collect();
        Self::of(entries, revision)
    }

    fn of(mut entries: Vec<Entry>, revision: i64) -> Self {
        entries.sort_by_key(|entry| entry.created);
        // Programs that follow the recipe hold the lock by being the first.
        for (position, entry) in entries.iter_mut().enumerate() {
            if entry.state == State::Foreign {
                entry.state = if position == 0 { State::Held } else { State::Queued };
            }
        }
        Self { entries, revision }
    }

    /// Whether the lock is free, and no claim queues for it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The holders of the lock.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == State::Held)
    }

    /// The claims that wait for it.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == State::Queued)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holders().next().is_some()
    }

    /// Whether it is held by leases of this kind: as a whole, or in units.
    pub(crate) fn is_held_like(&self, lease: &Lease) -> bool {
        let whole = lease.share().is_whole();
        self.holders().next().is_some_and(|holder| holder.share.is_whole() == whole)
    }

    /// Whether it is held in units, and no claim wants the whole.
    pub(crate) fn is_held_in_units(&self) -> bool {
        self.is_held() && self.entries.iter().all(|entry| !entry.share.is_whole())
    }

    /// The entry of the lease with this tag.
    pub(crate) fn entry(&self, tag: &str) -> Option<&Entry> {
        self.entries_of(tag).next()
    }

    /// All entries of the lease with this tag: a late request may make another.
    pub(crate) fn entries_of(&self, tag: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.tag == tag)
    }

    /// The waiters before the claim with this tag.
    pub(crate) fn before(&self, tag: &str) -> impl DoubleEndedIterator<Item = &Entry> {
        let own = self.entries.iter().position(|entry| entry.tag == tag);
        let before = &self.entries[..own.unwrap_or(self.entries.len())];
        before.iter().filter(|entry| entry.state == State::Queued)
    }

    /// The verdict on the claim with this tag, whose entry is, or would be, at `key`.
    pub(crate) fn verdict(&self, claim: &Claim, tag: &str, key: &str) -> Verdict {
        let own = self.entry(tag);
        if own.is_some_and(|own| own.state == State::Held) {
            return Verdict::Admitted;
        }
        if self.is_held() && !self.is_held_like(claim.lease()) {
            return Verdict::OtherKind;
        }
        if own.is_none() && self.entries.iter().any(|entry| entry.key == key.as_bytes()) {
            // An abandoned entry of ours came late, against all odds. It goes with its TTL.
            return Verdict::Occupied;
        }
        // Another program holds the lock once all entries before its own have gone. It does not look at those behind.
        if self.before(tag).any(Entry::is_foreign) {
            return Verdict::Refused;
        }
        let others = self.holders().chain(self.before(tag)).map(|entry| entry.share.units());
        let total: u64 = others.chain([claim.share().units()]).map(u64::from).sum();
        if total <= u64::from(claim.share().limit()) { Verdict::Admitted } else { Verdict::Refused }
    }

    /// The waiters whose places, when they end by themselves, may make room for the claim: none behind a holder of the whole
    /// lock.
    pub(crate) fn places_in_the_way(
        &self,
        claim: &Claim,
        tag: &str,
    ) -> impl Iterator<Item = &Entry> {
        let behind = self.is_held() && claim.share().is_whole();
        self.before(tag).filter(move |_| !behind)
    }

    /// The entry that the claim with this tag waits for: the last before it, or `None` if it takes several to make
    /// room.
    pub(crate) fn predecessor(&self, claim: &Claim, tag: &str) -> Option<&Entry> {
        if !claim.share().is_whole() {
            return self.before(tag).next_back();
        }
        let own = self.entries.iter().position(|entry| entry.tag == tag)?;
        self.entries[..own].last()
    }
}
