//! Determines which members can vote on lock requests, creates the quorum, and readmits members
//! that lost their data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Quorum;
use super::ballot::no_majority;
use super::members::{Members, no_answer};
use crate::contract::backend::{Enlistment, LockBackend, Operation, Standing, StoreId};
use crate::contract::error::{Error, ErrorKind};

/// The members' membership statuses, by member number.
type Standings = BTreeMap<usize, Standing>;

/// The inverse of the tolerated clock drift. A member's clock may gain up to 1/50 of the time that
/// the member waits.
const DRIFT_PER_TTL: u32 = 50;

impl<B: LockBackend> Quorum<B> {
    /// Waits until a majority has a vote. A background task checks the remaining members.
    pub(super) async fn muster(&self, limit: Duration) -> Result<(), Error> {
        if self.members.enlisted().len() < self.members.majority() {
            return self.members.look(self.members.majority(), limit).await;
        }
        self.look_beside(limit);
        Ok(())
    }

    /// Starts a background check if any member does not have a vote.
    pub(super) fn look_beside(&self, limit: Duration) {
        let is_complete = self.members.enlisted().len() == self.members.len();
        if !is_complete && self.looking.begin(self.members.clock.now(), limit) {
            let (members, looking) = (Arc::clone(&self.members), self.looking.clone());
            self.late.drive(async move {
                // If the configuration is wrong, the check removes the votes of all members, and
                // the next call reports the error.
                drop(members.look(members.len(), limit).await);
                looking.end();
            });
        }
    }
}

impl<B: LockBackend> Members<B> {
    /// Checks the members until `enough` members with a vote have replied. Members that may join
    /// are asked to join.
    pub(super) async fn look(&self, enough: usize, limit: Duration) -> Result<(), Error> {
        let (standings, mut failures) = self.standings(0..self.len(), enough, limit).await;
        if let Err(error) = self.check(&standings) {
            self.iter().for_each(|member| member.set_id(None));
            return Err(error);
        }
        for (number, standing) in &standings {
            let id = standing.charter().map(|_| standing.store());
            self.member(*number).set_id(id);
        }
        let waiting = self.enlist_others(&standings, limit).await;
        if self.enlisted().len() >= self.majority() {
            return Ok(());
        }
        failures.extend(waiting.into_iter().map(|number| {
            let message = "the member has no data; a new quorum needs all of its members, and a member that lost its data waits until all earlier leases have expired";
            let name = self.member(number).name.clone();
            (name, Error::new(ErrorKind::Unavailable, message))
        }));
        // The outcome is known, because these requests did not change any key.
        let error = no_majority(self.enlisted().len(), self.majority(), &failures, false);
        let kind = if error.is_retryable() { ErrorKind::Unavailable } else { error.kind() };
        Err(Error::new(kind, error.to_string()).with_operation(Operation::Enlist))
    }

    /// Returns the members' statuses, and the errors of the members that did not reply.
    ///
    /// After `enough` members with a vote have replied, the remaining members get the same amount
    /// of time again.
    pub(super) async fn standings(
        &self,
        numbers: impl IntoIterator<Item = usize>,
        enough: usize,
        limit: Duration,
    ) -> (Standings, Vec<(String, Error)>) {
        let mut round = self
            .round(numbers, |store: Arc<B>| async move { store.standing(StoreId::new()).await });
        let (mut standings, mut failures) = (Standings::new(), Vec::new());
        let started = self.clock.now();
        let (mut ends, mut enlisted) = (started + limit, 0);
        while let Some((number, standing)) = round.next(&*self.clock, ends).await {
            self.member(number).note_answer(standing.is_ok());
            match standing {
                Ok(standing) => {
                    enlisted += usize::from(standing.charter().is_some());
                    if enlisted == enough {
                        // The remaining members get the same amount of time again.
                        let now = self.clock.now();
                        ends = ends.min(now + now.since(started));
                    }
                    standings.insert(number, standing);
                }
                Err(error) => failures.push((self.member(number).name.clone(), error)),
            }
        }
        for number in round.unheard() {
            failures.push((self.member(*number).name.clone(), no_answer()));
        }
        (standings, failures)
    }

    /// Returns an error if two names refer to the same server, or if a member belongs to a
    /// different quorum.
    pub(super) fn check(&self, standings: &Standings) -> Result<(), Error> {
        let mut names: BTreeMap<StoreId, &str> = BTreeMap::new();
        for (number, standing) in standings {
            let name = self.member(*number).name.as_str();
            if let Some(other) = names.insert(standing.store(), name) {
                return Err(invalid(format!("members {other} and {name} are the same server")));
            }
            if let Some(charter) = standing.charter()
                && *charter != self.charter
            {
                let message = format!(
                    "member {name} is configured for a different quorum: {charter} instead of {}",
                    self.charter
                );
                return Err(invalid(message));
            }
        }
        Ok(())
    }

    /// Asks members without a vote to join if they are allowed to. Returns the members that may not
    /// join yet.
    async fn enlist_others(&self, standings: &Standings, limit: Duration) -> Vec<usize> {
        let (enlisted, others): (Vec<_>, Vec<_>) =
            standings.iter().partition(|(_, standing)| standing.charter().is_some());
        let are_all_heard = standings.len() == self.len();
        let quarantine = self.max_ttl + self.max_ttl / DRIFT_PER_TTL;
        let quarantine = if flaw!("no-quarantine") { Duration::ZERO } else { quarantine };
        let (over, waiting): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, standing)| standing.age() > quarantine);
        if are_all_heard && enlisted.is_empty() {
            // This is a new quorum, because no member has a vote.
            let floor = standings.values().map(Standing::floor).max().unwrap_or_default();
            self.enlist(standings.iter().collect(), floor, limit).await;
            return Vec::new();
        }
        // Read the minimum tokens only after the member's waiting time. After that time, no earlier
        // grant from the member can still be in use.
        let is_known_by_majority = enlisted.len() >= self.majority();
        let asked: Vec<usize> = if is_known_by_majority {
            enlisted.iter().map(|(number, _)| **number).collect()
        } else if are_all_heard && waiting.is_empty() {
            standings.keys().copied().collect()
        } else {
            return waiting.into_iter().chain(over).map(|(number, _)| *number).collect();
        };
        if !over.is_empty() {
            let needed = if is_known_by_majority { self.majority() } else { self.len() };
            let (floors, _) = self.standings(asked, needed, limit).await;
            if floors.len() >= needed {
                let floor = floors.values().map(Standing::floor).max().unwrap_or_default();
                self.enlist(over, floor, limit).await;
            }
        }
        waiting.into_iter().map(|(number, _)| *number).collect()
    }

    async fn enlist(&self, members: Vec<(&usize, &Standing)>, floor: u64, limit: Duration) {
        let floor = if flaw!("member-without-minimum-token") { 0 } else { floor };
        let enlist = |(number, standing): (&usize, &Standing)| {
            let (number, store) = (*number, Arc::clone(&self.member(*number).store));
            let enlistment = Enlistment::new(standing.store(), self.charter.clone());
            let enlistment = enlistment.with_floor(floor);
            async move { (number, store.enlist(&enlistment).await) }
        };
        let ends = self.clock.now() + limit;
        let enlisting = futures_util::future::join_all(members.into_iter().map(enlist));
        let enlisted = crate::clock::until(&*self.clock, ends, enlisting).await;
        for (number, standing) in enlisted.into_iter().flatten() {
            if let Ok(standing) = standing
                && standing.charter() == Some(&self.charter)
            {
                self.member(number).set_id(Some(standing.store()));
            }
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Enlist)
}
