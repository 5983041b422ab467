//! Acquires locks.

use std::num::NonZeroU64;
use std::time::Duration;

use etcd_client::{Txn, TxnOp, TxnResponse};
use futures_util::future::join_all;
use leasehold_core::backend::{AttemptAll, Claim, Contention, Grant, Operation, Tenure};
use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};

use super::attachment::{Attachment, put};
use super::keyed_claim::KeyedClaim;
use super::look::{queues, revision};
use super::position::Position;
use super::{EtcdBackend, context};
use crate::batch::{Change, Changed};
use crate::entry::{SPARE_TOKENS, token};
use crate::error::Failure;
use crate::layout::Range;
use crate::queue::{Queue, Verdict};
use crate::session::Use;

/// The maximum number of times that an attempt may fail because of concurrent changes to the queue.
/// Each such failure means that at least one other client has made progress.
const MAX_TRIES: usize = 64;

/// The pause before the next attempt after [`MAX_TRIES`] failures.
const AFTER_LOSING: Duration = Duration::from_millis(5);

/// The number of claims that fit into one transaction with the server's default limit of 128
/// operations.
const MAX_TOGETHER: usize = 64;

/// The result of a transaction that acquires locks.
enum Taken {
    /// All claims were granted at this revision.
    At(i64),
    /// The queues have changed since they were read. The reply contains the current queues.
    Found(TxnResponse),
    /// The queues have changed and must be read again. The reply to a batch does not contain the
    /// queues, because they may be long.
    Refused,
}

impl EtcdBackend {
    /// Rejects claims that do not fit into one transaction, before anything is sent.
    pub(super) fn ensure_possible_together(claims: &[Claim]) -> Result<(), Error> {
        if claims.len() <= MAX_TOGETHER && claims.iter().all(|claim| claim.mode().is_mutex()) {
            return Ok(());
        }
        let message =
            format!("one request can acquire at most {MAX_TOGETHER} locks, all of them mutexes");
        let error = Failure::Final(Error::new(ErrorKind::Unsupported, message));
        Err(context(error, Operation::Acquire, claims[0].key()))
    }

    /// Makes one attempt to acquire either all claims or none. A single claim that may wait is
    /// queued if it cannot be granted.
    pub(super) async fn acquire_claims(&self, claims: &[Claim]) -> Result<AttemptAll, Failure> {
        let sent_at = self.clock.now();
        self.doubt_strays(sent_at);
        let keyed_claims: Vec<KeyedClaim<'_>> =
            claims.iter().map(|claim| self.keyed_claim(claim, sent_at)).collect();
        if let [only] = &keyed_claims[..]
            && let Some(contention) = self.wait_on(only).await?
        {
            return Ok(held(only, contention));
        }
        let mut place = None;
        let attempt = match self.attempt(&keyed_claims, sent_at, &mut place).await {
            // The session had expired, so nothing was applied. The second attempt uses a new
            // session.
            Err(Failure::LeaseGone(_)) => self.attempt(&keyed_claims, sent_at, &mut place).await,
            attempt => attempt,
        };
        let attempt = match (attempt, place) {
            (Ok(AttemptAll::Held { key, contention }), Some(place)) => {
                let contention = self.queued(keyed_claims[0].claim, contention, place);
                Ok(AttemptAll::Held { key, contention })
            }
            (Err(failure), Some(_)) => {
                Err(failure.after("the claim was queued, but a follow-up request was not applied"))
            }
            (attempt, _) => attempt,
        };
        let leaves_something = place.is_some()
            || match &attempt {
                Ok(attempt) => matches!(attempt, AttemptAll::Granted(_)),
                Err(failure) => failure.leaves_doubt(),
            };
        if !leaves_something {
            let new = keyed_claims.iter().filter(|keyed| keyed.is_new);
            new.for_each(|keyed| self.slots.free(keyed.claim.lease()));
        }
        attempt
    }

