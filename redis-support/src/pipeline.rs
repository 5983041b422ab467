//! Group commit: while requests are in progress, new requests from several callers are collected
//! and sent together. In a batch, mutexes that are acquired or released share one script. Scripts
//! that each handle a single lock are sent together in one round trip.
//!
//! If no request is in progress, a caller sends its request without a batch, with the script for a
//! single lock. If fewer than [`LANES`] requests are in progress and all of them were sent without
//! a batch, a request whose script cannot handle several locks is also sent without a batch. All
//! remaining callers join a batch, and up to [`LANES`] tasks send the batches with one round trip
//! each. A batch never waits for a caller, so it is not delayed if a caller stops polling. If the
//! runtime of a sending task has stopped, a new task replaces it.
//!
//! If a caller gives up on an acquisition, it releases the lease, in case the lease was granted.
//! Requests are sent in the order in which they were added, so that this release is sent after the
//! acquisition. A batch omits the requests of callers that gave up before the batch was sent. In a
//! batch, releases precede acquisitions.

mod batch;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backend::Lease;
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::call::Call;
use crate::connection::{ConnectionManager, Current};
use crate::driver::{Driver, Request, in_full};
use crate::layout::Layout;
use crate::reply::Received;

use batch::{Batch, Requests, Taken};
pub(crate) use batch::{Change, Joined, Outcome};

/// The number of concurrent round trips. Three concurrent round trips keep both sides busy: the
/// server runs one batch, the client reads the replies to a second batch, and a third batch fills
/// up. In a measurement, two lanes reached 0.85 of this throughput, and four lanes sent smaller
/// batches.
const LANES: usize = 3;

/// How long the locks of a cluster do not share scripts after a lock was found on a different
/// server. Slots move one at a time, and a proxy may not support scripts for locks of several
/// slots.
const SLOTS_MOVE_FOR: Duration = Duration::from_secs(10);

/// How long a lock uses the scripts for a single lock after the script for many locks has skipped
/// it. If several processes need a lock, the script for many locks would skip it each time.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// The maximum number of remembered contended locks. Even a busy process has only a few contended
/// locks.
const MAX_CONTENDED: usize = 1_024;

/// The command before a script whose keys the server does not have to track.
const FORGO_NEWS: Request<'_> = Request::Words(&["CLIENT", "CACHING", "NO"]);

/// The requests to one server.
pub(crate) struct Pipeline<D: Driver> {
    connection: Arc<ConnectionManager<D>>,
    layout: Layout,
    /// Locked while requests are added and sent, so that requests are sent in the order in which
    /// they were added.
    order: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of callers that are sending a request without a batch.
    alone: usize,
    /// The number of tasks that send batches in this turn.
    lanes: usize,
    /// The time when a task last started or added a batch.
    moved_at: Option<Instant>,
    /// The current turn. Tasks from earlier turns no longer count, and they end.
    turn: u64,
    /// The queued batches. Callers join the last batch.
    waiting: VecDeque<Arc<Batch>>,
    /// Whether the last batch is full.
    is_full: bool,
    /// The number of callers in the last batch that was sent.
    lately: usize,
    /// The time when a lock was last found on a different server.
    elsewhere_at: Option<Instant>,
    /// The time when each of these locks was last skipped.
    contended: HashMap<LockKey, Instant>,
}

impl State {
    /// Returns the batch that callers join.
    fn open_batch(&mut self) -> &Arc<Batch> {
        if self.waiting.is_empty() || self.is_full {
            self.waiting.push_back(Batch::of(self.lately));
        }
        self.waiting.back().expect("there is one")
    }

    /// Returns whether slots seem to move, so that locks do not share scripts.
    fn slots_move(&self) -> bool {
        self.elsewhere_at.is_some_and(|elsewhere_at| elsewhere_at.elapsed() < SLOTS_MOVE_FOR)
    }

    /// Returns whether the script for many locks would probably skip the lock.
    fn is_contended(&self, key: &LockKey) -> bool {
        // The map is nearly always empty.
        !self.contended.is_empty()
            && self.contended.get(key).is_some_and(|since| since.elapsed() < CONTENDED_FOR)
    }

    fn note_contended(&mut self, key: &LockKey) {
        if self.contended.len() >= MAX_CONTENDED {
            self.contended.retain(|_key, since| since.elapsed() < CONTENDED_FOR);
        }
        if self.contended.len() < MAX_CONTENDED {
            self.contended.insert(key.clone(), Instant::now());
        }
    }

    /// Returns whether an additional lane may start. If no lane has made progress for `limit`, new
    /// lanes replace the existing lanes.
    fn may_begin_lane(&mut self, limit: Duration) -> bool {
        if self.lanes == LANES && self.moved_at.is_some_and(|moved_at| moved_at.elapsed() >= limit)
        {
            (self.turn, self.lanes) = (self.turn + 1, 0);
        }
        self.lanes < LANES
    }
}

