//! The votes of one attempt.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::backend::{Attempt, Claim, Contention, Grant, Patience, WokenBy};
use leasehold_core::{Error, ErrorKind};

use super::round::Answer;

/// The members' replies to one attempt.
#[derive(Default)]
pub(super) struct Ballot {
    /// The number of members that received the request.
    pub(super) asked: usize,
    pub(super) grants: BTreeMap<usize, Grant>,
    pub(super) refusals: BTreeMap<usize, Contention>,
    pub(super) failures: Vec<(usize, Error)>,
    /// The member that decides between competing claims.
    pub(super) deciding: Option<usize>,
    /// Whether the claim's caller is waiting.
    waits: bool,
}

impl Ballot {
    pub(super) fn new(claim: &Claim, deciding: Option<usize>) -> Self {
        Self { deciding, waits: claim.patience() != Patience::Leaves, ..Self::default() }
    }

    pub(super) fn note(&mut self, (number, answer): Answer<Attempt>) {
        match answer {
            Ok(Attempt::Granted(grant)) => {
                self.grants.insert(number, grant);
            }
            Ok(Attempt::Held(contention)) => {
                self.refusals.insert(number, contention);
            }
            Err(error) => self.failures.push((number, error)),
        }
    }

    /// Returns whether a majority has replied and at least one member rejected the claim.
    pub(super) fn is_refused(&self, majority: usize) -> bool {
        !self.refusals.is_empty() && self.grants.len() + self.refusals.len() >= majority
    }

    /// Returns the number of members that received the request but have not replied.
    pub(super) fn unheard(&self) -> usize {
        self.asked - self.grants.len() - self.refusals.len() - self.failures.len()
    }

    /// Returns whether the missing replies can no longer change the outcome.
    pub(super) fn is_decided(&self, majority: usize) -> bool {
        self.grants.len() >= majority
            || self.is_refused(majority) && self.grants.len() + self.unheard() < majority
    }

    /// Returns the largest token or spare token of all grants, including grants from members that
    /// may have lost their data since then.
    pub(super) fn last_token(&self) -> u64 {
        let last = self.grants.values().map(last_token).max();
        last.unwrap_or_default()
    }

    /// Returns whether all grants have the same last token.
    pub(super) fn has_common_token(&self) -> bool {
        let last = self.last_token();
        self.grants.values().all(|grant| last_token(grant) == last)
    }

    /// Returns the smallest token that is not below any grant's token.
    pub(super) fn first_token(&self) -> u64 {
        self.grants.values().map(Grant::token).max().unwrap_or_default()
    }

    /// Returns the deciding member if it rejected the claim and queued it.
    pub(super) fn queued_at(&self) -> Option<usize> {
        self.deciding.filter(|number| self.waits && self.refusals.contains_key(number))
    }

    /// Returns the deciding member if the claim keeps its vote for the next attempt.
    pub(super) fn kept(&self) -> Option<usize> {
        self.deciding.filter(|number| self.waits && self.grants.contains_key(number))
    }

    /// Returns whether the claim is next to be granted, as far as is known. The next claim has the
    /// vote of the deciding member, or is the first in that member's queue.
    ///
    /// If the remaining time is at most [`Patience::RESERVATION`], the key may be reserved for
    /// another claim, which is then first in the queue.
    pub(super) fn is_next(&self) -> bool {
        let is_first = |number: usize| {
            let refusal = &self.refusals[&number];
            let is_held = refusal.retry_after().is_some_and(|time| time > Patience::RESERVATION);
            refusal.woken_by() == Some(WokenBy::Key) && is_held
        };
        self.kept().is_some() || self.queued_at().is_some_and(is_first)
    }

    /// Returns the members whose changes the claim waits for: the member that queued the claim or,
    /// if no member queued it, all members that rejected it.
    pub(super) fn in_the_way(&self) -> BTreeSet<usize> {
        match self.queued_at() {
            Some(number) => [number].into(),
            None => self.refusals.keys().copied().collect(),
        }
    }

    /// Returns why the claim was rejected: the lease that must end before a majority is free, and
    /// the claim's queue entry.
    ///
    /// Leases that expire earlier are also assumed to end.
    pub(super) fn contention(&self, majority: usize) -> Contention {
        let mut refusals: Vec<&Contention> = self.refusals.values().collect();
        refusals.sort_by_key(|refusal| {
            let ends = refusal.retry_after();
            (ends.is_none(), ends)
        });
        let missing = majority.saturating_sub(self.grants.len()).clamp(1, refusals.len());
        let decisive = refusals[missing - 1];
        let mut contention = Contention::new();
        if let Some(holder) = decisive.holder() {
            contention = contention.with_holder(holder.clone());
        }
        if let Some(time) = decisive.retry_after() {
            contention = contention.with_retry_after(time);
        }
        let queue = self.queued_at().and_then(|number| self.refusals.get(&number));
        if let Some(ttl) = queue.and_then(Contention::queue_entry) {
            contention = contention.with_queue_entry(ttl);
        }
        match queue.and_then(Contention::woken_by) {
            Some(by) => contention.with_woken_by(by),
            None => contention,
        }
    }
}

/// Returns the last token of a grant, including its spare tokens.
pub(super) fn last_token(grant: &Grant) -> u64 {
    grant.token() + u64::from(grant.spare_tokens())
}

/// Creates the error for a request to which too few members replied. `is_unknown` means that some
/// members may have applied the request.
pub(super) fn no_majority(
    votes: usize,
    majority: usize,
    failures: &[(String, Error)],
    is_unknown: bool,
) -> Error {
    let all = || failures.iter().map(|(_, error)| error);
    let kind = match all().next() {
        _ if is_unknown || all().any(|it| it.kind() == ErrorKind::Indeterminate) => {
            ErrorKind::Indeterminate
        }
        Some(first) if !all().any(Error::is_retryable) => first.kind(),
        _ => ErrorKind::Unavailable,
    };
    let told: Vec<String> =
        failures.iter().map(|(name, error)| format!("; {name}: {error}")).collect();
    let message = format!(
        "only {votes} of the {majority} required members of the quorum replied in time{}",
        told.concat()
    );
    Error::new(kind, message).with_backend("quorum")
}
