//! Group commit: while transactions are in progress, changes to several locks are collected and
//! sent in one transaction.
//!
//! Up to [`LANES`](leasehold_core::batch::LANES) callers at a time send separate transactions. All
//! remaining callers submit their changes to a [`Batcher`]. Queued releases precede queued
//! acquisitions.
//!
//! A batch is one etcd transaction. Its `then` branch makes the changes of all callers if all
//! conditions hold. Its `else` branch contains a nested transaction for each caller, so a failed
//! condition affects only one caller. The `then` branch also makes the server check all
//! permissions, because servers released before March 2026 do not check the permissions of nested
//! transactions (GHSA-rfx7-8w68-q57q).

use std::iter;
use std::sync::Arc;

use etcd_client::{Compare, ResponseHeader, Txn, TxnOp, TxnOpResponse, TxnResponse};
use leasehold_core::LockKey;
use leasehold_core::batch::{self, BatchLimits, Batcher, Lane, SendBatch};

use crate::connection::Connection;
use crate::error::{BACKEND, Failure};

/// The maximum number of conditions and changes in a batch. The server's default limit is 128, and
/// to this number the server adds the operations of the largest nested transaction. If a server
/// with a lower limit rejects a batch, each caller sends a separate transaction.
const MAX_OPERATIONS: usize = 120;

/// A caller that sends a separate transaction.
pub(crate) type Alone<'a> = batch::Alone<'a, Cluster>;

/// The queued changes of one cluster. Clones share the queue.
#[derive(Clone)]
pub(crate) struct Batches(Batcher<Cluster>);

/// The cluster to which batches are sent.
pub(crate) struct Cluster(Arc<Connection>);

/// A change of one lock, with its conditions.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) key: LockKey,
    /// Whether the change releases the lock.
    pub(crate) is_release: bool,
    pub(crate) when: Vec<Compare>,
    pub(crate) then: Vec<TxnOp>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The store applied the change at this revision.
    Applied(i64),
    /// A condition was not met, so nothing was changed.
    Refused,
    /// Nothing was sent, or the server rejected the whole batch. The caller must send a separate
    /// transaction.
    LeftAlone,
}

/// The result of a change that was [submitted](Batches::change).
pub(crate) enum Changed<'a> {
    /// The store applied the change in a batch, at this revision.
    Applied(i64),
    /// A condition was not met, so nothing was changed.
    Refused,
    /// Nothing was changed. The caller must send a separate transaction, and keep this value in the
    /// meantime.
    Alone(Option<Alone<'a>>),
}

impl Change {
    /// Returns the number of operations that the change adds to a batch.
    fn operations(&self) -> usize {
        self.when.len().max(self.then.len())
    }

    fn alone(&self) -> Txn {
        Txn::new().when(self.when.as_slice()).and_then(self.then.as_slice())
    }
}

impl Batches {
    pub(crate) fn new(connection: &Arc<Connection>) -> Self {
        // The limit covers the connection attempt and the transaction.
        let limits = BatchLimits::new(2 * connection.timeout()).with_weight(MAX_OPERATIONS);
        Self(Batcher::new(BACKEND, Cluster(Arc::clone(connection)), limits))
    }

    /// Makes a change as part of a batch. Returns [`Changed::Alone`] if few transactions are in
    /// progress, or if `change` returns `None` because the change cannot be part of a batch.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unknown`] if the batch may have been sent and no reply arrived. All
    /// callers of the batch receive this error.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A change that has not been sent yet is never sent.
    pub(crate) async fn change(
        &self,
        change: impl FnOnce() -> Option<Change>,
    ) -> Result<Changed<'_>, Failure> {
        if let Some(alone) = self.0.alone() {
            return Ok(Changed::Alone(Some(alone)));
        }
        let Some(change) = change() else { return Ok(Changed::Alone(None)) };
        Ok(match self.submit(change).await? {
            Outcome::Applied(revision) => Changed::Applied(revision),
            Outcome::Refused => Changed::Refused,
            Outcome::LeftAlone => Changed::Alone(self.0.alone()),
        })
    }

    async fn submit(&self, change: Change) -> Result<Outcome, Failure> {
        let connection = &self.0.sender().0;
        let submitted = self.0.submit(change).map_err(Failure::Unsent)?;
        match connection.attend(connection.turn(), submitted.reply()).await {
            Ok(outcome) => outcome,
            Err(error) if error.may_have_been_applied() => Err(Failure::Unknown(error)),
            Err(_unsent) => Ok(Outcome::LeftAlone),
        }
    }
}

