//! Standing in line for a lock.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn};
use leasehold_core::backend::{CalledBy, Claim, Contention, Lease, Tenure};

use super::EtcdBackend;
use super::acquire::Asked;
use super::hook::put;
use super::look::queues;
use crate::entry::{self, Entry};
use crate::error::Failure;
use crate::place::Place;
use crate::queue::Queue;
use crate::session::Use;
use crate::watch::{Events, Target};

/// How long the place of a claim is kept that only waits: a leader that freezes eats shorter ones.
const PLACE: Duration = Duration::from_secs(10);

impl EtcdBackend {
    /// Keeps the place of a claim that still waits: its own key and the one before it tell, and nothing else is read. `None` if there
    /// was news, or if nothing would tell of them: then it takes a look at the whole queue.
    pub(super) async fn wait_on(&self, asked: &Asked<'_>) -> Result<Option<Contention>, Failure> {
        let Asked { claim, .. } = asked;
        let Some(place) = self.news.quiet_place(claim.lease()) else { return Ok(None) };
        let Some(question) = place.question() else { return Ok(None) };
        let kept_for = kept_for(claim);
        let (kept, reply) = tokio::join!(
            self.keep_place(claim, &place.own, kept_for),
            self.connection.txn(question)
        );
        let waits = kept?.then_some(place.answer(&reply?)).flatten();
        Ok(waits.map(|contention| self.in_line(claim, contention, kept_for)))
    }

    /// The answer to a claim that stands in line.
    pub(super) fn in_line(
        &self,
        claim: &Claim,
        contention: Contention,
        kept_for: Duration,
    ) -> Contention {
        let contention = contention.with_place(kept_for);
        if self.news.tells(claim.lease()) {
            contention.with_called_by(CalledBy::Key)
        } else {
            contention
        }
    }

    /// Takes a place in the queue, or keeps the one it has; the queue, if it must be looked at again.
    pub(super) async fn stand_in_line(
        &self,
        asked: &Asked<'_>,
        queue: &Queue,
        place: &mut Option<Duration>,
    ) -> Result<Result<Contention, Queue>, Failure> {
        let Asked { claim, tag, range, entry, .. } = asked;
        let kept_for = kept_for(claim);
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
            let reply = self.create(created, self.hang(&[lease], txn)).await?;
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
            Some(before) if claim.share().is_whole() => {
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

    /// The lease of etcd's with which a place ends, with all of its TTL, or nearly so.
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
        let hook = self.hook(claim.lease().tenure(), Use::Places, place).await?;
        Ok(self.refreshed(hook, place).await.id())
    }

    /// Keeps alive the lease of etcd's with which a place ends; `false` if the place must move to another.
    async fn keep_place(
        &self,
        claim: &Claim,
        own: &Entry,
        place: Duration,
    ) -> Result<bool, Failure> {
        if claim.lease().tenure() == Tenure::Fixed {
            return self.sessions.keep_own(&self.connection, own.lease, place).await;
        }
        let hook = self.hook(Tenure::Kept, Use::Places, place).await?;
        Ok(self.refreshed(hook, place).await.id() == own.lease)
    }

    /// That the entry of a lease was not given up while it was in doubt.
    pub(super) fn is_unmarked(&self, lease: &Lease) -> Compare {
        is_absent(&self.layout.mark(lease))
    }
}

fn is_absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// How long the place of a claim is kept without another attempt.
fn kept_for(claim: &Claim) -> Duration {
    claim.place().unwrap_or_else(|| PLACE.min(claim.lease().ttl()))
}
