//! Renewals, repairs and releases of leases that a majority has granted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Claim, Lease, LockBackend, Operation, Release, Renewal, Vote};
use leasehold_core::clock::Instant;
use leasehold_core::{Error, flaw};

use super::Quorum;
use super::ballot::no_majority;
use super::claims::Claims;
use super::members::member_of;
use super::round::{Answer, Round};

/// A member's replies for several leases.
type Renewals = Vec<Result<Renewal, Error>>;

/// The votes for the renewal of one lease.
#[derive(Default)]
struct Votes {
    /// Members that hold the lease from an earlier attempt. The release of that attempt may still
    /// arrive and would end the vote.
    pending_releases: BTreeSet<usize>,
    renewed: usize,
    /// The number of members on which a different lease is in force.
    taken: usize,
    /// Members that lost the lease.
    vanished: Vec<usize>,
    is_revocation_requested: bool,
    failures: Vec<(String, Error)>,
}

impl<B: LockBackend> Quorum<B> {
    /// Renews leases with one request per member. Returns as soon as a majority has decided on each
    /// lease.
    ///
    /// If a majority holds a lease, members that lost the lease are asked to grant it again. The
    /// votes of these members count from the next renewal on.
    pub(super) async fn renew_and_repair(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let (majority, now) = (self.members.majority(), self.members.clock.now());
        self.claims.clear(now, self.members.max_ttl);
        let renewing = Renewing::begin(&self.claims, leases);
        let mut votes: Vec<Votes> = leases.iter().map(|it| self.no_votes(it, now)).collect();
        let mut round = self.members.round(0..self.members.len(), |store: Arc<B>| {
            let leases = Arc::clone(&renewing.leases);
            async move { answered(store.renew_all(&leases).await) }
        });
        let limit = self.shortest_limit(leases);
        let note = |(number, renewals): Answer<Renewals>| {
            let renewals = renewals
                .unwrap_or_else(|error| leases.iter().map(|_| Err(error.repeated())).collect());
            for (votes, renewal) in votes.iter_mut().zip(renewals) {
                votes.note(number, renewal, || self.members.name(number));
            }
            votes.iter().all(|votes| votes.is_decided(majority))
        };
        self.members.collect(&mut round, now + limit, note).await;
        for (lease, votes) in leases.iter().zip(&votes) {
            if votes.renewed >= majority {
                // A client that only renews leases must also readmit restarted members. The
                // members' leases are repaired at the next renewal.
                self.check_in_background(limit);
                votes.vanished.iter().for_each(|number| self.repair(lease, *number));
            } else if votes.is_decided(majority) {
                self.give_back(lease);
            }
        }
        let are_held = votes.iter().map(|votes| votes.renewed >= majority).collect();
        self.hear_others(renewing, are_held, round);
        votes.into_iter().map(|votes| votes.outcome(majority)).collect()
    }

    fn no_votes(&self, lease: &Lease, now: Instant) -> Votes {
        Votes {
            pending_releases: self.claims.pending_releases(lease.id(), now),
            ..Votes::default()
        }
    }

    fn shortest_limit(&self, leases: &[Lease]) -> Duration {
        let limits = leases.iter().map(|lease| self.members.limit(lease.ttl()));
        limits.min().unwrap_or_default()
    }

    /// Passes the replies of members that are slower than the majority to a background task.
    ///
    /// Without the renewal, the slower members' leases would expire. A restarted member also needs
    /// time for a new connection.
    fn hear_others(&self, renewing: Renewing, are_held: Vec<bool>, mut round: Round<Renewals>) {
        if round.unheard().is_empty() {
            return;
        }
        let ttl = renewing.leases.iter().map(Lease::ttl).min().unwrap_or_default();
        let (quorum, gives_up) = (self.clone_parts(), self.members.clock.now() + ttl);
        self.late.drive(async move {
            let members = Arc::clone(&quorum.members);
            while let Some((number, renewals)) = round.next(&*members.clock, gives_up).await {
                members.member(number).note_answer(renewals.is_ok());
                let renewals = are_held.iter().zip(renewals.into_iter().flatten());
                for (lease, (is_held, renewal)) in renewing.leases.iter().zip(renewals) {
                    if *is_held && matches!(renewal, Ok(Renewal::Vanished)) {
                        quorum.repair(lease, number);
                    }
                }
            }
        });
    }

    /// Asks a member that lost a lease to grant it again, unless the lease is released in the
    /// meantime. A background task waits for the reply.
    fn repair(&self, lease: &Lease, number: usize) {
        let has_vote = self.members.member(number).id().is_some();
        if !has_vote || !self.claims.add_repair(lease.id(), number) {
            return;
        }
        let vote = Vote::new(Claim::new(lease.clone()), self.members.configuration.clone());
        let round = self.members.round([number], |store: Arc<B>| {
            let vote = vote.clone();
            async move { member_of(&*store)?.vote(&vote).await }
        });
        self.leave(lease, round);
    }