    /// Makes one attempt. Sets `place` to the lifetime of the queue entry as soon as the claim is
    /// queued, even if the attempt fails later.
    async fn attempt(
        &self,
        keyed_claims: &[KeyedClaim<'_>],
        sent_at: Instant,
        place: &mut Option<Duration>,
    ) -> Result<AttemptAll, Failure> {
        let mut attachments = vec![None; keyed_claims.len()];
        let attempt = self.attempt_with(&mut attachments, keyed_claims, sent_at, place).await;
        if let Ok(AttemptAll::Held { .. }) = attempt {
            self.drop_attachments(&attachments).await;
        }
        attempt
    }

    /// Makes one attempt. Granted leases are attached to `attachments`. Claims that are not granted are
    /// not attached.
    async fn attempt_with(
        &self,
        attachments: &mut [Option<Attachment>],
        keyed_claims: &[KeyedClaim<'_>],
        sent_at: Instant,
        place: &mut Option<Duration>,
    ) -> Result<AttemptAll, Failure> {
        let ranges: Vec<&Range> = keyed_claims.iter().map(|keyed| &keyed.range).collect();
        let are_kept =
            keyed_claims.iter().all(|keyed| keyed.claim.lease().tenure() == Tenure::Kept);
        let mut queues = if are_kept {
            // Usually the queue is empty or has no claim before this claim. One transaction is then
            // sufficient to check the queue and acquire the locks.
            match self.take(keyed_claims, attachments, None, sent_at).await? {
                Ok(grants) => return Ok(AttemptAll::Granted(grants)),
                Err(found) => found,
            }
        } else {
            self.look(&ranges).await?
        };
        let queue_ttl = match keyed_claims {
            [only] => only.claim.queue_ttl(),
            _ => None,
        };
        for _ in 0..MAX_TRIES {
            let each = keyed_claims.iter().zip(&queues);
            let refused = each
                .map(|(keyed, queue)| {
                    (keyed, queue, queue.verdict(keyed.claim, &keyed.tag, &keyed.entry))
                })
                .find(|(_, _, verdict)| *verdict != Verdict::Admitted);
            queues = match (refused, queue_ttl) {
                (Some((keyed, _, Verdict::OtherKind)), _) => {
                    return Err(Failure::Final(keyed.claim.wrong_type()));
                }
                (Some((only, queue, Verdict::Refused)), Some(kept_for)) => {
                    match self.queue_claim(only, queue, kept_for, place).await? {
                        Ok(contention) => return Ok(held(only, contention)),
                        Err(found) => vec![found],
                    }
                }
                (Some((keyed, queue, _)), _) => {
                    let contention = self.contention(queue, keyed.claim, &keyed.tag).await;
                    return Ok(held(keyed, contention));
                }
                (None, _) => {
                    match self.take(keyed_claims, attachments, Some(&queues), sent_at).await? {
                        Ok(grants) => {
                            self.drop_replaced(keyed_claims, &queues).await;
                            return Ok(AttemptAll::Granted(grants));
                        }
                        Err(found) => found,
                    }
                }
            };
        }
        Ok(held(&keyed_claims[0], Contention::new().with_retry_after(AFTER_LOSING)))
    }

    /// Acquires the locks if their queues have not changed since they were `seen`. Without `seen`,
    /// acquires the locks if they are free. If the locks cannot be acquired, returns the queues.
    async fn take(
        &self,
        keyed_claims: &[KeyedClaim<'_>],
        attachments: &mut [Option<Attachment>],
        seen: Option<&[Queue]>,
        sent_at: Instant,
    ) -> Result<Result<Vec<Grant>, Vec<Queue>>, Failure> {
        for (keyed, attachment) in keyed_claims.iter().zip(&mut *attachments) {
            if attachment.is_none() {
                let lease = keyed.claim.lease();
                *attachment = Some(self.attachment(lease.tenure(), Use::Locks, lease.ttl()).await?);
            }
        }
        let attachments: Vec<Attachment> = attachments.iter().flatten().copied().collect();
        let each = keyed_claims.iter().enumerate().map(|(i, keyed)| {
            let seen = seen.map(|queues| &queues[i]);
            Position::of(keyed, seen, self.news.queues_since(keyed.claim.lease()))
        });
        let positions: Vec<Position<'_>> = each.collect();
        let places = || keyed_claims.iter().zip(&positions);
        let created = places().filter(|(_, position)| position.is_new());
        let created = created.map(|(keyed, _)| keyed.claim.lease());
        let refreshed = keyed_claims
            .iter()
            .zip(&attachments)
            .map(|(keyed, attachment)| self.refreshed(*attachment, keyed.claim.lease().ttl()));
        let (taken, attachments) = tokio::join!(
            self.create(created, self.put_all(keyed_claims, &attachments, &positions)),
            join_all(refreshed)
        );
        let ranges = || keyed_claims.iter().map(|keyed| &keyed.range).collect::<Vec<_>>();
        let revision = match taken? {
            Taken::At(revision) => revision,
            Taken::Found(reply) => return Ok(Err(queues(&ranges(), &reply)?)),
            Taken::Refused => return Ok(Err(self.look(&ranges()).await?)),
        };
        let each = keyed_claims.iter().zip(&attachments).zip(&positions);
        let grants = each.map(|((keyed, attachment), position)| {
            self.granted(keyed, *attachment, position, revision, sent_at)
        });
        Ok(Ok(grants.collect::<Result<_, _>>()?))
    }

    /// Creates the entries of all claims in one transaction. The entry of a single claim can share
    /// a transaction with entries of different callers.
    async fn put_all(
        &self,
        keyed_claims: &[KeyedClaim<'_>],
        attachments: &[Attachment],
        positions: &[Position<'_>],
    ) -> Result<Taken, Failure> {
        let (mut when, mut then) = (vec![], vec![]);
        for ((keyed, attachment), position) in keyed_claims.iter().zip(attachments).zip(positions) {
            let lease = keyed.claim.lease();
            when.extend(position.is_unchanged(keyed));
            if position.is_new() {
                when.push(self.is_unmarked(lease));
            }
            then.push(put(position.key(keyed), position.held(lease), attachment.id()));
            if position.is_free() {
                // The holder that was asked to finish has released the lock, so its revocation
                // request is removed.
                then.push(TxnOp::delete(self.layout.revocation(lease.key()), None));
            }
        }
        let change = || match keyed_claims {
            [only] => {
                let key = only.claim.key().clone();
                Some(Change { key, is_release: false, when: when.clone(), then: then.clone() })
            }
            _ => None,
        };
        let alone = match self.batches.change(change).await? {
            Changed::Applied(revision) => return Ok(Taken::At(revision)),
            Changed::Refused => return Ok(Taken::Refused),
            Changed::Alone(alone) => alone,
        };
        let reads: Vec<TxnOp> = keyed_claims.iter().map(|keyed| keyed.range.get()).collect();
        let txn = Txn::new().when(when).and_then(then).or_else(reads);
        let ids: Vec<i64> = attachments.iter().map(|attachment| attachment.id()).collect();
        let reply = self.attach(&ids, txn).await?;
        drop(alone);
        Ok(if reply.succeeded() { Taken::At(revision(&reply)?) } else { Taken::Found(reply) })
    }

    fn granted(
        &self,
        keyed: &KeyedClaim<'_>,
        attachment: Attachment,
        position: &Position<'_>,
        revision: i64,
        sent_at: Instant,
    ) -> Result<Grant, Failure> {
        let lease = keyed.claim.lease();
        match position.created(keyed, revision) {
            Some(created) if position.is_first(keyed) => {
                self.slots.grant_first(lease, created, sent_at);
            }
            Some(created) => self.slots.grant(lease, created, sent_at),
            None => {}
        }
        self.news.granted(&self.connection, lease, position.key(keyed), revision);
        let token = NonZeroU64::new(token(revision)).ok_or_else(super::look::senseless)?;
        let spare = keyed.claim.spare_tokens().min(SPARE_TOKENS);
        let grant = Grant::new(token).with_spare_tokens(spare);
        Ok(match attachment {
            Attachment::Session(session) => {
                let good_for = session.good_until().since(sent_at);
                if good_for < lease.ttl() { grant.with_ttl(good_for) } else { grant }
            }
            Attachment::Own(_) => grant,
        })
    }
}

fn held(keyed: &KeyedClaim<'_>, contention: Contention) -> AttemptAll {
    AttemptAll::Held { key: keyed.claim.key().clone(), contention }
}
