//! One attempt: votes, then a floor, then a guard; or releases.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Quorum;
use super::ballot::{Ballot, last_token, no_majority};
use super::claims::Claims;
use super::members::{MUTEXES_ONLY, Members};
use super::round::{Answer, Round};
use crate::clock;
use crate::contract::backend::{
    Attempt, Claim, Grant, Lease, LeaseId, LockBackend, Operation, Patience, Renewal,
};
use crate::contract::error::{Error, ErrorKind};
use crate::retry::Retry;

impl<B: LockBackend> Quorum<B> {
    /// Asks the members for their votes once.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. Members may have granted the lease: the caller releases it.
    pub(super) async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.check(claim)?;
        let (lease, majority) = (claim.lease(), self.members.majority());
        let limit = self.members.limit(lease.ttl());
        self.muster(limit).await?;
        self.claims.clear(self.members.clock.now(), self.members.max_ttl);
        let (is_refused, unsettled) = self.claims.begin(lease.id());
        let mut voters = self.members.voters(&unsettled);
        let claim = self.claim_of_members(claim);
        let mut ballot = Ballot::default();
        if is_refused && let Some(first) = self.members.first_of(&voters) {
            // One member decides between callers that would split the votes.
            self.ask(&claim, [first].into(), limit, &mut ballot).await;
            if ballot.has_refusals() {
                // The next attempt asks all: this member may have a lease that a majority has not.
                let kept = self.claims.end(lease.id(), false);
                self.take_back(lease, kept, limit).await;
                return Ok(Attempt::Held(ballot.contention(majority)));
            }
            voters.remove(&first);
        }
        let sent_at = self.members.clock.now();
        self.ask(&claim, voters, limit, &mut ballot).await;
        if ballot.grants.len() >= majority && self.has_floor(lease, &ballot, limit).await {
            self.learnt.note(ballot.last_token(), ballot.has_common_token(), sent_at);
            return Ok(Attempt::Granted(grant(&ballot)));
        }
        self.give_up(lease, ballot, limit).await
    }

    fn check(&self, claim: &Claim) -> Result<(), Error> {
        let message = if !claim.share().is_whole() {
            MUTEXES_ONLY
        } else if claim.lease().ttl() > self.members.max_ttl {
            "the TTL is above the longest of this quorum"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Unsupported, message)
            .with_operation(Operation::Acquire)
            .with_key(claim.key()))
    }

    /// The claim as members get it: none keeps a place for it, and each has the same number in mind.
    fn claim_of_members(&self, claim: &Claim) -> Claim {
        claim
            .clone()
            .with_patience(Patience::Leaves)
            .with_charter(self.members.charter.clone())
            .with_least_token(self.learnt.next(self.members.clock.now()))
    }

    /// Asks `voters` until a majority has granted. A task waits for answers that come later.
    async fn ask(
        &self,
        claim: &Claim,
        voters: BTreeSet<usize>,
        limit: Duration,
        ballot: &mut Ballot,
    ) {
        ballot.asked += voters.len();
        let mut round = self.members.round(voters, |store: Arc<B>| {
            let claim = claim.clone();
            async move { store.try_acquire(&claim).await }
        });
        let (majority, ends) = (self.members.majority(), self.members.clock.now() + limit);
        let note = |(number, answer): Answer<Attempt>| {
            self.members.note(number, &answer);
            ballot.note((number, answer));
            ballot.is_decided(majority)
        };
        self.members.collect(&mut round, ends, note).await;
        if !round.unheard().is_empty() {
            self.claims.add_late(claim.id(), round.unheard().len());
            self.leave(claim.lease(), round);
        }
    }

    /// Leaves the members that have not answered to a task, which releases votes that are not wanted any more. The claim counts them as
    /// late already.
    pub(super) fn leave(&self, lease: &Lease, mut round: Round<Attempt>) {
        let (members, claims, lease) =
            (Arc::clone(&self.members), self.claims.clone(), lease.clone());
        let counted = Counted::new(&members, &claims, &lease, round.unheard().clone());
        let gives_up = members.clock.now() + lease.ttl();
        self.late.drive(async move {
            let _counted = counted;
            let settle = async {
                while let Some((number, answer)) = round.next_at_last().await {
                    members.note(number, &answer);
                    let may_have_it = match answer {
                        Ok(Attempt::Granted(_)) => true,
                        Ok(Attempt::Held(_)) => false,
                        Err(error) => error.may_have_been_applied(),
                    };
                    if may_have_it && claims.takes_back(lease.id(), number, members.clock.now()) {
                        release_at_last(&members, &claims, &lease, number).await;
                    }
                }
            };
            clock::until(&*members.clock, gives_up, settle).await;
        });
    }

    /// Whether a majority has the lease and its token as a floor: those that do not yet are asked to raise theirs, under the lease.
    async fn has_floor(&self, lease: &Lease, ballot: &Ballot, limit: Duration) -> bool {
        let (token, majority) = (ballot.last_token(), self.members.majority());
        let (at, below): (Vec<_>, Vec<_>) =
            ballot.grants.iter().partition(|(_, grant)| last_token(grant) >= token);
        let mut floors = at.len();
        if floors >= majority {
            return true;
        }
        let raised = lease.clone().with_floor(token);
        let mut round = self.members.round(below.into_iter().map(|(n, _)| *n), |store: Arc<B>| {
            let raised = raised.clone();
            async move { store.renew(&raised).await }
        });
        let ends = self.members.clock.now() + limit;
        let note = |(_, renewal)| {
            let is_raised = matches!(renewal, Ok(Renewal::Renewed | Renewal::RevocationRequested));
            floors += usize::from(is_raised);
            floors >= majority
        };
        self.members.collect(&mut round, ends, note).await;
        floors >= majority
    }

    /// Releases the granted leases, and tells why they were not enough.
    async fn give_up(
        &self,
        lease: &Lease,
        ballot: Ballot,
        limit: Duration,
    ) -> Result<Attempt, Error> {
        let (id, majority, now) = (lease.id(), self.members.majority(), self.members.clock.now());
        let is_refused = ballot.is_refused(majority) && ballot.grants.len() < majority;
        let mut taken_back = self.claims.end(id, is_refused);
        taken_back.extend(ballot.grants.keys());
        let in_doubt = ballot.failures.iter().filter(|(_, it)| it.may_have_been_applied());
        let in_doubt: Vec<usize> = in_doubt.map(|(number, _)| *number).collect();
        for number in &in_doubt {
            self.claims.note_unsettled(id, *number, now);
            let (members, claims) = (Arc::clone(&self.members), self.claims.clone());
            let (number, lease) = (*number, lease.clone());
            self.late.drive(async move {
                release_at_last(&members, &claims, &lease, number).await;
            });
        }
        let unreleased = self.take_back(lease, taken_back, limit).await;
        if is_refused {
            return Ok(Attempt::Held(ballot.contention(majority)));
        }
        let is_unknown = unreleased + in_doubt.len() + ballot.unheard() > 0;
        let failures = ballot.failures.into_iter();
        let failures: Vec<_> = failures.map(|(n, it)| (self.members.name(n), it)).collect();
        Err(no_majority(ballot.grants.len(), majority, &failures, is_unknown))
    }

    /// Releases members that have granted, and tells how many did not confirm it in time. Tasks go on with those.
    async fn take_back(&self, lease: &Lease, granted: BTreeSet<usize>, limit: Duration) -> usize {
        if granted.is_empty() {
            return 0;
        }
        let now = self.members.clock.now();
        granted.iter().for_each(|number| self.claims.note_unsettled(lease.id(), *number, now));
        let (told, mut confirmed) = mpsc::unbounded_channel();
        let mut unreleased = granted.len();
        for number in granted {
            let (members, claims) = (Arc::clone(&self.members), self.claims.clone());
            let (lease, told) = (lease.clone(), told.clone());
            self.late.drive(async move {
                if release_at_last(&members, &claims, &lease, number).await {
                    // The caller may not wait any more.
                    told.send(()).unwrap_or_default();
                }
            });
        }
        drop(told);
        let confirmations = async {
            while confirmed.recv().await.is_some() {
                unreleased -= 1;
            }
        };
        clock::until(&*self.members.clock, now + limit, confirmations).await;
        unreleased
    }
}

