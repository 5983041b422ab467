//! Determines which members can vote on lock requests, creates the quorum, and readmits members
//! that lost their data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{JoinRequest, LockBackend, MemberStatus, Operation, StoreId};
use leasehold_core::{Error, ErrorKind, clock, flaw};

use super::Quorum;
use super::ballot::no_majority;
use super::members::{Members, member_of, no_answer};

/// The members' membership statuses, by member number.
type Statuses = BTreeMap<usize, MemberStatus>;

/// The inverse of the tolerated clock drift. A member's clock may gain up to 1/50 of the time that
/// the member waits.
const DRIFT_PER_TTL: u32 = 50;

impl<B: LockBackend> Quorum<B> {
    /// Checks that a majority of the members can vote on lock requests, and asks members without a
    /// vote to join. Each step takes at most `limit`.
    ///
    /// If a majority is known to have a vote, this method returns immediately, and a background
    /// task checks the remaining members.
    pub(super) async fn establish_votes(&self, limit: Duration) -> Result<(), Error> {
        if self.members.with_vote().len() < self.members.majority() {
            return self.members.look(self.members.majority(), limit).await;
        }
        self.check_in_background(limit);
        Ok(())
    }

    /// Starts a background check if any member does not have a vote.
    pub(super) fn check_in_background(&self, limit: Duration) {
        let is_complete = self.members.with_vote().len() == self.members.len();
        if !is_complete && self.running_check.begin(self.members.clock.now(), limit) {
            let (members, running_check) = (Arc::clone(&self.members), self.running_check.clone());
            self.late.drive(async move {
                // If the configuration is wrong, the check removes the votes of all members, and
                // the next call reports the error.
                drop(members.look(members.len(), limit).await);
                running_check.end();
            });
        }
    }
}

impl<B: LockBackend> Members<B> {
    /// Checks the members until `enough` members with a vote have replied. Members that may join
    /// are asked to join.
    pub(super) async fn look(&self, enough: usize, limit: Duration) -> Result<(), Error> {
        let (statuses, mut failures) = self.statuses(0..self.len(), enough, limit).await;
        if let Err(error) = self.check(&statuses) {
            self.iter().for_each(|member| member.set_id(None));
            return Err(error);
        }
        for (number, status) in &statuses {
            let id = status.configuration().map(|_| status.store());
            self.member(*number).set_id(id);
        }
        let waiting = self.join_others(&statuses, limit).await;
        if self.with_vote().len() >= self.majority() {
            return Ok(());
        }
        failures.extend(waiting.into_iter().map(|number| {
            let message = "the member has no data; a new quorum needs all of its members, and a member that lost its data waits until all earlier leases have expired";
            (self.name(number), Error::new(ErrorKind::Unavailable, message))
        }));
        // The outcome is known, because these requests did not change any key.
        let error = no_majority(self.with_vote().len(), self.majority(), &failures, false);
        let kind = if error.is_retryable() { ErrorKind::Unavailable } else { error.kind() };
        Err(Error::new(kind, error.to_string()).with_operation(Operation::Join))
    }

    /// Returns the members' statuses, and the errors of the members that did not reply.
    ///
    /// After `enough` members with a vote have replied, the remaining members get the same amount
    /// of time again.
    pub(super) async fn statuses(
        &self,
        numbers: impl IntoIterator<Item = usize>,
        enough: usize,
        limit: Duration,
    ) -> (Statuses, Vec<(String, Error)>) {
        let mut round = self.round(numbers, |store: Arc<B>| async move {
            member_of(&*store)?.status(StoreId::new()).await
        });
        let (mut statuses, mut failures) = (Statuses::new(), Vec::new());
        let started = self.clock.now();
        let (mut ends, mut with_vote) = (started + limit, 0);
        while let Some((number, status)) = round.next(&*self.clock, ends).await {
            self.member(number).note_answer(status.is_ok());
            match status {
                Ok(status) => {
                    with_vote += usize::from(status.configuration().is_some());
                    if with_vote == enough {
                        // The remaining members get the same amount of time again.
                        let now = self.clock.now();
                        ends = ends.min(now + now.since(started));
                    }
                    statuses.insert(number, status);
                }
                Err(error) => failures.push((self.name(number), error)),
            }
        }
        failures.extend(round.unheard().iter().map(|number| (self.name(*number), no_answer())));
        (statuses, failures)
    }

