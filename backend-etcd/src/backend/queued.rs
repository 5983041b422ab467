//! Adds claims to a lock's queue.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn};
use leasehold_core::backend::{Claim, Contention, Lease, Tenure, WokenBy};

use super::EtcdBackend;
use super::attachment::put;
use super::keyed_claim::KeyedClaim;
use super::look::queues;
use crate::entry::{self, Entry};
use crate::error::Failure;
use crate::place::Place;
use crate::queue::Queue;
use crate::session::Use;
use crate::watch::{Events, Target};

impl EtcdBackend {
    /// Refreshes the queue entry of a claim that still has to wait. Reads only the claim's key and
    /// the key before it. Returns `None` if the caller must read the whole queue, because a change
    /// was reported or the server does not report all relevant changes.
    pub(super) async fn wait_on(
        &self,
        keyed: &KeyedClaim<'_>,
    ) -> Result<Option<Contention>, Failure> {
        let KeyedClaim { claim, .. } = keyed;
        let Some(place) = self.news.quiet_place(claim.lease()) else { return Ok(None) };
        let Some(question) = place.question() else { return Ok(None) };
        let Some(kept_for) = claim.queue_ttl() else { return Ok(None) };
        let (kept, reply) = tokio::join!(
            self.keep_place(claim, &place.own, kept_for),
            self.connection.txn(question)
        );
        let waits = kept?.then_some(place.answer(&reply?)).flatten();
        Ok(waits.map(|contention| self.queued(claim, contention, kept_for)))
    }

    /// Returns the reply to a queued claim.
    pub(super) fn queued(
        &self,
        claim: &Claim,
        contention: Contention,
        kept_for: Duration,
    ) -> Contention {
        let contention = contention.with_queue_entry(kept_for);
        if self.news.tells(claim.lease()) {
            contention.with_woken_by(WokenBy::Key)
        } else {
            contention
        }
    }

    /// Creates or refreshes the queue entry of a claim, which is kept for this time if no further
    /// attempt is made. Returns the queue as `Err` if the queue must be evaluated again.
    pub(super) async fn queue_claim(
        &self,
        keyed: &KeyedClaim<'_>,
        queue: &Queue,
        kept_for: Duration,
        place: &mut Option<Duration>,
    ) -> Result<Result<Contention, Queue>, Failure> {
        let KeyedClaim { claim, tag, range, entry, .. } = keyed;
        let own = queue.entry(tag);
        if own.is_some() {
            *place = Some(kept_for);
        }
        let lease = self.place_lease(claim, own, kept_for).await?;
        let value = entry::queued(claim.lease());
        let Some(own) = own.filter(|own| own.lease == lease && own.value == value.as_bytes())
        else {
            let key = own.map_or_else(|| entry.clone().into(), |own| own.key.clone());
            let unchanged = match own {
                Some(own) => {
                    vec![Compare::mod_revision(own.key.as_slice(), CompareOp::Equal, own.modified)]
                }
                None => vec![is_absent(entry), self.is_unmarked(claim.lease())],
            };
            let txn = Txn::new()
                .when(unchanged)
                .and_then([put(key, value, lease), range.get()])
                .or_else([range.get()]);
            let created = own.is_none().then(|| claim.lease());
            let reply = self.create(created, self.attach(&[lease], txn)).await?;
            if reply.succeeded() {
                *place = Some(kept_for);
            }
            let before = own.map(|own| own.lease);
            let unused = if reply.succeeded() { before } else { Some(lease) };
            if claim.lease().tenure() == Tenure::Fixed
                && before != Some(lease)
                && let Some(unused) = unused
            {
                self.drop_lease(unused).await;
            }
            return Ok(Err(queues(&[range], &reply)?.remove(0)));
        };
        let before = match queue.predecessor(claim, tag) {
            Some(before) if claim.mode().is_mutex() => {
                Target { key: before.key.clone(), end: None, events: Events::Ends }
            }
            Some(before) => Target { key: before.key.clone(), end: None, events: Events::Changes },
            None => {
                let (key, end) = (range.start.clone().into(), range.end.clone().into());
                Target { key, end: Some(end), events: Events::Changes }
            }
        };
        let place = Place::new(queue, claim, own);
        self.news.queues(&self.connection, claim.lease(), place, before);
        Ok(Ok(self.contention(queue, claim, tag).await))
    }

    /// Returns the etcd lease of a queue entry, with nearly all of its TTL left.
    async fn place_lease(
        &self,
        claim: &Claim,
        own: Option<&Entry>,
        place: Duration,
    ) -> Result<i64, Failure> {
        if let Some(own) = own
            && self.keep_place(claim, own, place).await?
        {
            return Ok(own.lease);
        }
        let attachment = self.attachment(claim.lease().tenure(), Use::Places, place).await?;
        Ok(self.refreshed(attachment, place).await.id())
    }

    /// Renews the etcd lease of a queue entry. Returns `false` if the queue entry must move to a
    /// different etcd lease.
    async fn keep_place(
        &self,
        claim: &Claim,
        own: &Entry,
        place: Duration,
    ) -> Result<bool, Failure> {
        if claim.lease().tenure() == Tenure::Fixed {
            return self.sessions.keep_own(&self.connection, own.lease, place).await;
        }
        let attachment = self.attachment(Tenure::Kept, Use::Places, place).await?;
        Ok(self.refreshed(attachment, place).await.id() == own.lease)
    }

    /// Returns the condition that an entry was not marked as abandoned while its creation was
    /// unconfirmed.
    pub(super) fn is_unmarked(&self, lease: &Lease) -> Compare {
        is_absent(&self.layout.mark(lease))
    }
}

fn is_absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}
