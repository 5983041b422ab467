//! Sends the acquisitions of free keys, and the releases, of many callers together.

use std::sync::Arc;

use leasehold_core::batch::{BatchLimits, Batcher, InOrder, Lane, SendBatch};
use leasehold_core::{Error, LockKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::remote::per_runtime::PerRuntime;
use crate::remote::purge::Purge;
use crate::remote::runner::Runner;
use crate::remote::table::nonsense;
use crate::remote::{RunError, Urgency};
use crate::request::span;
use crate::rows::{Acquire, Granted, Named};
use crate::values::FreeClaim;

/// Acquisitions of free keys. Releases have batches of their own, because an acquisition may wait for
/// a locked row.
pub(super) struct Acquisitions {
    pub(super) acquirer: Acquirer,
    /// Limits the acquisitions in progress to the number of their connections.
    pub(super) turns: PerRuntime<Semaphore>,
}

/// Acquires free keys. Clones share their state.
#[derive(Clone)]
pub(super) struct Acquirer {
    pub(super) runner: Runner,
    pub(super) in_order: Arc<InOrder<Uuid>>,
    pub(super) purge: Purge,
}

/// Releases of leases in the simple state.
pub(super) struct Releases {
    pub(super) runner: Runner,
    /// Limits the batches in progress to the number of connections for releases.
    pub(super) turns: PerRuntime<Semaphore>,
}

/// Creates a queue for requests that `sender` sends on connections of `runner`.
pub(super) fn batcher<S: SendBatch>(store: &'static str, runner: &Runner, sender: S) -> Batcher<S> {
    // A batch that fails because of one request is sent again, one request at a time.
    let limits = BatchLimits::new(2 * runner.timeout);
    Batcher::new(store, sender, limits.with_requests(runner.table.max_together()))
}

impl SendBatch for Acquisitions {
    type Request = Acquire;
    type Reply = Result<Option<Granted>, Error>;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        // Callers can join or leave the batch until a connection is free.
        let turn = self.turns.turn(self.acquirer.runner.timeout).await;
        let Some(mut batch) = lane.next_batch() else { return };
        let tags = batch.open().map(|(_, claim)| claim.lease.tag.id);
        let _running = self.acquirer.in_order.begin(tags);
        if let Err(error) = turn {
            let error = Error::from(error);
            batch.answer_all(|_| Err(error.repeated()));
            return;
        }
        let (callers, claims): (Vec<_>, Vec<_>) = batch.open().unzip();
        let replies = self.acquirer.acquire(&claims).await;
        for (caller, reply) in callers.into_iter().zip(replies) {
            batch.answer(caller, reply);
        }
    }

    /// A claim of a quorum is sent alone.
    fn weight(&self, claim: &Acquire) -> usize {
        if claim.membership.is_some() { usize::MAX } else { 1 }
    }

    fn exclusive_key<'a>(&self, claim: &'a Acquire) -> Option<&'a LockKey> {
        Some(&claim.lease.key)
    }
}

impl Acquirer {
    /// Acquires a key for a caller that does not wait for a batch.
    pub(super) async fn acquire_alone(
        self,
        claim: Acquire,
        _turn: OwnedSemaphorePermit,
    ) -> Result<Option<Granted>, Error> {
        let _running = self.in_order.begin([claim.lease.tag.id]);
        self.acquire(&[&claim]).await.pop().expect("one reply for each")
    }

    async fn acquire(&self, claims: &[&Acquire]) -> Vec<Result<Option<Granted>, Error>> {
        let running = &self.runner.within_limit(Urgency::Asks);
        let fingerprints: Vec<_> =
            claims.iter().map(|claim| claim.lease.tag.fingerprint.to_string()).collect();
        let mut free = Vec::with_capacity(claims.len());
        for (claim, fingerprint) in claims.iter().zip(&fingerprints) {
            free.push(FreeClaim {
                key: claim.lease.key.as_str(),
                tag: claim.lease.tag.id,
                ttl: span(claim.ttl),
                fingerprint,
                description: claim.description.as_deref(),
                spare: claim.spare.into(),
                requested_token: claim.requested_token,
                membership: claim.membership.as_ref().map(|membership| membership.as_str()),
            });
        }
        let table = &*self.runner.table;
        let mut parts = Parts::new(&free);
        while let Some(claims) = parts.next() {
            parts.answer(claims, table.acquire_free(running, claims).await);
        }
        let granted = parts.replies();
        let is_granted = |granted: &Result<_, _>| matches!(granted, Ok(Some(_)));
        let (mut keys, mut longest) = (Vec::new(), None);
        for (claim, _) in claims.iter().zip(&granted).filter(|(_, granted)| is_granted(granted)) {
            keys.push(claim.lease.key.clone());
            longest = longest.max(Some(claim.ttl));
        }
        if let Some(longest) = longest {
            self.runner.connections.keep_for_renewals(longest);
        }
        self.purge.count(&keys, &self.runner);
        let reply = |granted: Result<Option<(i64, i64)>, Error>| {
            granted?.map(|(token, spare)| grant(token, spare)).transpose()
        };
        granted.into_iter().map(reply).collect()
    }
}