    /// Returns an error if two names refer to the same server, or if a member belongs to a
    /// different quorum.
    pub(super) fn check(&self, statuses: &Statuses) -> Result<(), Error> {
        let mut names: BTreeMap<StoreId, &str> = BTreeMap::new();
        for (number, status) in statuses {
            let name = self.member(*number).name.as_str();
            if let Some(other) = names.insert(status.store(), name) {
                return Err(invalid(format!("members {other} and {name} are the same server")));
            }
            if let Some(configuration) = status.configuration()
                && *configuration != self.configuration
            {
                let message = format!(
                    "member {name} is configured for a different quorum: {configuration} instead of {}",
                    self.configuration
                );
                return Err(invalid(message));
            }
        }
        Ok(())
    }

    /// Asks members without a vote to join if they are allowed to. Returns the members that may not
    /// join yet.
    async fn join_others(&self, statuses: &Statuses, limit: Duration) -> Vec<usize> {
        let (with_vote, others): (Vec<_>, Vec<_>) =
            statuses.iter().partition(|(_, status)| status.configuration().is_some());
        let are_all_heard = statuses.len() == self.len();
        let quarantine = self.max_ttl + self.max_ttl / DRIFT_PER_TTL;
        let quarantine = if flaw!("no-quarantine") { Duration::ZERO } else { quarantine };
        let (over, waiting): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, status)| status.age() > quarantine);
        if are_all_heard && with_vote.is_empty() {
            // This is a new quorum, because no member has a vote.
            self.join(statuses.iter().collect(), largest_min_token(statuses), limit).await;
            return Vec::new();
        }
        // Read the minimum tokens only after the member's waiting time. After that time, no earlier
        // grant from the member can still be in use.
        let is_known_by_majority = with_vote.len() >= self.majority();
        let asked: Vec<usize> = if is_known_by_majority {
            with_vote.iter().map(|(number, _)| **number).collect()
        } else if are_all_heard && waiting.is_empty() {
            statuses.keys().copied().collect()
        } else {
            return waiting.into_iter().chain(over).map(|(number, _)| *number).collect();
        };
        if !over.is_empty() {
            let needed = if is_known_by_majority { self.majority() } else { self.len() };
            let (statuses, _) = self.statuses(asked, needed, limit).await;
            if statuses.len() >= needed {
                self.join(over, largest_min_token(&statuses), limit).await;
            }
        }
        waiting.into_iter().map(|(number, _)| *number).collect()
    }

    /// Asks members to join the quorum with this minimum token.
    async fn join(&self, members: Vec<(&usize, &MemberStatus)>, min_token: u64, limit: Duration) {
        let min_token = if flaw!("member-without-minimum-token") { 0 } else { min_token };
        let join = |(number, status): (&usize, &MemberStatus)| {
            let (number, store) = (*number, Arc::clone(&self.member(*number).store));
            let request = JoinRequest::new(status.store(), self.configuration.clone())
                .with_min_token(min_token);
            let joined = async move || member_of(&*store)?.join(&request).await;
            async move { (number, joined().await) }
        };
        let ends = self.clock.now() + limit;
        let joining = join_all(members.into_iter().map(join));
        let joined = clock::until(&*self.clock, ends, joining).await;
        for (number, status) in joined.into_iter().flatten() {
            if let Ok(status) = status
                && status.configuration() == Some(&self.configuration)
            {
                self.member(number).set_id(Some(status.store()));
            }
        }
    }
}

fn largest_min_token(statuses: &Statuses) -> u64 {
    statuses.values().map(MemberStatus::min_token).max().unwrap_or_default()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Join)
}