impl<B: LockBackend> Members<B> {
    fn name(&self, number: usize) -> String {
        self.member(number).name.clone()
    }

    /// A member that fails may have lost its data: the next attempt looks.
    fn note(&self, number: usize, answer: &Result<Attempt, Error>) {
        let member = self.member(number);
        member.note_answer(answer.is_ok());
        if answer.as_ref().is_err_and(Error::is_retryable) {
            member.set_id(None);
        }
    }
}

/// Votes that may still come, for as long as they are waited for.
struct Counted<B> {
    members: Arc<Members<B>>,
    claims: Claims,
    id: LeaseId,
    unheard: BTreeSet<usize>,
}

impl<B: LockBackend> Counted<B> {
    fn new(
        members: &Arc<Members<B>>,
        claims: &Claims,
        lease: &Lease,
        unheard: BTreeSet<usize>,
    ) -> Self {
        unheard.iter().for_each(|number| members.member(*number).add_late());
        Self { members: Arc::clone(members), claims: claims.clone(), id: lease.id(), unheard }
    }
}

impl<B> Drop for Counted<B> {
    fn drop(&mut self) {
        self.unheard.iter().for_each(|number| self.members.member(*number).drop_late());
        self.claims.drop_late(self.id, self.unheard.len());
    }
}

