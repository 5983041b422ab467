//! Acquires locks.

use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Contention, Grant, Tenure};
use zookeeper_client::Stat;

use super::ZooKeeperBackend;
use super::relocate::{Guard, Move};
use super::trial::{Made, Trial};
use crate::entry::{self, SHIFT, token};
use crate::error::{self, Failure};
use crate::layout::tag;
use crate::name::{Name, State};
use crate::queue::{Queue, Verdict};
use crate::session::Attachment;

/// The maximum number of times that an attempt may fail because of concurrent changes to the queue.
/// Each such failure means that at least one other client has made progress.
const MAX_TRIES: usize = 16;

/// The pause before the next attempt after [`MAX_TRIES`] failures.
const AFTER_LOSING: Duration = Duration::from_millis(5);

impl ZooKeeperBackend {
    /// Makes one attempt to acquire a lock. A claim that may wait is queued if it cannot be
    /// granted.
    pub(super) async fn acquire_claim(&self, claim: &Claim) -> Result<Attempt, Failure> {
        let sent_at = self.clock.now();
        self.doubt_strays(sent_at);
        let lease = claim.lease();
        let is_new = self.claims.ask(lease, sent_at).is_none();
        let mut trial = Trial::new(claim, self.range, sent_at);
        let attempt = self.attempt(&mut trial, is_new).await;
        let attempt = match attempt {
            Err(failure) if trial.node.is_some() => Err(failure
                .after("the claim's node was created, but a follow-up request was not applied")),
            attempt => attempt,
        };
        let leaves_something = trial.node.is_some()
            || matches!(attempt, Ok(Attempt::Granted(_)) | Err(Failure::Unknown(_)));
        if is_new && !leaves_something {
            self.claims.forget(lease);
        }
        attempt
    }

    async fn attempt(&self, trial: &mut Trial<'_>, is_new: bool) -> Result<Attempt, Failure> {
        let (claim, lease) = (trial.claim, trial.claim.lease());
        if is_new {
            // An outdated queue may wrongly reject a claim but never wrongly admits a claim, see
            // `State::HeldAs`.
            let queue = self.glance(claim.key()).await?;
            let last = Name::last(&tag(lease), claim.mode());
            if queue.entry(&last.tag).is_none() && queue.verdict(&last) == Verdict::Admitted {
                match self.join(trial, &queue).await {
                    Err(Failure::Mismatch(_) | Failure::SessionGone(_)) => {}
                    joined => return joined,
                }
            }
        }
        self.settle(lease).await?;
        for _ in 0..MAX_TRIES {
            let queue = self.queue(claim.key()).await?;
            let attempt = match queue.entry(&tag(lease)) {
                Some(own) => self.go_on(trial, &queue, own).await,
                None => {
                    // An earlier node of the claim was removed with its session.
                    trial.node = None;
                    self.enter(trial, &queue).await
                }
            };
            match attempt {
                Err(Failure::Mismatch(_) | Failure::SessionGone(_)) => {}
                attempt => return attempt,
            }
        }
        self.take_back(trial).await?;
        Ok(Attempt::Held(Contention::new().with_retry_after(AFTER_LOSING)))
    }

    /// Handles a claim without a node. Creates the node if the claim is admitted or may be queued.
    async fn enter(&self, trial: &mut Trial<'_>, queue: &Queue) -> Result<Attempt, Failure> {
        let (claim, lease) = (trial.claim, trial.claim.lease());
        let last = Name::last(&tag(lease), claim.mode());
        match (queue.verdict(&last), trial.kept_for) {
            (Verdict::OtherKind, _) => Err(Failure::Final(claim.wrong_type())),
            (Verdict::Refused, None) => {
                Ok(Attempt::Held(self.contention(claim.key(), queue, &last).await))
            }
            (Verdict::Refused, Some(kept_for)) => {
                let attachment = self.queue_attachment(kept_for).await?;
                let data = entry::data(State::Queued, &lease.clone().with_ttl(kept_for));
                let made = self.make(trial, &attachment, State::Queued, &data).await?;
                drop(attachment);
                self.go_on(trial, &made.queue, &made.own).await
            }
            (Verdict::Admitted, _) => self.join(trial, queue).await,
        }
    }