impl<D: Driver> Pipeline<D> {
    pub(crate) fn new(connection: &Arc<ConnectionManager<D>>, layout: &Layout) -> Arc<Self> {
        let (order, state) = (Mutex::default(), Mutex::default());
        let connection = Arc::clone(connection);
        Arc::new(Self { connection, layout: layout.clone(), order, state })
    }

    /// Registers a caller that sends a request without a batch, in [order](Self::in_order).
    pub(crate) fn alone(&self) -> Alone<'_, D> {
        self.state().alone += 1;
        Alone(self)
    }

    /// Polls `future`, with its first poll in the order of all requests.
    pub(crate) async fn in_order<F: Future>(&self, future: F) -> F::Output {
        // Tokio's cooperative budget is disabled, because an exhausted budget would prevent the
        // first poll from sending the request.
        let mut future = pin!(unconstrained(future));
        let begun = poll_fn(|context| {
            let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            Poll::Ready(future.as_mut().poll(context))
        });
        match begun.await {
            Poll::Ready(output) => output,
            Poll::Pending => future.await,
        }
    }

    /// Acquires or releases a mutex as part of a batch. The mutex is skipped if no request is in
    /// progress, because the script for a single lock is then faster. The mutex is also skipped for
    /// some time after a script has skipped it or after any lock was found on a different server.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the request may have been sent and no reply arrived.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A request that has not been sent yet is never sent.
    pub(crate) async fn change(
        self: &Arc<Self>,
        change: Change,
        lease: &Lease,
    ) -> Result<Outcome, Error> {
        let Some(joined) = self.join(change, lease) else { return Ok(Outcome::LeftAlone) };
        let outcome = self.outcome(joined).await?;
        if outcome == Outcome::LeftAlone {
            self.state().note_contended(lease.key());
        }
        Ok(outcome)
    }

    fn join(self: &Arc<Self>, change: Change, lease: &Lease) -> Option<Joined> {
        let has_company = |state: &MutexGuard<'_, State>| state.lanes + state.alone > 0;
        let state = Some(self.state())
            .filter(has_company)
            .filter(|state| !state.slots_move() && !state.is_contended(lease.key()))?;
        self.add(state, |batch| batch.join(change, lease, &self.layout)).ok()
    }

    /// Adds a script to a batch. Returns `None` if few requests are in progress, because the script
    /// is faster without a batch. In a measurement, sharing one request between two callers took
    /// one third more of the client's CPU time, and sharing it between eight callers took one sixth
    /// less.
    pub(crate) fn join_call(self: &Arc<Self>, call: &Call) -> Option<Joined> {
        let state = Some(self.state()).filter(|state| state.lanes > 0 || state.alone >= LANES)?;
        self.add(state, |batch| batch.join_call(call)).ok()
    }

    /// Adds a script to a batch, together with all scripts that are added at the same time.
    pub(crate) fn add_call(self: &Arc<Self>, call: &Call) -> Result<Joined, Error> {
        self.add(self.state(), |batch| batch.join_call(call))
    }

    /// Returns the outcome of a caller that has joined a batch.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the request may have been sent and no reply arrived.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A request that has not been sent yet is never sent.
    pub(crate) async fn outcome(self: &Arc<Self>, mut joined: Joined) -> Result<Outcome, Error> {
        let mut was_taken = false;
        loop {
            if let Ok(outcome) = timeout(self.limit(), &mut joined).await {
                return outcome;
            }
            let mut state = self.state();
            if state.waiting.iter().any(|batch| joined.is_in(batch)) {
                // The existing lanes may first have to send many batches.
                let runtime = self.runtime_for_lane(&mut state)?;
                self.begin_lane(state, runtime);
            } else if was_taken {
                return Err(silent());
            } else {
                was_taken = true;
            }
        }
    }

    /// Adds a caller to the last batch, and starts a lane if an additional lane is allowed.
    fn add(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        join: impl FnOnce(&Arc<Batch>) -> (Joined, bool),
    ) -> Result<Joined, Error> {
        let runtime = self.runtime_for_lane(&mut state)?;
        let (joined, is_full) = join(state.open_batch());
        state.is_full = is_full;
        self.begin_lane(state, runtime);
        Ok(joined)
    }

    /// Returns the runtime for an additional lane, if such a lane is allowed. Outside of a runtime,
    /// a caller cannot start a lane.
    fn runtime_for_lane(&self, state: &mut State) -> Result<Option<Handle>, Error> {
        let begins = state.may_begin_lane(self.limit());
        begins.then(Handle::try_current).transpose().map_err(|_none| no_runtime())
    }

    fn begin_lane(self: &Arc<Self>, mut state: MutexGuard<'_, State>, runtime: Option<Handle>) {
        let Some(runtime) = runtime else { return };
        state.lanes += 1;
        state.moved_at = Some(Instant::now());
        let lane = Lane { pipeline: Arc::clone(self), turn: state.turn, has_ended: false };
        // The mutex is unlocked before the task is spawned, because a runtime that is shutting down
        // drops the task immediately.
        drop(state);
        runtime.spawn(lane.run());
    }

    /// Returns the time limit for one batch, which may be sent once by hash and once with the
    /// sources.
    fn limit(&self) -> Duration {
        2 * self.connection.timeout()
    }

    /// Sends the next batch. Returns `false` if there is no batch. In this case, the lane must end,
    /// and a new lane may start.
    async fn send_next(&self, turn: u64, current: Result<Current<D::Connection>, Error>) -> bool {
        let Some(batch) = self.next(turn) else { return false };
        let taken = Taken::new(batch);
        match current {
            Ok(current) => self.send(&current, &taken).await,
            Err(error) => taken.fail(error),
        }
        true
    }

    /// Returns the next batch. If there is none, the lane is removed. A lane from an earlier turn
    /// does not get a batch.
    fn next(&self, turn: u64) -> Option<Arc<Batch>> {
        let mut state = self.state();
        if state.turn != turn {
            return None;
        }
        let Some(batch) = state.waiting.pop_front() else {
            state.lanes -= 1;
            return None;
        };
        state.lately = batch.len();
        state.moved_at = Some(Instant::now());
        Some(batch)
    }

    async fn send(&self, current: &Current<D::Connection>, taken: &Taken) {
        let requests = taken.requests(&self.layout);
        if requests.is_empty() {
            return taken.finish();
        }
        match self.exchange(current, &requests, requests.by_hash()).await {
            Ok(replies) => self.note(taken, &requests, replies),
            Err(error) => return taken.fail(error),
        }
        // Callers that have given up in the meantime are excluded, because their releases may
        // already have been sent.
        let unknown = taken.requests(&self.layout);
        if !unknown.is_empty() {
            // At this point, the lock on the order of the first attempt has been released.
            yield_now().await;
            let again = self.exchange(current, &unknown, in_full(unknown.by_hash()));
            match self.in_order(again).await {
                Ok(replies) => self.note(taken, &unknown, replies),
                Err(error) => return taken.fail(error),
            }
        }
        taken.finish();
    }

    fn note(&self, taken: &Taken, requests: &Requests, replies: Vec<Received>) {
        if taken.note(requests, replies) {
            self.state().elsewhere_at = Some(Instant::now());
        }
    }

    /// Sends the scripts of `requests` and returns their replies. Scripts for many locks opt out of
    /// notifications.
    async fn exchange(
        &self,
        current: &Current<D::Connection>,
        requests: &Requests,
        runs: Vec<Request<'_>>,
    ) -> Result<Vec<Received>, Error> {
        let may_forgo = self.connection.may_forgo_news();
        let forgoes: Vec<bool> =
            requests.forgo_news().map(|forgoes| forgoes && may_forgo).collect();
        let mut all = Vec::with_capacity(2 * runs.len());
        for (run, forgoes) in runs.into_iter().zip(&forgoes) {
            all.extend(forgoes.then_some(FORGO_NEWS));
            all.push(run);
        }
        let mut replies = self.connection.exchange(current, all, Duration::ZERO).await?.into_iter();
        let mut received = Vec::with_capacity(forgoes.len());
        for forgoes in forgoes {
            let told = if forgoes { replies.next() } else { None };
            if told.is_some_and(|told| told.is_err_and(|refusal| !refusal.is_retryable())) {
                self.connection.take_all_news();
            }
            received.extend(replies.next());
        }
        Ok(received)
    }

    /// Removes a lane because of `error`. The last lane returns the error to all queued callers,
    /// because no lane is left to send their requests.
    fn give_up(&self, turn: u64, error: &Error) {
        let mut state = self.state();
        if state.turn != turn {
            return;
        }
        state.lanes -= 1;
        let left = if state.lanes == 0 { mem::take(&mut state.waiting) } else { VecDeque::new() };
        drop(state);
        left.into_iter().for_each(|batch| Taken::new(batch).fail(error.repeated()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that sends a request on its own.
pub(crate) struct Alone<'a, D: Driver>(&'a Pipeline<D>);

impl<D: Driver> Drop for Alone<'_, D> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// A task that sends batches until the queue is empty.
struct Lane<D: Driver> {
    pipeline: Arc<Pipeline<D>>,
    turn: u64,
    has_ended: bool,
}

impl<D: Driver> Lane<D> {
    async fn run(mut self) {
        while !self.has_ended {
            // Yielding allows callers that have just received their outcome to join the next batch.
            yield_now().await;
            let pipeline = &self.pipeline;
            let current = pipeline.connection.current().await;
            self.has_ended = !pipeline.in_order(pipeline.send_next(self.turn, current)).await;
        }
    }
}

/// The runtime may shut down while the lane is running.
impl<D: Driver> Drop for Lane<D> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.pipeline.give_up(self.turn, &no_runtime());
        }
    }
}

fn no_runtime() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime was shut down before it sent the request")
}

fn silent() -> Error {
    let message = "the runtime that sends the request is stalled, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

#[cfg(test)]
mod tests;