impl SendBatch for Cluster {
    type Request = Change;
    type Reply = Result<Outcome, Failure>;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        // Callers can join or leave the batch until the connection is open.
        let opened = self.0.open().await;
        let Some(mut batch) = lane.next_batch() else { return };
        let (callers, changes): (Vec<usize>, Vec<&Change>) = batch.open().unzip();
        if changes.is_empty() {
            return;
        }
        let sent = match opened {
            Ok(()) => self.0.txn(together(&changes)).await,
            Err(failure) => Err(failure),
        };
        match sent {
            Ok(reply) => {
                for (caller, outcome) in callers.into_iter().zip(outcomes(&reply)) {
                    batch.answer(caller, Ok(outcome));
                }
            }
            Err(failure) => {
                batch.answer_all(|_change| failure.repeated().map_or(Ok(Outcome::LeftAlone), Err));
            }
        }
    }

    fn weight(&self, change: &Change) -> usize {
        change.operations()
    }

    /// Releases are urgent, because they free locks for other callers. An etcd cluster cannot be a
    /// member of a quorum, so no acquisition of the same lease is queued when it is released.
    fn is_urgent(&self, change: &Change) -> bool {
        change.is_release
    }

    /// etcd rejects a transaction with two changes of one key.
    fn exclusive_key<'a>(&self, change: &'a Change) -> Option<&'a LockKey> {
        Some(&change.key)
    }

    fn route(&self) -> usize {
        self.0.turn()
    }
}

/// Returns one transaction for all changes.
fn together(changes: &[&Change]) -> Txn {
    if let [only] = changes {
        return only.alone();
    }
    let when: Vec<Compare> =
        changes.iter().flat_map(|change| change.when.iter().cloned()).collect();
    let then: Vec<TxnOp> = changes.iter().flat_map(|change| change.then.iter().cloned()).collect();
    let each: Vec<TxnOp> = changes.iter().map(|change| TxnOp::txn(change.alone())).collect();
    Txn::new().when(when).and_then(then).or_else(each)
}

/// Returns the outcome of each change, in order.
fn outcomes(reply: &TxnResponse) -> impl Iterator<Item = Outcome> {
    let revision = reply.header().map_or(0, ResponseHeader::revision);
    let all = reply.succeeded();
    let each = if all { Vec::new() } else { reply.op_responses() };
    let each = each.into_iter().map(move |response| match response {
        TxnOpResponse::Txn(reply) if reply.succeeded() => Outcome::Applied(revision),
        _ => Outcome::Refused,
    });
    // A batch with one change does not have a nested transaction.
    let same = if all { Outcome::Applied(revision) } else { Outcome::Refused };
    each.chain(iter::repeat(same))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etcd_client::CompareOp;
    use futures_util::FutureExt;
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::config::EtcdConfig;

    fn batches() -> Batches {
        // No server listens on this port.
        batches_to("etcd://127.0.0.1:1")
    }

    fn batches_to(url: &str) -> Batches {
        Batches::new(&Arc::new(Connection::new(EtcdConfig::from_url(url).unwrap())))
    }

    fn change(name: &str) -> Change {
        let absent = |key| Compare::create_revision(key, CompareOp::Equal, 0);
        Change {
            key: LockKey::new(name).unwrap(),
            is_release: false,
            when: vec![absent(name), absent("mark")],
            then: vec![TxnOp::put(name, "", None)],
        }
    }

    #[test]
    fn batch_holds_each_lock_once_and_no_more_operations_than_a_server_accepts() {
        let batches = batches();
        let (cluster, change) = (batches.0.sender(), change("a"));

        assert_eq!(cluster.exclusive_key(&change), Some(&change.key));
        assert_eq!(cluster.weight(&change), 2, "the server counts conditions and changes apart");
    }

    #[tokio::test]
    async fn callers_are_left_alone_if_nothing_was_sent() {
        let batches = batches();

        assert!(matches!(batches.submit(change("a")).await, Ok(Outcome::LeftAlone)));
    }

    #[tokio::test]
    async fn change_of_a_caller_that_leaves_before_the_connection_is_open_is_not_sent() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("etcd://{}?timeout-ms=200", mute.local_addr().unwrap());
        let batches = batches_to(&url);
        let mut submitted = Box::pin(batches.submit(change("a")));
        assert!((&mut submitted).now_or_never().is_none());
        let _connecting = mute.accept().await.unwrap();

        drop(submitted);

        let is_idle = async {
            while !batches.0.is_idle() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), is_idle).await.expect("the connection attempt ends");
        assert_eq!(batches.0.stats().requests, 0);
    }

    #[tokio::test]
    async fn change_of_several_locks_is_not_part_of_a_batch() {
        let batches = batches();
        let _busy: Vec<_> = iter::from_fn(|| batches.0.alone()).collect();

        assert!(matches!(batches.change(|| None).await, Ok(Changed::Alone(None))));
    }
}
