//! Adds claims to a lock's queue.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Attempt, Lease, WokenBy};
use leasehold_core::clock::Instant;

use super::ZooKeeperBackend;
use super::relocate::{Guard, Move};
use super::trial::Trial;
use crate::connection::Use;
use crate::entry;
use crate::error::Failure;
use crate::name::{Name, State};
use crate::queue::Queue;
use crate::session::{Attachment, Session};
use crate::watch::Target;

impl ZooKeeperBackend {
    /// Keeps the node of a claim in the queue, as the node of a waiter. The node is kept for this
    /// time if no further attempt is made.
    pub(super) async fn queue_claim(
        &self,
        trial: &mut Trial<'_>,
        queue: &Queue,
        own: &Name,
        kept_for: Duration,
    ) -> Result<Attempt, Failure> {
        let (claim, lease) = (trial.claim, trial.claim.lease());
        let to = own.changed(own.mode, State::Queued);
        let known = self.claims.find(lease).and_then(|known| known.session);
        let kept = match known.as_ref().filter(|_| to == *own) {
            Some(session) => self.sessions.keeps_place(session, kept_for).await,
            None => None,
        };
        let kept_until = match kept {
            Some(until) => until,
            None => self.keep_place(lease, own, &to, known, kept_for).await?,
        };
        trial.node = Some(to.text.clone());
        let target = match queue.predecessor(&to) {
            Some(before) => Target::Node(self.layout.node(claim.key(), &before.text)),
            None => Target::Children(self.layout.lock(claim.key()), queue.changed),
        };
        let is_told = self.news.waits(lease, self.layout.node(claim.key(), &to.text), target);
        let contention = self.contention(claim.key(), queue, &to).await;
        let contention = contention.with_queue_entry(kept_until.since(trial.sent_at));
        Ok(Attempt::Held(if is_told { contention.with_woken_by(WokenBy::Key) } else { contention }))
    }

    /// Renews the session for waiters, and moves the node to this session if necessary. Returns
    /// when the queue entry expires.
    async fn keep_place(
        &self,
        lease: &Lease,
        own: &Name,
        to: &Name,
        known: Option<Arc<Session>>,
        kept_for: Duration,
    ) -> Result<Instant, Failure> {
        let attachment = self.queue_attachment(kept_for).await?;
        if to != own || known.is_none_or(|session| session.id != attachment.id()) {
            let (state, guard) = (State::Queued, Guard::None);
            let data = &entry::data(state, &lease.clone().with_ttl(kept_for));
            let step = Move { lease, from: own, to, state, data, guard, version: None };
            self.relocate(&attachment, step).await?;
        }
        Ok(attachment.good_until)
    }

    /// Returns the session to which queue entries with this lifetime are attached.
    pub(super) async fn queue_attachment(&self, kept_for: Duration) -> Result<Attachment, Failure> {
        self.sessions.current(&self.servers, Use::Places, kept_for).await
    }
}
