//! Group commit: requests of callers leave together while others are under way. Mutexes that are acquired and released so share one script,
//! and scripts for one lock share the round trip.
//!
//! A caller that finds no other request under way sends its own, by the script for one lock, and so do callers of such scripts while fewer
//! than [`LANES`] are under way. The others join a batch, and up to [`LANES`] tasks send batches, one round trip each. The tasks wait for no
//! caller: one that has stopped polling delays no other. Tasks of a runtime that stands still send nothing, and others take their place.
//!
//! A caller that gives up an acquisition releases it, in case it was granted. So requests are sent in the order in which they were taken,
//! a batch leaves out the callers that gave up before it was sent, and releases come before acquisitions.

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

/// As many round trips as keep both sides busy: the server does one batch while the replies of another are read and a third gathers.
/// Measured: two lanes reach 0.85 of this throughput, four send smaller batches.
const LANES: usize = 3;

/// So long after a lock was elsewhere, those of a cluster are left alone: slots move one after the other, and a service in front of the
/// servers may know no script for locks of many slots.
const SLOTS_MOVE_FOR: Duration = Duration::from_secs(10);

/// So long after the script for many left a lock alone, the lock takes scripts of its own at once: a lock that several processes want is left alone
/// each time.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// As many such locks are known. Those of a busy process are few.
const MAX_CONTENDED: usize = 1_024;

/// The server is told so before a script whose keys it need not remember.
const FORGO_NEWS: Request<'_> = Request::Words(&["CLIENT", "CACHING", "NO"]);

/// The requests to one server.
pub(crate) struct Pipeline<D: Driver> {
    connection: Arc<ConnectionManager<D>>,
    layout: Layout,
    /// Locked while requests are taken and sent, so that both happen in one order.
    order: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many callers are under way by themselves.
    alone: usize,
    /// How many tasks send batches in this turn.
    lanes: usize,
    /// When the last of them began, or took a batch.
    moved_at: Option<Instant>,
    /// Tasks of the turns before do not count, and end.
    turn: u64,
    /// The batches to be sent. Callers join the last one.
    waiting: VecDeque<Arc<Batch>>,
    /// Whether the last one has room for no more.
    is_full: bool,
    /// How many callers joined the last batch that was sent.
    lately: usize,
    /// When a lock was elsewhere.
    elsewhere_at: Option<Instant>,
    /// When these locks were left alone.
    contended: HashMap<LockKey, Instant>,
}

impl State {
    /// The batch that callers join.
    fn open_batch(&mut self) -> &Arc<Batch> {
        if self.waiting.is_empty() || self.is_full {
            self.waiting.push_back(Batch::of(self.lately));
        }
        self.waiting.back().expect("there is one")
    }

    /// Whether slots seem to move, so that locks are left alone.
    fn slots_move(&self) -> bool {
        self.elsewhere_at.is_some_and(|elsewhere_at| elsewhere_at.elapsed() < SLOTS_MOVE_FOR)
    }

    /// Whether the script for many would probably leave the lock alone.
    fn is_contended(&self, key: &LockKey) -> bool {
        // Nearly always there is none.
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

    /// Whether there may be another lane. If all have stood still for `limit`, others may take their place.
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

    /// Notes a caller that sends its request by itself, in [order](Self::in_order).
    pub(crate) fn alone(&self) -> Alone<'_, D> {
        self.state().alone += 1;
        Alone(self)
    }