/// Releases a member, again and again until the TTL has freed the key there, and tells whether the member has confirmed it. The member may
/// vote again once no release is under way.
async fn release_at_last<B: LockBackend>(
    members: &Members<B>,
    claims: &Claims,
    lease: &Lease,
    number: usize,
) -> bool {
    let clock = &*members.clock;
    let ends = clock.now() + lease.ttl();
    let mut pauses = Retry::unlimited().pauses();
    let mut is_under_way = false;
    loop {
        let release = members.member(number).store.release(lease);
        let give_up = clock.now() + members.late_limit(lease.ttl());
        let error = match clock::until(clock, give_up.min(ends), release).await {
            Some(Ok(_)) => {
                if is_under_way {
                    // An earlier one may have taken another way, and come later.
                    clock.sleep_until(clock.now() + members.late_limit(lease.ttl())).await;
                }
                claims.note_settled(lease.id(), number);
                return true;
            }
            Some(Err(error)) => error,
            None => Error::no_reply(),
        };
        is_under_way |= error.may_have_been_applied();
        let again = clock.now() + pauses.next().unwrap_or_default();
        if !error.is_retryable() || again >= ends {
            break;
        }
        clock.sleep_until(again).await;
    }
    if !is_under_way {
        claims.note_settled(lease.id(), number);
    }
    false
}

fn grant(ballot: &Ballot) -> Grant {
    let (first, last) = (ballot.first_token(), ballot.last_token());
    let spare = u32::try_from(last - first).unwrap_or(u32::MAX);
    let token = NonZeroU64::new(first).expect("a majority has granted");
    let elapsed = ballot.grants.values().map(Grant::elapsed).max().unwrap_or_default();
    let mut grant = Grant::new(token).with_spare_tokens(spare).with_elapsed(elapsed);
    if ballot.grants.values().any(|grant| !grant.has_news()) {
        grant = grant.without_news();
    }
    match ballot.grants.values().filter_map(Grant::ttl).min() {
        Some(ttl) => grant.with_ttl(ttl),
        None => grant,
    }
}
