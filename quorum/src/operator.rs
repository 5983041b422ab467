//! Operator requests, which are sent to all members.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::{self, join_all};
use leasehold_core::admin::MemberView;
use leasehold_core::backend::{
    Finding, Fingerprint, ForcedRelease, Inspection, JoinRequest, KeyPage, LockBackend, Operation,
    Reply, Request, Revocation, StoreAdmin,
};
use leasehold_core::{Error, ErrorKind, Holder, LockKey, clock};

use super::Quorum;
use super::members::{admin_of, member_of, no_answer};

/// A position in the list of keys: the number of the next member to ask, the number of earlier
/// members that listed all their keys, and the end of the next member's last page.
type Progress = (usize, usize, Option<String>);

#[async_trait]
impl<B: LockBackend> StoreAdmin for Quorum<B> {
    /// Returns the leases that a majority of the members holds, and each member's view. Only
    /// members that reply are considered.
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let (members, asked) = (&self.members, key.clone());
        let votes = members.statuses(0..members.len(), members.len(), members.member_timeout);
        let answers = members.ask_all(move |store| {
            let key = asked.clone();
            async move { admin_of(&*store)?.inspect(&key).await }
        });
        let ((statuses, _), answers) = future::join(votes, answers).await;
        members.check(&statuses)?;
        let view = |(number, answer): &(usize, Result<Inspection, Error>)| {
            let has_vote = statuses.get(number).is_some_and(|it| it.configuration().is_some());
            MemberView::new(&members.member(*number).name, has_vote, answer.as_ref())
        };
        let views: Vec<MemberView> = answers.iter().map(view).collect();
        let inspection = self.by_majority(&answers.by_majority(&self.members, Operation::Inspect)?);
        Ok(views.into_iter().fold(inspection, Inspection::with_member))
    }

    /// Lists the keys of all members that reply, one member after another. At least a majority must
    /// reply.
    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let (mut number, told, mut inner) = match after {
            Some(after) => read_progress(after)?,
            None => (0, 0, None),
        };
        let members = &self.members;
        while number < members.len() {
            let ends = members.clock.now() + members.member_timeout;
            let admin = admin_of(&*members.member(number).store)?;
            let page = admin.list(prefix, inner.as_deref());
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

    /// Ends leases on all members, and raises the minimum token of a majority to the largest
    /// minimum token of any member.
    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.establish_votes(self.members.member_timeout).await?;
        let forced = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = forced.clone();
            async move { admin_of(&*store)?.force_release(&key, only).await }
        });
        let answers = answers.await.by_majority(&self.members, Operation::ForceRelease)?;
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
        self.raise_min_tokens(min_token).await?;
        Ok(ended.with_min_token(min_token))
    }

    /// Asks the holders on all members to finish early.
    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let key = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = key.clone();
            async move { admin_of(&*store)?.request_revocation(&key, only).await }
        });
        let answers = answers.await.by_majority(&self.members, Operation::RequestRevocation)?;
        let is_held = answers.contains(&Revocation::Requested);
        Ok(if is_held { Revocation::Requested } else { Revocation::NotHeld })
    }

    /// Checks each member. Each finding contains the member's name.
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let each = self.members.iter().map(async |member| {
            let findings = Request::Diagnose.send(&*member.store).await.and_then(Reply::read);
            let findings = findings
                .unwrap_or_else(|error| vec![Finding::warning("settings", error.to_string())]);
            let name = |finding: Finding| finding.with_server(&member.name);
            findings.into_iter().map(name).collect::<Vec<_>>()
        });
        Ok(join_all(each).await.into_iter().flatten().collect())
    }
}

impl<B: LockBackend> Quorum<B> {
    fn by_majority(&self, answers: &[Inspection]) -> Inspection {
        let last_token = answers.iter().filter_map(Inspection::last_token).max();
        let unheard = self.members.len() - answers.len();
        let mut views: BTreeMap<String, Vec<&Holder>> = BTreeMap::new();
        for holder in answers.iter().flat_map(Inspection::holders) {
            views.entry(holder.fingerprint().to_string()).or_default().push(holder);
        }
        let may_hold = views.into_values().filter_map(|mut views| {
            views.sort_by_key(|view| Reverse(view.remaining()));
            let last_of_majority = views.len().min(self.members.majority()) - 1;
            let is_enough = views.len() + unheard >= self.members.majority();
            // The token of a member's grant may differ from the token of the quorum's grant.
            is_enough.then(|| views[last_of_majority].clone().with_token(None))
        });
        let inspection = may_hold.fold(Inspection::free(), Inspection::with_holder);
        inspection.with_last_token(last_token)
    }

    /// Raises the minimum token of a majority of the members to at least `min_token`.
    async fn raise_min_tokens(&self, min_token: u64) -> Result<(), Error> {
        let configuration = self.members.configuration.clone();
        let answers = self.members.ask_voters(move |store, id| {
            let request = JoinRequest::new(id, configuration.clone()).with_min_token(min_token - 1);
            async move { member_of(&*store)?.join(&request).await }
        });
        let statuses = answers.await.by_majority(&self.members, Operation::ForceRelease)?;
        let has_min_token = statuses.iter().filter(|status| status.min_token() >= min_token - 1);
        if has_min_token.count() >= self.members.majority() {
            return Ok(());
        }
        let message = "the leases were released, but a majority of the members did not confirm the new minimum token";
        Err(Error::new(ErrorKind::Indeterminate, message).with_operation(Operation::ForceRelease))
    }
}

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