    /// Runs `future`, the beginning of it in order with those of all requests.
    pub(crate) async fn in_order<F: Future>(&self, future: F) -> F::Output {
        // Unconstrained, since a beginning that was put off would have sent nothing.
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

    /// Acquires or releases a mutex together with others. The mutex is left alone if no other request is under way, since its own script is faster
    /// then, and for a while after it was left alone or any lock was elsewhere.
    ///
    /// # Errors
    ///
    /// As [`outcome`](Self::outcome).
    ///
    /// # Cancel safety
    ///
    /// As [`Joined`].
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

    /// Has a script run in one request with those of others. `None` if few requests are under way: alone it is faster. Measured: two callers
    /// in one request take a third more of the client's CPU, eight take a sixth less.
    pub(crate) fn join_call(self: &Arc<Self>, call: &Call) -> Option<Joined> {
        let state = Some(self.state()).filter(|state| state.lanes > 0 || state.alone >= LANES)?;
        self.add(state, |batch| batch.join_call(call)).ok()
    }

    /// Has a script run in one request with those that are added at the same time.
    pub(crate) fn add_call(self: &Arc<Self>, call: &Call) -> Result<Joined, Error> {
        self.add(self.state(), |batch| batch.join_call(call))
    }

    /// The outcome for a caller that joined.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`] if its request may have been sent and no reply came.
    ///
    /// # Cancel safety
    ///
    /// As [`Joined`].
    pub(crate) async fn outcome(self: &Arc<Self>, mut joined: Joined) -> Result<Outcome, Error> {
        let mut was_taken = false;
        loop {
            if let Ok(outcome) = timeout(self.limit(), &mut joined).await {
                return outcome;
            }
            let mut state = self.state();
            if state.waiting.iter().any(|batch| joined.is_in(batch)) {
                // Lanes that go on may have many batches to send before.
                let runtime = self.runtime_for_lane(&mut state)?;
                self.begin_lane(state, runtime);
            } else if was_taken {
                return Err(silent());
            } else {
                was_taken = true;
            }
        }
    }

    /// Adds a caller to the open batch, and begins a lane if there may be another.
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

    /// The runtime for another lane, if there may be one. A caller outside of a runtime can begin none.
    fn runtime_for_lane(&self, state: &mut State) -> Result<Option<Handle>, Error> {
        let begins = state.may_begin_lane(self.limit());
        begins.then(Handle::try_current).transpose().map_err(|_none| no_runtime())
    }

    fn begin_lane(self: &Arc<Self>, mut state: MutexGuard<'_, State>, runtime: Option<Handle>) {
        let Some(runtime) = runtime else { return };
        state.lanes += 1;
        state.moved_at = Some(Instant::now());
        let lane = Lane { pipeline: Arc::clone(self), turn: state.turn, has_ended: false };
        // Before the task exists, since a runtime that ends drops it at once.
        drop(state);
        runtime.spawn(lane.run());
    }

    /// How long a lane takes for a batch, at most: once by hash, and once in full.
    fn limit(&self) -> Duration {
        2 * self.connection.timeout()
    }

    /// Sends the next batch. `false` if there is none: then the lane is to end, and there may be another from then on.
    async fn send_next(&self, turn: u64, current: Result<Current<D::Connection>, Error>) -> bool {
        let Some(batch) = self.next(turn) else { return false };
        let taken = Taken::new(batch);
        match current {
            Ok(current) => self.send(&current, &taken).await,
            Err(error) => taken.fail(error),
        }
        true
    }

    /// The next batch. If there is none, there is a lane less. A lane whose turn is over gets none.
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
        // Without the callers that have gone meanwhile: their releases may have been sent.
        let unknown = taken.requests(&self.layout);
        if !unknown.is_empty() {
            // The order of the first time is not locked any more then.
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

    /// Sends the runs of `requests`, and gives back their replies. The scripts for many locks ask for no news.
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

    /// There is a lane less, because of `error`. The last one tells those that wait, since no other sends them.
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

/// A caller under way by itself.
pub(crate) struct Alone<'a, D: Driver>(&'a Pipeline<D>);

impl<D: Driver> Drop for Alone<'_, D> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// A task that sends batches, until there is none.
struct Lane<D: Driver> {
    pipeline: Arc<Pipeline<D>>,
    turn: u64,
    has_ended: bool,
}

impl<D: Driver> Lane<D> {
    async fn run(mut self) {
        while !self.has_ended {
            // The callers that were told just now join the next batch, if they have more to ask for.
            yield_now().await;
            let pipeline = &self.pipeline;
            let current = pipeline.connection.current().await;
            self.has_ended = !pipeline.in_order(pipeline.send_next(self.turn, current)).await;
        }
    }
}

/// The runtime may end under it.
impl<D: Driver> Drop for Lane<D> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.pipeline.give_up(self.turn, &no_runtime());
        }
    }
}

fn no_runtime() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime that was to send it has ended")
}

fn silent() -> Error {
    let message = "the runtime that sends it stands still, outcome unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

#[cfg(test)]
mod tests;
