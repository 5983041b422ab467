//! One attempt to acquire a lease: collects votes, raises the minimum tokens, and then grants the
//! lease or releases it.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{
    Attempt, Claim, Grant, Lease, LeaseId, LockBackend, Operation, Patience, Renewal, Vote,
};
use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, clock, flaw};
use tokio::sync::mpsc;

use super::Quorum;
use super::ballot::{Ballot, last_token, no_majority};
use super::claims::Claims;
use super::contended::Order;
use super::members::{MUTEXES_ONLY, Members, member_of};
use super::round::{Answer, Round};

impl<B: LockBackend> Quorum<B> {
    /// Requests the members' votes once.
    ///
    /// If the key is contended, the deciding member is asked first, unless the claim is next to be
    /// granted.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some members may have granted the lease, and the caller must
    /// release it.
    pub(super) async fn collect_votes(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.check(claim)?;
        let (lease, majority) = (claim.lease(), self.members.majority());
        let limit = self.members.limit(lease.ttl());
        self.establish_votes(limit).await?;
        self.claims.clear(self.members.clock.now(), self.members.max_ttl);
        let begun = self.claims.begin(lease.id());
        let excluded = match flaw!("vote-before-release") {
            true => &BTreeSet::new(),
            false => &begun.pending_releases,
        };
        let mut voters = self.members.voters(excluded);
        let sent_at = self.members.clock.now();
        let deciding = self.members.deciding().filter(|it| voters.contains(it));
        let mut ballot = Ballot::new(claim, deciding);
        let asked = self.vote(claim);
        let order = match begun.is_next {
            true => Order::All,
            false => self.contended.order(claim.key(), sent_at),
        };
        if order != Order::All
            && let Some(deciding) = deciding
        {
            self.ask(&asked, [deciding].into(), limit, &mut ballot).await;
            if order == Order::DecidingMember && ballot.refusals.contains_key(&deciding) {
                return Ok(self.refuse(claim, &ballot, limit).await);
            }
            voters.remove(&deciding);
        }
        self.ask(&asked, voters, limit, &mut ballot).await;
        if ballot.grants.len() >= majority && self.has_min_token(lease, &ballot, limit).await {
            self.largest_token.note(ballot.last_token(), ballot.has_common_token(), sent_at);
            self.contended.granted(claim.key(), begun.was_refused, self.members.clock.now());
            return Ok(Attempt::Granted(grant(&ballot)));
        }
        self.give_up(claim, ballot, limit).await
    }

