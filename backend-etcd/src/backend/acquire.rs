//! Acquires locks.

use std::num::NonZeroU64;
use std::time::Duration;

use etcd_client::{Txn, TxnOp, TxnResponse};
use futures_util::future::join_all;
use leasehold_core::backend::{AttemptAll, Claim, Contention, Grant, Operation, Patience, Tenure};
use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};

use super::hook::{Hook, put};
use super::look::{queues, revision};
use super::position::Position;
use super::{EtcdBackend, context};
use crate::batch::{Change, Changed};
use crate::entry::{SPARE_TOKENS, token};
use crate::error::Failure;
use crate::layout::{Range, tag};
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

/// A claim, and the etcd keys of its entry.
pub(super) struct Asked<'a> {
    pub(super) claim: &'a Claim,
    pub(super) tag: String,
    pub(super) range: Range,
    pub(super) entry: String,
    /// The key of the entry, if the claim finds the lock free.
    pub(super) first: String,
    /// Whether this is the first attempt, so that an earlier attempt cannot have left an entry.
    pub(super) is_new: bool,
}

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
        if claims.len() <= MAX_TOGETHER && claims.iter().all(|claim| claim.share().is_whole()) {
            return Ok(());
        }
        let message =
            format!("one request can acquire at most {MAX_TOGETHER} locks, all of them mutexes");
        let error = Failure::Final(Error::new(ErrorKind::Unsupported, message));
        Err(context(error, Operation::Acquire, claims[0].key()))
    }

    /// Makes one attempt to acquire either all claims or none. A single claim that may wait is
    /// queued if it cannot be granted.
    pub(super) async fn acquire(&self, claims: &[Claim]) -> Result<AttemptAll, Failure> {
        let sent_at = self.clock.now();
        self.doubt_strays(sent_at);
        let asked: Vec<Asked<'_>> = claims.iter().map(|claim| self.asked(claim, sent_at)).collect();
        if let [only] = &asked[..]
            && let Some(contention) = self.wait_on(only).await?
        {
            return Ok(held(only, contention));
        }
        let mut place = None;
        let attempt = match self.attempt(&asked, sent_at, &mut place).await {
            // The session had expired, so nothing was applied. The second attempt uses a new
            // session.
            Err(Failure::LeaseGone(_)) => self.attempt(&asked, sent_at, &mut place).await,
            attempt => attempt,
        };
        let attempt = match (attempt, place) {
            (Ok(AttemptAll::Held { key, contention }), Some(place)) => {
                let contention = self.in_line(asked[0].claim, contention, place);
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
            let new = asked.iter().filter(|asked| asked.is_new);
            new.for_each(|asked| self.slots.free(asked.claim.lease()));
        }
        attempt
    }

    fn asked<'a>(&self, claim: &'a Claim, now: Instant) -> Asked<'a> {
        let range = self.layout.range(claim.key());
        let is_new = self.slots.find(&self.layout, claim.lease()).is_none();
        let entry = self.slots.take(&self.layout, claim.lease(), now);
        let first = self.layout.first(claim.key());
        Asked { claim, tag: tag(claim.lease()), range, entry, first, is_new }
    }

    /// Makes one attempt. Sets `place` to the lifetime of the queue entry as soon as the claim is
    /// queued, even if the attempt fails later.
    async fn attempt(
        &self,
        asked: &[Asked<'_>],
        sent_at: Instant,
        place: &mut Option<Duration>,
    ) -> Result<AttemptAll, Failure> {
        let mut hooks = vec![None; asked.len()];
        let attempt = self.attempt_with(&mut hooks, asked, sent_at, place).await;
        if let Ok(AttemptAll::Held { .. }) = attempt {
            self.drop_hooks(&hooks).await;
        }
        attempt
    }

    /// Makes one attempt. Granted leases are attached to `hooks`. Claims that are not granted are
    /// not attached.
    async fn attempt_with(
        &self,
        hooks: &mut [Option<Hook>],
        asked: &[Asked<'_>],
        sent_at: Instant,
        place: &mut Option<Duration>,
    ) -> Result<AttemptAll, Failure> {
        let ranges: Vec<&Range> = asked.iter().map(|asked| &asked.range).collect();
        let mut queues = if asked.iter().all(|asked| asked.claim.lease().tenure() == Tenure::Kept) {
            // Usually the queue is empty or has no claim before this claim. One transaction is then
            // sufficient to check the queue and acquire the locks.
            match self.take(asked, hooks, None, sent_at).await? {
                Ok(grants) => return Ok(AttemptAll::Granted(grants)),
                Err(found) => found,
            }
        } else {
            self.look(&ranges).await?
        };
        for _ in 0..MAX_TRIES {
            let each = asked.iter().zip(&queues);
            let refused = each
                .map(|(asked, queue)| {
                    (asked, queue, queue.verdict(asked.claim, &asked.tag, &asked.entry))
                })
                .find(|(_, _, verdict)| *verdict != Verdict::Admitted);
            queues = match refused {
                Some((asked, _, Verdict::OtherKind)) => {
                    return Err(Failure::Final(asked.claim.wrong_type()));
                }
                Some((only, queue, Verdict::Refused)) if waits(asked) => {
                    match self.stand_in_line(only, queue, place).await? {
                        Ok(contention) => return Ok(held(only, contention)),
                        Err(found) => vec![found],
                    }
                }
                Some((asked, queue, _)) => {
                    let contention = self.contention(queue, asked.claim, &asked.tag).await;
                    return Ok(held(asked, contention));
                }
                None => match self.take(asked, hooks, Some(&queues), sent_at).await? {
                    Ok(grants) => {
                        self.drop_replaced(asked, &queues).await;
                        return Ok(AttemptAll::Granted(grants));
                    }
                    Err(found) => found,
                },
            };
        }
        Ok(held(&asked[0], Contention::new().with_retry_after(AFTER_LOSING)))
    }

    /// Acquires the locks if their queues have not changed since they were `seen`. Without `seen`,
    /// acquires the locks if they are free. If the locks cannot be acquired, returns the queues.
    async fn take(
        &self,
        asked: &[Asked<'_>],
        hooks: &mut [Option<Hook>],
        seen: Option<&[Queue]>,
        sent_at: Instant,
    ) -> Result<Result<Vec<Grant>, Vec<Queue>>, Failure> {
        for (asked, hook) in asked.iter().zip(&mut *hooks) {
            if hook.is_none() {
                let lease = asked.claim.lease();
                *hook = Some(self.hook(lease.tenure(), Use::Locks, lease.ttl()).await?);
            }
        }
        let hooks: Vec<Hook> = hooks.iter().flatten().copied().collect();
        let each = asked.iter().enumerate().map(|(i, asked)| {
            let seen = seen.map(|queues| &queues[i]);
            Position::of(asked, seen, self.news.queues_since(asked.claim.lease()))
        });
        let positions: Vec<Position<'_>> = each.collect();
        let places = || asked.iter().zip(&positions);
        let created = places().filter(|(_, position)| position.is_new());
        let created = created.map(|(asked, _)| asked.claim.lease());
        let refreshed = asked
            .iter()
            .zip(&hooks)
            .map(|(asked, hook)| self.refreshed(*hook, asked.claim.lease().ttl()));
        let (taken, hooks) = tokio::join!(
            self.create(created, self.put_all(asked, &hooks, &positions)),
            join_all(refreshed)
        );
        let ranges = || asked.iter().map(|asked| &asked.range).collect::<Vec<_>>();
        let revision = match taken? {
            Taken::At(revision) => revision,
            Taken::Found(reply) => return Ok(Err(queues(&ranges(), &reply)?)),
            Taken::Refused => return Ok(Err(self.look(&ranges()).await?)),
        };
        let each = asked.iter().zip(&hooks).zip(&positions);
        let grants = each.map(|((asked, hook), position)| {
            self.granted(asked, *hook, position, revision, sent_at)
        });
        Ok(Ok(grants.collect::<Result<_, _>>()?))
    }

    /// Creates the entries of all claims in one transaction. The entry of a single claim can share
    /// a transaction with entries of different callers.
    async fn put_all(
        &self,
        asked: &[Asked<'_>],
        hooks: &[Hook],
        positions: &[Position<'_>],
    ) -> Result<Taken, Failure> {
        let (mut when, mut then) = (vec![], vec![]);
        for ((asked, hook), position) in asked.iter().zip(hooks).zip(positions) {
            let lease = asked.claim.lease();
            when.extend(position.is_unchanged(asked));
            if position.is_new() {
                when.push(self.is_unmarked(lease));
            }
            then.push(put(position.key(asked), position.held(lease), hook.id()));
            if position.is_free() {
                // The holder that was asked to finish has released the lock, so its revocation
                // request is removed.
                then.push(TxnOp::delete(self.layout.revocation(lease.key()), None));
            }
        }
        let change = || match asked {
            [only] => {
                let key = only.claim.key().clone();
                Some(Change { key, when: when.clone(), then: then.clone() })
            }
            _ => None,
        };
        let alone = match self.batches.change(change).await? {
            Changed::Applied(revision) => return Ok(Taken::At(revision)),
            Changed::Refused => return Ok(Taken::Refused),
            Changed::Alone(alone) => alone,
        };
        let reads: Vec<TxnOp> = asked.iter().map(|asked| asked.range.get()).collect();
        let txn = Txn::new().when(when).and_then(then).or_else(reads);
        let ids: Vec<i64> = hooks.iter().map(|hook| hook.id()).collect();
        let reply = self.hang(&ids, txn).await?;
        drop(alone);
        Ok(if reply.succeeded() { Taken::At(revision(&reply)?) } else { Taken::Found(reply) })
    }

    fn granted(
        &self,
        asked: &Asked<'_>,
        hook: Hook,
        position: &Position<'_>,
        revision: i64,
        sent_at: Instant,
    ) -> Result<Grant, Failure> {
        let lease = asked.claim.lease();
        match position.created(asked, revision) {
            Some(created) if position.is_first(asked) => {
                self.slots.grant_first(lease, created, sent_at);
            }
            Some(created) => self.slots.grant(lease, created, sent_at),
            None => {}
        }
        self.news.granted(&self.connection, lease, position.key(asked), revision);
        let token = NonZeroU64::new(token(revision)).ok_or_else(super::look::senseless)?;
        let spare = asked.claim.spare_tokens().min(SPARE_TOKENS);
        let grant = Grant::new(token).with_spare_tokens(spare);
        Ok(match hook {
            Hook::Session(session) => {
                let good_for = session.good_until().since(sent_at);
                if good_for < lease.ttl() { grant.with_ttl(good_for) } else { grant }
            }
            Hook::Own(_) => grant,
        })
    }
}

/// Returns whether the claim must be queued if it cannot be granted.
fn waits(asked: &[Asked<'_>]) -> bool {
    matches!(asked, [only] if only.claim.patience() != Patience::Leaves)
}

fn held(asked: &Asked<'_>, contention: Contention) -> AttemptAll {
    AttemptAll::Held { key: asked.claim.key().clone(), contention }
}
