//! Adds claims to a lock's queue.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Attempt, CalledBy, Claim, Lease};
use leasehold_core::clock::Instant;

use super::ZooKeeperBackend;
use super::acquire::Trial;
use super::relocate::{Guard, Move};
use crate::entry;
use crate::error::Failure;
use crate::name::{Name, State};
use crate::queue::Queue;
use crate::session::{Hook, Session, Use};
use crate::watch::Target;

/// How long the queue entry of a waiting claim is kept. If the entry were kept for a shorter time,
/// it could expire during an election.
const PLACE: Duration = Duration::from_secs(10);

impl ZooKeeperBackend {
    /// Keeps the node of a claim in the queue, as the node of a waiter.
    pub(super) async fn stand_in_line(
        &self,
        trial: &mut Trial<'_>,
        queue: &Queue,
        own: &Name,
    ) -> Result<Attempt, Failure> {
        let (claim, lease) = (trial.claim, trial.claim.lease());
        let to = own.changed(own.share, State::Queued);
        let known = self.claims.find(lease).and_then(|known| known.session);
        let kept = match known.as_ref().filter(|_| to == *own) {
            Some(session) => self.sessions.keeps_place(session, self.kept_for(claim)).await,
            None => None,
        };
        let kept_until = match kept {
            Some(until) => until,
            None => self.keep_place(claim, own, &to, known).await?,
        };
        trial.node = Some(to.text.clone());
        let target = match queue.predecessor(&to) {
            Some(before) => Target::Node(self.layout.node(claim.key(), &before.text)),
            None => Target::Children(self.layout.lock(claim.key()), queue.changed),
        };
        let is_told = self.news.waits(lease, self.layout.node(claim.key(), &to.text), target);
        let contention = self.contention(claim.key(), queue, &to).await;
        let contention = contention.with_place(kept_until.since(trial.sent_at));
        Ok(Attempt::Held(if is_told {
            contention.with_called_by(CalledBy::Key)
        } else {
            contention
        }))
    }

    /// Renews the session for waiters, and moves the node to this session if necessary. Returns
    /// when the queue entry expires.
    async fn keep_place(
        &self,
        claim: &Claim,
        own: &Name,
        to: &Name,
        known: Option<Arc<Session>>,
    ) -> Result<Instant, Failure> {
        let hook = self.place_hook(claim).await?;
        if to != own || known.is_none_or(|session| session.id != hook.id()) {
            let (lease, state, guard) = (claim.lease(), State::Queued, Guard::None);
            let data = &entry::data(state, &self.waiting_lease(claim));
            let step = Move { lease, from: own, to, state, data, guard, version: None };
            self.relocate(&hook, step).await?;
        }
        Ok(hook.good_until)
    }

    /// Returns the session that the queue entry of a claim is attached to.
    pub(super) async fn place_hook(&self, claim: &Claim) -> Result<Hook, Failure> {
        self.sessions.current(&self.servers, Use::Places, self.kept_for(claim)).await
    }

    /// Returns how long the queue entry of a claim is kept if no further attempt is made.
    pub(super) fn kept_for(&self, claim: &Claim) -> Duration {
        let place = claim.place().unwrap_or_else(|| PLACE.min(claim.lease().ttl()));
        place.clamp(self.range.0, self.range.1)
    }

    /// Returns the lease for the data of a waiter's node. The lease's TTL is the lifetime of the
    /// queue entry.
    pub(super) fn waiting_lease(&self, claim: &Claim) -> Lease {
        claim.lease().clone().with_ttl(self.kept_for(claim))
    }
}