/// Returns the grant whose largest token is `token`.
fn grant(token: i64, spare: i64) -> Result<Granted, Error> {
    let first = u64::try_from(token - spare).map_err(|_| nonsense())?;
    Ok(Granted { token: first, spare: u32::try_from(spare).map_err(|_| nonsense())? })
}

impl SendBatch for Releases {
    type Request = Named;
    type Reply = Result<Option<bool>, Error>;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let turn = self.turns.turn(self.runner.timeout).await;
        let Some(mut batch) = lane.next_batch() else { return };
        if let Err(error) = turn {
            let error = Error::from(error);
            batch.answer_all(|_| Err(error.repeated()));
            return;
        }
        let (callers, leases): (Vec<_>, Vec<_>) = batch.open().unzip();
        let leases: Vec<_> =
            leases.iter().map(|lease| (lease.key.as_str(), lease.tag.id)).collect();
        let running = self.runner.within_limit(Urgency::Releases);
        let table = &*self.runner.table;
        let mut parts = Parts::new(&leases);
        while let Some(leases) = parts.next() {
            let released = table.release_simple(&running, leases).await;
            parts.answer(leases, released.map(|released| released.into_iter().map(Ok)));
        }
        for (caller, reply) in callers.into_iter().zip(parts.replies()) {
            batch.answer(caller, reply);
        }
    }

    fn exclusive_key<'a>(&self, lease: &'a Named) -> Option<&'a LockKey> {
        Some(&lease.key)
    }
}

/// Requests that are sent together. If the batch fails, possibly because of one request, they are sent
/// one by one.
pub(super) struct Parts<'a, Q, P> {
    /// The last of these requests is sent next.
    unsent: Vec<&'a [Q]>,
    replies: Vec<Result<P, Error>>,
}

impl<'a, Q, P> Parts<'a, Q, P> {
    pub(super) fn new(requests: &'a [Q]) -> Self {
        let unsent = if requests.is_empty() { Vec::new() } else { vec![requests] };
        Self { unsent, replies: Vec::with_capacity(requests.len()) }
    }

    /// Returns the requests to send next. [`answer`](Self::answer) must follow.
    pub(super) fn next(&mut self) -> Option<&'a [Q]> {
        self.unsent.pop()
    }

    /// Adds the replies to the requests that [`next`](Self::next) has returned.
    pub(super) fn answer(
        &mut self,
        requests: &'a [Q],
        replies: Result<impl IntoIterator<Item = Result<P, RunError>>, RunError>,
    ) {
        match replies {
            Ok(replies) => {
                self.replies.extend(replies.into_iter().map(|reply| reply.map_err(Error::from)));
            }
            Err(error) if requests.len() > 1 && error.may_come_from_one_request() => {
                self.unsent.extend(requests.chunks(1).rev());
            }
            Err(error) => {
                let error = Error::from(error);
                self.replies.extend(requests.iter().map(|_| Err(error.repeated())));
            }
        }
    }

    /// Returns the replies in the order of the requests.
    pub(super) fn replies(self) -> Vec<Result<P, Error>> {
        self.replies
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use leasehold_core::ErrorKind;

    use super::*;
    use crate::failure::Failure;

    fn error(failure: Failure) -> RunError {
        RunError::new(failure, "the statement failed", io::Error::other("a cause"))
    }

    #[test]
    fn a_batch_that_one_request_may_have_failed_is_sent_again_one_by_one() {
        let mut parts = Parts::new(&[1, 2, 3]);

        let all = parts.next().unwrap();
        assert_eq!(all, [1, 2, 3]);
        parts.answer(all, Err::<Vec<_>, _>(error(Failure::Conflict)));
        while let Some(one) = parts.next() {
            let reply = match one {
                [2] => Err(error(Failure::Conflict)),
                _ => Ok(vec![Ok(10 * one[0])]),
            };
            parts.answer(one, reply);
        }

        let replies = parts.replies();
        assert_eq!((replies[0].as_ref().ok(), replies[2].as_ref().ok()), (Some(&10), Some(&30)));
        assert_eq!(replies[1].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn an_unknown_outcome_applies_to_the_whole_batch() {
        let mut parts = Parts::<_, u8>::new(&[1, 2]);

        let all = parts.next().unwrap();
        parts.answer(all, Err::<Vec<_>, _>(error(Failure::Unknown)));

        assert!(parts.next().is_none());
        let kinds = parts.replies().into_iter().map(|reply| reply.unwrap_err().kind());
        assert_eq!(kinds.collect::<Vec<_>>(), [ErrorKind::Indeterminate; 2]);
    }
}