    /// Creates the node of a claim that `queue` admits. If no node was created in the meantime,
    /// creating the node grants the claim.
    async fn join(&self, trial: &mut Trial<'_>, queue: &Queue) -> Result<Attempt, Failure> {
        let lease = trial.claim.lease();
        let attachment = self.attachment(lease).await?;
        let state = match queue.has_other_limits(lease.mode()) {
            // The order of the nodes may not show a grant to a different client.
            true => State::Queued,
            false => State::HeldAs(queue.next),
        };
        let Made { own, stat, queue: now } =
            self.make(trial, &attachment, state, &entry::data(state, lease)).await?;
        let is_same = now.made == queue.made || own.number == 0;
        if is_same && state.of(own.number) == State::Held {
            self.claims.lies(lease, &own.text, State::Held, &attachment.session);
            return self.granted(trial, &attachment, &now, &own, &stat).await;
        }
        // The attachment is dropped because the next steps may have to reconnect to the session, which
        // waits for its users.
        drop(attachment);
        match now.entry(&own.tag).filter(|first| first.text != own.text) {
            None => self.go_on(trial, &now, &own).await,
            Some(first) => {
                // A different client has sent the same claim.
                self.take_back(trial).await?;
                self.go_on(trial, &now, first).await
            }
        }
    }

    /// Decides about a claim that has a node.
    async fn go_on(
        &self,
        trial: &mut Trial<'_>,
        queue: &Queue,
        own: &Name,
    ) -> Result<Attempt, Failure> {
        let (claim, lease) = (trial.claim, trial.claim.lease());
        match (queue.verdict(own), trial.kept_for) {
            // Earlier claims with a different limit may be admitted at the same time.
            (Verdict::Admitted, _) => {}
            (Verdict::OtherKind, _) => {
                self.take_back(trial).await?;
                return Err(Failure::Final(claim.wrong_type()));
            }
            (Verdict::Refused, None) => {
                let contention = self.contention(claim.key(), queue, own);
                let (gone, contention) = tokio::join!(self.take_back(trial), contention);
                gone?;
                return Ok(Attempt::Held(contention));
            }
            (Verdict::Refused, Some(kept_for)) => {
                return self.queue_claim(trial, queue, own, kept_for).await;
            }
        }
        // The number of permits of a claim that already holds permits does not increase.
        let lease = lease.clone().with_mode(claim.mode().capped_by(own.mode));
        let to = own.changed(lease.mode(), State::Held);
        let attachment = self.attachment(&lease).await?;
        let guard = match own.state {
            None => Guard::None,
            Some(_) if queue.has_other_limits(own.mode) => Guard::Passes(queue.version),
            Some(_) => Guard::Unpassed(queue.version),
        };
        let (lease, state) = (&lease, State::Held);
        let data = &entry::data(state, lease);
        let step = Move { lease, from: own, to: &to, state, data, guard, version: None };
        let moved = self.relocate(&attachment, step).await?;
        self.granted(trial, &attachment, queue, &to, &moved).await
    }

    async fn granted(
        &self,
        trial: &Trial<'_>,
        attachment: &Attachment,
        queue: &Queue,
        own: &Name,
        stat: &Stat,
    ) -> Result<Attempt, Failure> {
        let (claim, lease) = (trial.claim, trial.claim.lease());
        if queue.is_asked && queue.holders().all(|holder| holder.tag == own.tag) {
            // The holder that was asked to finish has released the lock, so its revocation request
            // is removed.
            self.clear_request(claim.key())
                .await
                .map_err(|failure| failure.after("it is granted"))?;
        }
        if lease.tenure() == Tenure::Fixed {
            attachment.session.close();
        }
        self.claims.renew(lease, trial.sent_at);
        self.news.holds(lease, self.layout.node(claim.key(), &own.text));
        let number = NonZeroU64::new(token(stat.czxid)).ok_or_else(error::senseless)?;
        let spare = claim.spare_tokens().min((1 << SHIFT) - 1);
        let grant = Grant::new(number).with_spare_tokens(spare);
        let good_for = attachment.good_until.since(trial.sent_at);
        Ok(Attempt::Granted(if good_for < lease.ttl() { grant.with_ttl(good_for) } else { grant }))
    }
}
