//! Operator requests, which are sent to all members.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::Quorum;
use super::members::no_answer;
use crate::clock;
use crate::contract::backend::{Enlistment, Finding, Fingerprint, KeyPage, LockBackend, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::inspection::{Inspection, MemberView};
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

type Progress = (usize, usize, Option<String>);

fn read_progress(after: &str) -> Result<Progress, Error> {
    let read = || {
        let mut parts = after.splitn(3, ' ');
        let (number, told) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let inner = parts.next()?;
        Some((number, told, (!inner.is_empty()).then(|| inner.to_owned())))
    };
    read().ok_or_else(|| {
        Error::new(
            ErrorKind::Invalid,
            "the position in the list is invalid; use a position that a page of the list returned",
        )
    })
}

impl<B: LockBackend> Quorum<B> {
    /// Returns the leases that a majority of the members holds, and each member's view. Only
    /// members that reply are considered.
    pub(super) async fn inspect_members(&self, key: &LockKey) -> Result<Inspection, Error> {
        let (members, asked) = (&self.members, key.clone());
        let votes = members.standings(0..members.len(), members.len(), members.member_timeout);
        let answers = members.ask_all(move |store| {
            let key = asked.clone();
            async move { store.inspect(&key).await }
        });
        let ((standings, _), answers) = futures_util::future::join(votes, answers).await;
        members.check(&standings)?;
        let view = |(number, answer): &(usize, Result<Inspection, Error>)| {
            let has_vote = standings.get(number).is_some_and(|it| it.charter().is_some());
            MemberView::new(&members.member(*number).name, has_vote, answer.as_ref())
        };
        let views: Vec<MemberView> = answers.iter().map(view).collect();
        let inspection = self.by_majority(&answers.by_majority(Operation::Inspect)?);
        Ok(views.into_iter().fold(inspection, Inspection::with_member))
    }

    /// Checks each member. Each finding contains the member's name.
    pub(super) async fn diagnose_members(&self) -> Vec<Finding> {
        let each = self.members.iter().map(async |member| {
            let findings = member.store.diagnose().await;
            let findings = findings
                .unwrap_or_else(|error| vec![Finding::warning("settings", error.to_string())]);
            let name = |finding: Finding| finding.with_server(&member.name);
            findings.into_iter().map(name).collect::<Vec<_>>()
        });
        join_all(each).await.into_iter().flatten().collect()
    }

    /// Lists the keys of all members that reply, one member after another. At least a majority must
    /// reply.
    ///
    /// `after` contains three values: the number of the next member to ask, the number of earlier
    /// members that listed all their keys, and the end of the next member's last page.
    pub(super) async fn list_of_members(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<KeyPage, Error> {
        let (mut number, told, mut inner) = match after {
            Some(after) => read_progress(after)?,
            None => (0, 0, None),
        };
        let members = &self.members;
        while number < members.len() {
            let ends = members.clock.now() + members.member_timeout;
            let page = members.member(number).store.list(prefix, inner.as_deref());
            let page = clock::until(&*members.clock, ends, page).await;
            let error = match page.unwrap_or_else(|| Err(no_answer())) {
                Ok(page) => {
                    let next = match page.next() {
                        Some(inner) => Some(format!("{number} {told} {inner}")),
                        None if number + 1 == members.len() => None,
                        None => Some(format!("{} {} ", number + 1, told + 1)),
                    };
                    return Ok(page.with_next(next));
                }
                Err(error) => error,
            };
            (number, inner) = (number + 1, None);
            if told + members.len() - number < members.majority() {
                return Err(error);
            }
        }
        Ok(KeyPage::default())
    }

    fn by_majority(&self, answers: &[Inspection]) -> Inspection {
        let last_token = answers.iter().filter_map(Inspection::last_token).max();
        let unheard = self.members.len() - answers.len();
        let mut views: BTreeMap<String, Vec<&Holder>> = BTreeMap::new();
        for holder in answers.iter().flat_map(Inspection::holders) {
            views.entry(holder.fingerprint().to_string()).or_default().push(holder);
        }
        let may_hold = views.into_values().filter_map(|mut views| {
            views.sort_by_key(|view| std::cmp::Reverse(view.remaining()));
            let last_of_majority = views.len().min(self.members.majority()) - 1;
            let is_enough = views.len() + unheard >= self.members.majority();
            // The token of a member's grant may differ from the token of the quorum's grant.
            is_enough.then(|| views[last_of_majority].clone().with_token(None))
        });
        let inspection = may_hold.fold(Inspection::free(), Inspection::with_holder);
        inspection.with_last_token(last_token)
    }

    /// Ends leases on all members, and raises the minimum token of a majority to the largest
    /// minimum token of any member.
    pub(super) async fn force_release_everywhere(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.muster(self.members.member_timeout).await?;
        let forced = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = forced.clone();
            async move { store.force_release(&key, only).await }
        });
        let answers = answers.await.by_majority(Operation::ForceRelease)?;
        let mut ended: Vec<Holder> = Vec::new();
        for holder in answers.iter().flat_map(ForcedRelease::ended) {
            if ended.iter().all(|known| known.fingerprint() != holder.fingerprint()) {
                ended.push(holder.clone());
            }
        }
        let ended = ended.into_iter().fold(ForcedRelease::new(), ForcedRelease::with_ended);
        let Some(min_token) = answers.iter().filter_map(ForcedRelease::min_token).max() else {
            return Ok(ended);
        };
        self.raise_floors(min_token).await?;
        Ok(ended.with_min_token(min_token))
    }

    /// Raises the minimum token of a majority of the members to at least `min_token`.
    async fn raise_floors(&self, min_token: u64) -> Result<(), Error> {
        let charter = self.members.charter.clone();
        let answers = self.members.ask_voters(move |store, id| {
            let enlistment = Enlistment::new(id, charter.clone()).with_floor(min_token - 1);
            async move { store.enlist(&enlistment).await }
        });
        let standings = answers.await.by_majority(Operation::ForceRelease)?;
        let has_floor = standings.iter().filter(|standing| standing.floor() >= min_token - 1);
        if has_floor.count() >= self.members.majority() {
            return Ok(());
        }
        let message = "the leases were released, but a majority of the members did not confirm the new minimum token";
        Err(Error::new(ErrorKind::Indeterminate, message).with_operation(Operation::ForceRelease))
    }

    /// Asks the holders on all members to finish early.
    pub(super) async fn request_revocation_everywhere(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let key = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = key.clone();
            async move { store.request_revocation(&key, only).await }
        });
        let answers = answers.await.by_majority(Operation::Revoke)?;
        let is_held = answers.contains(&Revocation::Requested);
        Ok(if is_held { Revocation::Requested } else { Revocation::NotHeld })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_keeps_the_page_of_a_member_whole() {
        assert_eq!(read_progress("1 20 a b c").unwrap(), (1, 20, Some("a b c".to_owned())));
        assert_eq!(read_progress("2 0 ").unwrap(), (2, 0, None));
        for odd in ["", "1", "1 2", "x 2 a", "1 x a"] {
            assert_eq!(read_progress(odd).unwrap_err().kind(), ErrorKind::Invalid, "{odd:?}");
        }
    }
}
