//! The memory of claims between their attempts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::ballot::Ballot;
use crate::clock::Instant;
use crate::contract::backend::{Heeded, LeaseId};
use crate::sync::{Mutex, lock};

/// The claims of which there is something to remember. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Claims(Arc<Mutex<HashMap<LeaseId, Memory>>>);

#[derive(Default)]
struct Memory {
    /// Its caller waits, and asks again.
    is_admitted: bool,
    /// An earlier attempt was refused.
    was_refused: bool,
    /// It was the next holder after the last attempt.
    is_next: bool,
    /// The members whose changes its watch reports.
    heeded: Heeded,
    /// An attempt is under way, or was granted: a vote that comes late is welcome.
    is_wanted: bool,
    /// Answers that may still come.
    late: usize,
    /// Members with a release under way, or lost, and since when: however late it is applied, it would end a vote that the member gives now.
    unsettled: BTreeMap<usize, Instant>,
    /// Members whose vote for an earlier attempt was kept, or came during the present one.
    kept: BTreeSet<usize>,
    /// When there was last something to remember.
    touched: Option<Instant>,
}

/// An attempt that begins.
pub(super) struct Begun {
    /// An earlier attempt was refused.
    pub(super) was_refused: bool,
    /// The claim is the next holder, as far as is known.
    pub(super) is_next: bool,
    /// The members that may not vote.
    pub(super) unsettled: BTreeSet<usize>,
}

/// The entry of a claim, for as long as its caller waits.
struct Admission {
    claims: Claims,
    id: LeaseId,
}

impl Claims {
    /// Remembers a claim, and what its watch reports, until the result is dropped.
    pub(super) fn admit(&self, id: LeaseId, heeded: Heeded) -> impl Send + Sync + use<> {
        self.with(id, |memory| {
            memory.is_admitted = true;
            memory.heeded = heeded;
        });
        Admission { claims: self.clone(), id }
    }

    /// Begins an attempt.
    pub(super) fn begin(&self, id: LeaseId) -> Begun {
        self.with(id, |memory| {
            memory.is_wanted = true;
            let (was_refused, is_next) = (memory.was_refused, memory.is_next);
            Begun { was_refused, is_next, unsettled: memory.unsettled() }
        })
    }

    /// Ends an attempt that was not granted, and returns the members that have granted an earlier one.
    pub(super) fn end(&self, id: LeaseId) -> BTreeSet<usize> {
        self.with(id, |memory| {
            memory.is_wanted = false;
            mem::take(&mut memory.kept)
        })
    }

    /// The attempt was refused.
    pub(super) fn refused(&self, id: LeaseId, ballot: &Ballot) {
        self.with(id, |memory| {
            memory.was_refused = true;
            memory.is_next = ballot.is_next();
            memory.heeded.set(ballot.in_the_way());
            memory.kept.extend(ballot.kept());
        });
    }

    /// The lease is over.
    pub(super) fn forget(&self, id: LeaseId) {
        self.with(id, |memory| {
            memory.is_wanted = false;
            memory.unsettled.clear();
            memory.kept.clear();
        });
    }

    /// The members that may not vote for a lease, as it is renewed.
    pub(super) fn unsettled(&self, id: LeaseId, now: Instant) -> BTreeSet<usize> {
        self.with(id, |memory| {
            memory.touched = Some(now);
            memory.unsettled()
        })
    }

    /// Forgets leases without a renewal, and releases without an answer, for as long as a lease may last.
    pub(super) fn clear(&self, now: Instant, max_ttl: Duration) {
        lock(&self.0).retain(|_, memory| {
            memory.unsettled.retain(|_, since| now.since(*since) < max_ttl);
            let is_fresh = memory.touched.is_some_and(|at| now.since(at) < max_ttl);
            memory.is_admitted || memory.late > 0 || is_fresh
        });
    }

    /// Votes for an attempt under way, or for a lease that is held, are waited for by no call any more.
    pub(super) fn add_late(&self, id: LeaseId, count: usize) {
        self.with(id, |memory| {
            memory.is_wanted = true;
            memory.late += count;
        });
    }

    /// Counts a vote that a member is to give again; `false` if the lease was released, or an earlier release may still reach the member.
    pub(super) fn add_repair(&self, id: LeaseId, member: usize) -> bool {
        self.with(id, |memory| {
            let is_wanted = memory.is_wanted && !memory.unsettled.contains_key(&member);
            memory.late += usize::from(is_wanted);
            is_wanted
        })
    }

    pub(super) fn drop_late(&self, id: LeaseId, count: usize) {
        self.with(id, |memory| memory.late -= count);
    }

    /// Whether a vote that came late is to be given back. The release of it is then under way.
    pub(super) fn takes_back(&self, id: LeaseId, member: usize, now: Instant) -> bool {
        self.with(id, |memory| {
            memory.touched = Some(now);
            if memory.is_wanted {
                memory.kept.insert(member);
                return false;
            }
            memory.unsettled.insert(member, now).is_none()
        })
    }

    /// Notes that a release to a member is under way.
    pub(super) fn note_unsettled(&self, id: LeaseId, member: usize, now: Instant) {
        self.with(id, |memory| {
            memory.touched = Some(now);
            memory.unsettled.insert(member, now);
        });
    }

    /// Notes that a release has come to its end.
    pub(super) fn note_settled(&self, id: LeaseId, member: usize) {
        self.with(id, |memory| memory.unsettled.remove(&member));
    }

    fn with<T>(&self, id: LeaseId, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut claims = lock(&self.0);
        let memory = claims.entry(id).or_default();
        let result = change(memory);
        if memory.is_needless() {
            claims.remove(&id);
        }
        result
    }
}

impl Memory {
    fn unsettled(&self) -> BTreeSet<usize> {
        self.unsettled.keys().copied().collect()
    }

    fn is_needless(&self) -> bool {
        !self.is_admitted && self.late == 0 && self.unsettled.is_empty() && self.kept.is_empty()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.claims.with(self.id, |memory| memory.is_admitted = false);
    }
}
