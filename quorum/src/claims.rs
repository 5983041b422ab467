//! The state of claims that is kept between attempts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::{LeaseId, WatchSelection, unpoisoned};
use leasehold_core::clock::Instant;

use super::ballot::Ballot;

/// The claims whose state is kept. Clones share the same state.
#[derive(Clone, Default)]
pub(super) struct Claims(Arc<Mutex<HashMap<LeaseId, Memory>>>);

#[derive(Default)]
struct Memory {
    /// Whether the caller is waiting and will try again.
    is_admitted: bool,
    /// Whether an earlier attempt was rejected.
    was_refused: bool,
    /// Whether the claim was next to be granted after the last attempt.
    is_next: bool,
    /// The members whose changes the claim's watch reports.
    heeded: WatchSelection,
    /// Whether an attempt is in progress or was granted, so that a late vote is useful.
    is_wanted: bool,
    /// The number of replies that may still arrive.
    late: usize,
    /// Members whose release is in progress or was lost, with the time when the release was sent.
    /// If a member applies the release late, the release also ends a newer vote.
    pending_releases: BTreeMap<usize, Instant>,
    /// Members whose vote for an earlier attempt was kept or arrived during the current attempt.
    kept: BTreeSet<usize>,
    /// The time when the state was last used.
    touched: Option<Instant>,
}

/// The state of a claim when an attempt begins.
pub(super) struct Begun {
    /// Whether an earlier attempt was rejected.
    pub(super) was_refused: bool,
    /// Whether the claim is next to be granted, as far as is known.
    pub(super) is_next: bool,
    /// The members that may not vote in this attempt.
    pub(super) pending_releases: BTreeSet<usize>,
}

/// Keeps the state of a claim while its caller is waiting.
struct Admission {
    claims: Claims,
    id: LeaseId,
}

impl Claims {
    /// Keeps the state of a claim, including the members that its watch reports, until the returned
    /// value is dropped.
    pub(super) fn admit(&self, id: LeaseId, heeded: WatchSelection) -> impl Send + Sync + use<> {
        self.with(id, |memory| {
            memory.is_admitted = true;
            memory.heeded = heeded;
        });
        Admission { claims: self.clone(), id }
    }

    pub(super) fn begin(&self, id: LeaseId) -> Begun {
        self.with(id, |memory| {
            memory.is_wanted = true;
            let (was_refused, is_next) = (memory.was_refused, memory.is_next);
            Begun { was_refused, is_next, pending_releases: memory.pending_releases() }
        })
    }

    /// Ends an attempt that was not granted. Returns the members that granted an earlier attempt.
    pub(super) fn end(&self, id: LeaseId) -> BTreeSet<usize> {
        self.with(id, |memory| {
            memory.is_wanted = false;
            mem::take(&mut memory.kept)
        })
    }

    /// Records that the attempt was rejected.
    pub(super) fn refused(&self, id: LeaseId, ballot: &Ballot) {
        self.with(id, |memory| {
            memory.was_refused = true;
            memory.is_next = ballot.is_next();
            memory.heeded.set(ballot.in_the_way());
            memory.kept.extend(ballot.kept());
        });
    }

    /// Records that the lease has ended.
    pub(super) fn forget(&self, id: LeaseId) {
        self.with(id, |memory| {
            memory.is_wanted = false;
            memory.pending_releases.clear();
            memory.kept.clear();
        });
    }

    /// Returns the members that may not vote for a lease when it is renewed.
    pub(super) fn pending_releases(&self, id: LeaseId, now: Instant) -> BTreeSet<usize> {
        self.with(id, |memory| {
            memory.touched = Some(now);
            memory.pending_releases()
        })
    }

    /// Removes leases that were not renewed within the longest TTL and releases that got no reply
    /// within this time.
    pub(super) fn clear(&self, now: Instant, max_ttl: Duration) {
        unpoisoned(&self.0).retain(|_, memory| {
            memory.pending_releases.retain(|_, since| now.since(*since) < max_ttl);
            let is_fresh = memory.touched.is_some_and(|at| now.since(at) < max_ttl);
            memory.is_admitted || memory.late > 0 || is_fresh
        });
    }

    /// Counts late votes for an attempt in progress or a held lease. No call is waiting for these
    /// votes.
    pub(super) fn add_late(&self, id: LeaseId, count: usize) {
        self.with(id, |memory| {
            memory.is_wanted = true;
            memory.late += count;
        });
    }

    /// Counts the expected vote of a member that is asked to restore a lease.
    ///
    /// Returns `false` if the lease was released, or if an earlier release may still reach the
    /// member.
    pub(super) fn add_repair(&self, id: LeaseId, member: usize) -> bool {
        self.with(id, |memory| {
            let is_wanted = memory.is_wanted && !memory.pending_releases.contains_key(&member);
            memory.late += usize::from(is_wanted);
            is_wanted
        })
    }

    pub(super) fn drop_late(&self, id: LeaseId, count: usize) {
        self.with(id, |memory| memory.late -= count);
    }

    /// Returns whether the caller must release a late vote, and if so, records that this release is
    /// in progress.
    pub(super) fn takes_back(&self, id: LeaseId, member: usize, now: Instant) -> bool {
        self.with(id, |memory| {
            memory.touched = Some(now);
            if memory.is_wanted {
                memory.kept.insert(member);
                return false;
            }
            memory.pending_releases.insert(member, now).is_none()
        })
    }

    /// Records that a release on a member is in progress.
    pub(super) fn note_pending_release(&self, id: LeaseId, member: usize, now: Instant) {
        self.with(id, |memory| {
            memory.touched = Some(now);
            memory.pending_releases.insert(member, now);
        });
    }

    /// Records that a member confirmed a release, or that the release failed without any effect.
    pub(super) fn note_confirmed(&self, id: LeaseId, member: usize) {
        self.with(id, |memory| memory.pending_releases.remove(&member));
    }

    fn with<T>(&self, id: LeaseId, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut claims = unpoisoned(&self.0);
        let memory = claims.entry(id).or_default();
        let result = change(memory);
        if memory.is_needless() {
            claims.remove(&id);
        }
        result
    }
}

impl Memory {
    fn pending_releases(&self) -> BTreeSet<usize> {
        self.pending_releases.keys().copied().collect()
    }

    fn is_needless(&self) -> bool {
        !self.is_admitted
            && self.late == 0
            && self.pending_releases.is_empty()
            && self.kept.is_empty()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.claims.with(self.id, |memory| memory.is_admitted = false);
    }
}