    /// Releases a lost lease on the minority that still holds it.
    ///
    /// The release also ends any grant from a repair in progress. The caller does not release a
    /// lost lease itself.
    fn give_back(&self, lease: &Lease) {
        self.claims.forget(lease.id());
        self.confirm_late(lease, self.releases(lease));
    }

    fn releases(&self, lease: &Lease) -> Round<Release> {
        self.members.round(0..self.members.len(), |store: Arc<B>| {
            let lease = lease.clone();
            async move { store.release(&lease).await }
        })
    }

    /// Completes releases in a background task.
    fn confirm_late(&self, lease: &Lease, mut releases: Round<Release>) {
        let (members, gives_up) =
            (Arc::clone(&self.members), self.members.clock.now() + lease.ttl());
        self.late.drive(async move {
            while releases.next(&*members.clock, gives_up).await.is_some() {}
        });
    }

    /// Releases the lease on all members, including members that never replied.
    pub(super) async fn release_everywhere(&self, lease: &Lease) -> Result<Release, Error> {
        let majority = self.members.majority();
        let mut round = self.releases(lease);
        let (mut released, mut not_held, mut failures) = (0, 0, Vec::new());
        let note = |(number, release): Answer<Release>| {
            match release {
                Ok(Release::Released) => released += 1,
                Ok(Release::NotHeld) => not_held += 1,
                Err(error) => failures.push((self.members.name(number), error)),
            }
            released >= majority || not_held >= majority
        };
        let ends = self.members.clock.now() + self.members.limit(lease.ttl());
        self.members.collect(&mut round, ends, note).await;
        let unheard = round.unheard().len();
        self.confirm_late(lease, round);
        if not_held >= majority {
            return Ok(Release::NotHeld);
        }
        if released + not_held >= majority {
            return Ok(Release::Released);
        }
        let is_unknown = unheard + released > 0;
        Err(no_majority(released + not_held, majority, &failures, is_unknown)
            .with_operation(Operation::Release)
            .with_key(lease.key()))
    }
}

/// Returns a member's replies, or the member's error if it did not renew any lease because it did
/// not respond.
fn answered(mut renewals: Renewals) -> Result<Renewals, Error> {
    let is_silent =
        |renewal: &Result<Renewal, Error>| renewal.as_ref().is_err_and(Error::is_retryable);
    match renewals.iter().all(is_silent).then(|| renewals.pop()).flatten() {
        Some(Err(error)) => Err(error),
        _ => Ok(renewals),
    }
}

/// A renewal that is in progress until all members have replied or timed out. If the lease is
/// released in the meantime, the votes for the renewal are no longer needed.
struct Renewing {
    claims: Claims,
    leases: Arc<[Lease]>,
}

impl Renewing {
    fn begin(claims: &Claims, leases: &[Lease]) -> Self {
        leases.iter().for_each(|lease| claims.add_late(lease.id(), 1));
        Self { claims: claims.clone(), leases: leases.into() }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.leases.iter().for_each(|lease| self.claims.drop_late(lease.id(), 1));
    }
}

impl Votes {
    fn note(
        &mut self,
        number: usize,
        renewal: Result<Renewal, Error>,
        name: impl FnOnce() -> String,
    ) {
        match renewal {
            Ok(Renewal::Renewed | Renewal::RevocationRequested)
                if self.pending_releases.contains(&number) && !flaw!("renewal-before-release") => {}
            Ok(Renewal::Renewed) => self.renewed += 1,
            Ok(Renewal::RevocationRequested) => {
                self.renewed += 1;
                self.is_revocation_requested = true;
            }
            Ok(Renewal::Taken) => self.taken += 1,
            Ok(Renewal::Vanished) if flaw!("repaired-member-counts") => self.renewed += 1,
            Ok(Renewal::Vanished) => self.vanished.push(number),
            Err(error) => self.failures.push((name(), error)),
        }
    }

    fn is_decided(&self, majority: usize) -> bool {
        self.renewed >= majority || self.taken + self.vanished.len() >= majority
    }

    fn outcome(self, majority: usize) -> Result<Renewal, Error> {
        if self.renewed >= majority {
            return Ok(match self.is_revocation_requested {
                true => Renewal::RevocationRequested,
                false => Renewal::Renewed,
            });
        }
        if self.is_decided(majority) {
            return Ok(if self.taken > 0 { Renewal::Taken } else { Renewal::Vanished });
        }
        let votes = self.renewed + self.taken + self.vanished.len();
        let is_unknown = self.renewed > 0 || self.failures.len() + votes < 2 * majority - 1;
        Err(no_majority(votes, majority, &self.failures, is_unknown)
            .with_operation(Operation::Renew))
    }
}
