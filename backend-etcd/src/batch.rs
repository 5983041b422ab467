//! Group commit: while transactions are in progress, changes to several locks are collected and
//! sent in one transaction.
//!
//! Up to [`LANES`] callers at a time send separate transactions. All remaining callers are queued.
//! Up to [`LANES`] tasks send the queued changes in batches, with one round trip per batch. If a
//! caller's future is dropped while its change is queued, the change is not sent. A batch never
//! waits for additional callers.
//!
//! A batch is one etcd transaction. Its `then` branch makes the changes of all callers if all
//! conditions hold. Its `else` branch contains a nested transaction for each caller, so a failed
//! condition affects only one caller. The `then` branch also makes the server check all
//! permissions, because servers released before March 2026 do not check the permissions of nested
//! transactions (GHSA-rfx7-8w68-q57q).

use std::collections::{HashSet, VecDeque};
use std::iter;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use etcd_client::{Compare, ResponseHeader, Txn, TxnOp, TxnOpResponse, TxnResponse};
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::error::Failure;
use crate::sync::locked;

/// The number of concurrent round trips. Three concurrent round trips keep the client and the
/// server busy. In a measurement, six lanes sent smaller batches but not more of them.
const LANES: usize = 3;

/// The maximum number of conditions and changes in a batch. The server's default limit is 128, and
/// to this number the server adds the operations of the largest nested transaction. If a server
/// with a lower limit rejects a batch, each caller sends a separate transaction.
const MAX_OPERATIONS: usize = 120;

/// The queued changes of one cluster.
pub(crate) struct Batches {
    connection: Arc<Connection>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of callers that are sending separate transactions.
    alone: usize,
    /// The number of tasks that send batches to the current member. A task that is stuck with a
    /// previous member no longer counts.
    lanes: usize,
    turn: usize,
    line: VecDeque<Waiting>,
}

/// A queued caller.
struct Waiting {
    change: Change,
    caller: oneshot::Sender<Result<Outcome, Failure>>,
}