    fn check(&self, claim: &Claim) -> Result<(), Error> {
        let message = if !claim.mode().is_mutex() {
            MUTEXES_ONLY
        } else if claim.lease().ttl() > self.members.max_ttl {
            "the TTL is longer than this quorum supports"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Unsupported, message)
            .with_operation(Operation::Acquire)
            .with_key(claim.key()))
    }

    /// Returns the vote that the quorum requests for `claim`. If the clocks of the members allow
    /// it, all members grant the claim with the same token.
    fn vote(&self, claim: &Claim) -> Vote {
        Vote::new(claim.clone(), self.members.configuration.clone())
            .with_requested_token(self.largest_token.next(self.members.clock.now()))
    }

    /// Sends the claim to `voters` and waits until a majority has granted it. Only the deciding
    /// member queues a waiting claim. A background task handles late replies.
    async fn ask(
        &self,
        vote: &Vote,
        voters: BTreeSet<usize>,
        limit: Duration,
        ballot: &mut Ballot,
    ) {
        ballot.asked += voters.len();
        let request = |number: usize| {
            let store = Arc::clone(&self.members.member(number).store);
            let vote = match ballot.deciding == Some(number) {
                true => vote.clone(),
                false => vote.clone().with_patience(Patience::Leaves),
            };
            (number, async move { member_of(&*store)?.vote(&vote).await }.boxed())
        };
        let mut round = Round::new(voters.into_iter().map(request).collect::<Vec<_>>());
        let (majority, ends) = (self.members.majority(), self.members.clock.now() + limit);
        let note = |(number, answer): Answer<Attempt>| {
            self.members.recheck_if_failed(number, &answer);
            ballot.note((number, answer));
            ballot.is_decided(majority)
        };
        self.members.collect(&mut round, ends, note).await;
        if !round.unheard().is_empty() {
            self.claims.add_late(vote.claim().id(), round.unheard().len());
            self.leave(vote.claim().lease(), round);
        }
    }

    /// Passes the remaining replies to a background task, which releases votes that are no longer
    /// needed.
    ///
    /// The caller has already counted the missing votes as late.
    pub(super) fn leave(&self, lease: &Lease, mut round: Round<Attempt>) {
        let (members, claims, lease) =
            (Arc::clone(&self.members), self.claims.clone(), lease.clone());
        let counted = Counted::new(&members, &claims, &lease, round.unheard().clone());
        let gives_up = members.clock.now() + lease.ttl();
        self.late.drive(async move {
            let _counted = counted;
            let release_late_votes = async {
                while let Some((number, answer)) = round.next_at_last().await {
                    members.member(number).note_answer(answer.is_ok());
                    members.recheck_if_failed(number, &answer);
                    let may_have_it = match answer {
                        Ok(Attempt::Granted(_)) => true,
                        Ok(Attempt::Held(_)) => false,
                        Err(error) => error.may_have_been_applied(),
                    };
                    let may_have_it = may_have_it && !flaw!("late-votes-kept");
                    if may_have_it && claims.takes_back(lease.id(), number, members.clock.now()) {
                        release_at_last(&members, &claims, &lease, number).await;
                    }
                }
            };
            clock::until(&*members.clock, gives_up, release_late_votes).await;
        });
    }

    /// Returns whether a majority holds the lease and has a minimum token that is not below the
    /// lease's token.
    ///
    /// Members with a lower minimum token are asked to raise it as part of a renewal of the lease.
    async fn has_min_token(&self, lease: &Lease, ballot: &Ballot, limit: Duration) -> bool {
        let (token, majority) = (ballot.last_token(), self.members.majority());
        let (at, below): (Vec<_>, Vec<_>) =
            ballot.grants.iter().partition(|(_, grant)| last_token(grant) >= token);
        let mut raised = at.len();
        if raised >= majority || flaw!("quorum-without-minimum-token") {
            return true;
        }
        let mut round = self.members.round(below.into_iter().map(|(n, _)| *n), |store: Arc<B>| {
            let lease = lease.clone();
            async move { member_of(&*store)?.raise(&lease, token).await }
        });
        let ends = self.members.clock.now() + limit;
        let note = |(_, renewal)| {
            let is_raised = matches!(renewal, Ok(Renewal::Renewed | Renewal::RevocationRequested));
            raised += usize::from(is_raised);
            raised >= majority
        };
        self.members.collect(&mut round, ends, note).await;
        raised >= majority
    }

    /// Releases the granted leases and returns the reason that the attempt failed.
    async fn give_up(
        &self,
        claim: &Claim,
        ballot: Ballot,
        limit: Duration,
    ) -> Result<Attempt, Error> {
        let (lease, majority) = (claim.lease(), self.members.majority());
        let (id, now) = (lease.id(), self.members.clock.now());
        let unknown = ballot.failures.iter().filter(|(_, it)| it.may_have_been_applied());
        let unknown: Vec<usize> = unknown.map(|(number, _)| *number).collect();
        for number in &unknown {
            self.claims.note_pending_release(id, *number, now);
            let (members, claims) = (Arc::clone(&self.members), self.claims.clone());
            let (number, lease) = (*number, lease.clone());
            self.late.drive(async move {
                release_at_last(&members, &claims, &lease, number).await;
            });
        }
        if ballot.is_refused(majority) && ballot.grants.len() < majority {
            self.contended.refused(claim.key(), now, self.members.max_ttl);
            return Ok(self.refuse(claim, &ballot, limit).await);
        }
        let mut withdrawn = self.claims.end(id);
        withdrawn.extend(ballot.grants.keys().copied().chain(ballot.queued_at()));
        let unreleased = self.take_back(lease, withdrawn, limit).await;
        let is_unknown = unreleased + unknown.len() + ballot.unheard() > 0;
        let failures = ballot.failures.into_iter();
        let failures: Vec<_> = failures.map(|(n, it)| (self.members.name(n), it)).collect();
        Err(no_majority(ballot.grants.len(), majority, &failures, is_unknown))
    }

    /// Releases the granted leases of a rejected claim, and makes the claim's watch report changes
    /// on the members that rejected it.
    ///
    /// A waiting claim keeps the vote of the deciding member. The claim with this vote is next to
    /// be granted, because claims without the vote withdraw. If the claim also withdrew, the same
    /// members would reject the next claim in the queue, and then all later claims.
    async fn refuse(&self, claim: &Claim, ballot: &Ballot, limit: Duration) -> Attempt {
        let lease = claim.lease();
        let mut withdrawn = self.claims.end(lease.id());
        withdrawn.extend(ballot.grants.keys());
        withdrawn
            .retain(|number| Some(*number) != ballot.kept() && Some(*number) != ballot.queued_at());
        self.take_back(lease, withdrawn, limit).await;
        self.claims.refused(lease.id(), ballot);
        let contention = ballot.contention(self.members.majority());
        Attempt::Held(match (ballot.kept(), claim.queue_ttl()) {
            // The vote is requested again before it expires, and it is released if the caller gives
            // up.
            (Some(_), Some(ttl)) => contention.with_queue_entry(ttl),
            _ => contention,
        })
    }

    /// Releases the lease on the members that granted it. Returns how many members did not confirm
    /// the release in time. Background tasks complete the unconfirmed releases.
    async fn take_back(&self, lease: &Lease, granted: BTreeSet<usize>, limit: Duration) -> usize {
        if granted.is_empty() {
            return 0;
        }
        let now = self.members.clock.now();
        granted
            .iter()
            .for_each(|number| self.claims.note_pending_release(lease.id(), *number, now));
        let (told, mut confirmed) = mpsc::unbounded_channel();
        let mut unreleased = granted.len();
        for number in granted {
            let (members, claims) = (Arc::clone(&self.members), self.claims.clone());
            let (lease, told) = (lease.clone(), told.clone());
            self.late.drive(async move {
                if release_at_last(&members, &claims, &lease, number).await {
                    // The caller may no longer be waiting.
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
    /// Makes the next attempt check the status of a member that failed, because the member may have
    /// lost its data.
    fn recheck_if_failed(&self, number: usize, answer: &Result<Attempt, Error>) {
        if answer.as_ref().is_err_and(Error::is_retryable) {
            self.member(number).set_id(None);
        }
    }
}

/// Counts votes that may still arrive, as long as a task is waiting for them.
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

/// Releases the lease on a member and retries until the lease has expired there. Returns whether
/// the member has confirmed the release.
///
/// The member may vote again after all releases have finished.
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
                    // An earlier release may have been sent over a different connection and may
                    // arrive later.
                    clock.sleep_until(clock.now() + members.late_limit(lease.ttl())).await;
                }
                claims.note_confirmed(lease.id(), number);
                return true;
            }
            Some(Err(error)) => error,
            None => Error::new(ErrorKind::Indeterminate, "no reply in time"),
        };
        is_under_way |= error.may_have_been_applied();
        let again = clock.now() + pauses.next().unwrap_or_default();
        if !error.is_retryable() || again >= ends {
            break;
        }
        clock.sleep_until(again).await;
    }
    if !is_under_way {
        claims.note_confirmed(lease.id(), number);
    }
    false
}

fn grant(ballot: &Ballot) -> Grant {
    let (first, last) = (ballot.first_token(), ballot.last_token());
    let spare = u32::try_from(last - first).unwrap_or(u32::MAX);
    let token = NonZeroU64::new(first).expect("a majority has granted");
    let mut grant = Grant::new(token).with_spare_tokens(spare);
    if ballot.grants.values().any(|grant| !grant.has_news()) {
        grant = grant.without_news();
    }
    match ballot.grants.values().filter_map(Grant::ttl).min() {
        Some(ttl) => grant.with_ttl(ttl),
        None => grant,
    }
}