/// A change of one lock, with its conditions.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) key: LockKey,
    pub(crate) when: Vec<Compare>,
    pub(crate) then: Vec<TxnOp>,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
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
    pub(crate) fn new(connection: &Arc<Connection>) -> Arc<Self> {
        Arc::new(Self { connection: Arc::clone(connection), state: Mutex::default() })
    }

    /// Makes a change as part of a batch. Returns [`Changed::Alone`] if few transactions are in
    /// progress, or if `change` returns `None` because the change cannot be part of a batch.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unknown`] if the batch may have been sent and no reply arrived.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A change that has not been sent yet is never sent.
    pub(crate) async fn change(
        self: &Arc<Self>,
        change: impl FnOnce() -> Option<Change>,
    ) -> Result<Changed<'_>, Failure> {
        if let Some(alone) = self.alone() {
            return Ok(Changed::Alone(Some(alone)));
        }
        let Some(change) = change() else { return Ok(Changed::Alone(None)) };
        Ok(match self.join(change).await? {
            Outcome::Applied(revision) => Changed::Applied(revision),
            Outcome::Refused => Changed::Refused,
            Outcome::LeftAlone => Changed::Alone(self.alone()),
        })
    }

    /// Registers a caller that sends a separate transaction, because up to [`LANES`] callers are
    /// faster without batches. Returns `None` if too many transactions are in progress, in which
    /// case the caller [joins](Self::join) a batch.
    fn alone(&self) -> Option<Alone<'_>> {
        let mut state = self.state();
        let is_alone = state.lanes == 0 && state.alone < LANES;
        state.alone += usize::from(is_alone);
        is_alone.then(|| Alone(self))
    }

    /// Makes a change as part of a batch.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unknown`] if the batch may have been sent and no reply arrived. All
    /// callers of the batch receive this error.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A change that has not been sent yet is never sent.
    async fn join(self: &Arc<Self>, change: Change) -> Result<Outcome, Failure> {
        let Ok(runtime) = Handle::try_current() else { return Ok(Outcome::LeftAlone) };
        let turn = self.connection.turn();
        let (caller, outcome) = oneshot::channel();
        if let Some(turn) = self.add(turn, Waiting { change, caller }) {
            runtime.spawn(Lane { batches: Arc::clone(self), turn, has_ended: false }.run());
        }
        // The limit covers the previous batch and the caller's batch. The limit is necessary
        // because a lane does not send batches while its runtime is not running.
        let told = timeout(self.connection.timeout() * 2, outcome);
        match self.connection.attend(turn, told).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_dropped)) => Err(runtime_ended()),
            Err(_elapsed) => {
                self.connection.leave(turn);
                Err(Failure::silent())
            }
        }
    }

    /// Queues a caller. If a new lane must be started for the caller, returns the turn of the new
    /// lane.
    fn add(&self, turn: usize, waiting: Waiting) -> Option<usize> {
        let mut state = self.state();
        if state.turn < turn {
            (state.turn, state.lanes) = (turn, 0);
        }
        let begins = state.lanes < LANES;
        state.lanes += usize::from(begins);
        state.line.push_back(waiting);
        begins.then_some(state.turn)
    }

    async fn send(&self, batch: Vec<Waiting>) {
        match self.connection.txn(together(&batch)).await {
            Ok(reply) => tell(batch, outcomes(&reply)),
            Err(failure) => {
                let told = || failure.repeated().map_or(Ok(Outcome::LeftAlone), Err);
                tell(batch, iter::repeat_with(told));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// A caller that sends a separate transaction.
pub(crate) struct Alone<'a>(&'a Batches);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

impl State {
    fn end_lane(&mut self, turn: usize) {
        self.lanes -= usize::from(self.turn == turn);
    }

    /// Removes the next batch from the queue, in order, without callers that were dropped. etcd
    /// rejects a transaction with two changes of one key, so a batch contains each lock only once.
    /// Further changes of that lock remain queued.
    fn next_batch(&mut self) -> Vec<Waiting> {
        let (mut batch, mut later) = (Vec::new(), Vec::new());
        let (mut keys, mut room) = (HashSet::new(), MAX_OPERATIONS);
        while self.line.front().is_some_and(|next| next.change.operations() <= room)
            && let Some(next) = self.line.pop_front()
        {
            if next.caller.is_closed() {
                continue;
            }
            if keys.insert(next.change.key.clone()) {
                room -= next.change.operations();
                batch.push(next);
            } else {
                later.push(next);
            }
        }
        later.into_iter().rev().for_each(|waiting| self.line.push_front(waiting));
        batch
    }
}

/// A task that sends batches until the queue is empty.
struct Lane {
    batches: Arc<Batches>,
    turn: usize,
    has_ended: bool,
}

impl Lane {
    async fn run(mut self) {
        loop {
            // Yielding allows callers that have just received their outcome to join the next batch.
            yield_now().await;
            let Some(batch) = self.next_batch() else { return };
            self.batches.send(batch).await;
        }
    }

    /// Returns the next batch. If the queue is empty, the lane is removed.
    fn next_batch(&mut self) -> Option<Vec<Waiting>> {
        let mut state = self.batches.state();
        let batch = state.next_batch();
        if batch.is_empty() {
            state.end_lane(self.turn);
            self.has_ended = true;
            return None;
        }
        Some(batch)
    }
}

/// The runtime may shut down while the lane is running.
impl Drop for Lane {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.batches.state();
        state.end_lane(self.turn);
        // No lane is left to send the changes of callers that are still queued.
        let left = if state.lanes == 0 { mem::take(&mut state.line) } else { VecDeque::new() };
        drop(state);
        tell(left, iter::repeat_with(|| Ok(Outcome::LeftAlone)));
    }
}

/// Returns one transaction for the whole batch.
fn together(batch: &[Waiting]) -> Txn {
    if let [only] = batch {
        return only.change.alone();
    }
    let changes = || batch.iter().map(|waiting| &waiting.change);
    let when: Vec<Compare> = changes().flat_map(|change| change.when.iter().cloned()).collect();
    let then: Vec<TxnOp> = changes().flat_map(|change| change.then.iter().cloned()).collect();
    let each: Vec<TxnOp> = changes().map(|change| TxnOp::txn(change.alone())).collect();
    Txn::new().when(when).and_then(then).or_else(each)
}

/// Returns the outcome of each caller, in order.
fn outcomes(reply: &TxnResponse) -> impl Iterator<Item = Result<Outcome, Failure>> {
    let revision = reply.header().map_or(0, ResponseHeader::revision);
    let all = reply.succeeded();
    let each = if all { Vec::new() } else { reply.op_responses() };
    let each = each.into_iter().map(move |response| match response {
        TxnOpResponse::Txn(reply) if reply.succeeded() => Ok(Outcome::Applied(revision)),
        _ => Ok(Outcome::Refused),
    });
    // A batch with one caller does not have a nested transaction.
    let same = if all { Outcome::Applied(revision) } else { Outcome::Refused };
    each.chain(iter::repeat_with(move || Ok(same)))
}

fn tell(
    batch: impl IntoIterator<Item = Waiting>,
    outcomes: impl Iterator<Item = Result<Outcome, Failure>>,
) {
    for (waiting, outcome) in batch.into_iter().zip(outcomes) {
        // A caller that was dropped does not need its outcome.
        let _ = waiting.caller.send(outcome);
    }
}

fn runtime_ended() -> Failure {
    let message = "the runtime that sent the request was shut down, so the outcome is unknown";
    Failure::Unknown(Error::new(ErrorKind::Indeterminate, message))
}

#[cfg(test)]
mod tests {
    use etcd_client::CompareOp;

    use super::*;
    use crate::config::EtcdConfig;

    type Told = oneshot::Receiver<Result<Outcome, Failure>>;

    fn change(name: &str) -> Change {
        let key = LockKey::new(name).unwrap();
        let absent = |key| Compare::create_revision(key, CompareOp::Equal, 0);
        Change {
            key,
            when: vec![absent(name), absent("mark")],
            then: vec![TxnOp::put(name, "", None)],
        }
    }

    fn waiting(name: &str) -> (Waiting, Told) {
        let (caller, told) = oneshot::channel();
        (Waiting { change: change(name), caller }, told)
    }

    fn line(names: &[&str]) -> (State, Vec<Told>) {
        let (line, told): (VecDeque<_>, Vec<_>) = names.iter().map(|name| waiting(name)).unzip();
        (State { line, ..State::default() }, told)
    }

    fn names(batch: &[Waiting]) -> Vec<&str> {
        batch.iter().map(|waiting| waiting.change.key.as_str()).collect()
    }

    fn batches() -> Arc<Batches> {
        // There is no server at this address.
        let config = EtcdConfig::from_url("etcd://127.0.0.1:1").unwrap();
        Batches::new(&Arc::new(Connection::new(config)))
    }

    #[test]
    fn a_batch_holds_each_lock_once_and_in_order() {
        let (mut state, _told) = line(&["a", "b", "a", "c", "a", "b"]);

        assert_eq!(names(&state.next_batch()), ["a", "b", "c"]);
        assert_eq!(names(&state.next_batch()), ["a", "b"]);
        assert_eq!(names(&state.next_batch()), ["a"]);
        assert!(state.next_batch().is_empty());
    }

    #[test]
    fn a_caller_that_gave_up_is_not_sent() {
        let (mut state, mut told) = line(&["a", "gone", "b"]);

        drop(told.remove(1));

        assert_eq!(names(&state.next_batch()), ["a", "b"]);
    }

    #[test]
    fn a_batch_has_no_more_operations_than_a_server_takes() {
        let all: Vec<String> = (0..MAX_OPERATIONS).map(|n| n.to_string()).collect();
        let (mut state, _told) = line(&all.iter().map(String::as_str).collect::<Vec<_>>());

        assert_eq!(state.next_batch().len(), MAX_OPERATIONS / 2);
        assert_eq!(state.next_batch().len(), MAX_OPERATIONS / 2);
        assert!(state.next_batch().is_empty());
    }

    #[test]
    fn few_callers_go_alone_and_others_have_company() {
        let batches = batches();
        let mut alone: Vec<_> = (0..LANES).map(|_| batches.alone().unwrap()).collect();

        assert!(batches.alone().is_none());
        drop(alone.pop());
        assert!(batches.alone().is_some());

        batches.add(0, waiting("a").0);
        assert!(batches.alone().is_none());
    }

    #[test]
    fn lanes_to_a_member_that_was_left_do_not_count() {
        let batches = batches();
        let begins = |turn| batches.add(turn, waiting("a").0);

        assert_eq!([(); LANES + 1].map(|()| begins(0)), [Some(0), Some(0), Some(0), None]);
        assert_eq!(begins(1), Some(1));
        // A caller that has not yet noticed the switch to a different member can still join a
        // batch.
        assert_eq!(begins(0), Some(1));
        batches.state().end_lane(0);
        assert_eq!(batches.state().lanes, 2);
    }

    #[tokio::test]
    async fn callers_are_left_alone_if_nothing_was_sent() {
        let batches = batches();

        assert!(matches!(batches.join(change("a")).await, Ok(Outcome::LeftAlone)));

        yield_now().await;
        assert_eq!(batches.state().lanes, 0);
    }

    #[test]
    fn a_lane_that_ends_with_its_runtime_leaves_those_in_line_alone() {
        let batches = batches();
        let lane = || Lane { batches: Arc::clone(&batches), turn: 0, has_ended: false };
        let (one, mut told) = waiting("a");
        let (other, mut told_later) = waiting("b");
        assert_eq!([one, other].map(|waiting| batches.add(0, waiting)), [Some(0); 2]);

        drop(lane());
        assert!(told.try_recv().is_err());
        drop(lane());

        for told in [&mut told, &mut told_later] {
            assert!(matches!(told.try_recv(), Ok(Ok(Outcome::LeftAlone))));
        }
    }
}
