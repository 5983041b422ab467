//! The tasks that send batches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::batch::limits::BatchLimits;
use crate::batch::meter::Meter;
use crate::batch::queue::{Queue, Taken};
use crate::batch::requests::Batch;
use crate::batch::stats::BatchStats;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::sync::{Handle, Mutex, lock, yield_now};

/// The number of lanes, and of callers that may send requests alone. Three concurrent round trips
/// keep both sides busy: the server runs one batch, the client reads the replies to a second batch,
/// and a third batch fills up. In measurements, two lanes reached 0.85 of this throughput, and four
/// or more lanes sent smaller batches.
pub const LANES: usize = 3;

/// The requests of a backend and how a batch of them is sent.
///
/// See [`Batcher`](super::Batcher) for an example.
pub trait SendBatch: Sized + Send + Sync + 'static {
    /// A request of one caller.
    type Request: Send + 'static;

    /// The reply to a request, which is usually a `Result`.
    type Reply: Send + 'static;

    /// Takes the [next batch](Lane::next_batch) from `lane`, sends the batch and answers its
    /// requests.
    ///
    /// This method may first wait for a connection. Callers can join the batch until the batch is
    /// taken.
    fn send_next(&self, lane: &mut Lane<Self>) -> impl Future<Output = ()> + Send;

    /// Returns whether a request precedes all queued requests that are not urgent. Renewals are
    /// urgent, because a renewal that waits behind acquisitions may lose its lease.
    ///
    /// A release may be urgent only if it can safely overtake a queued acquisition of the same
    /// lease whose caller still waits. A quorum releases a lease while a vote for it may still be
    /// queued, so a store that can be a member of a quorum must not treat releases as urgent.
    ///
    /// A batch can contain both kinds of requests. If an acquisition can wait for another
    /// transaction, such as for a locked row, the backend needs a separate batcher for renewals and
    /// releases.
    fn is_urgent(&self, _request: &Self::Request) -> bool {
        false
    }

    /// Returns the weight of a request. [`BatchLimits::with_weight`] limits the total weight of a
    /// batch.
    ///
    /// This method and the following methods are called while the queue is locked, so they must not
    /// block or call the batcher.
    fn weight(&self, _request: &Self::Request) -> usize {
        1
    }

    /// Returns a key that a batch may contain only once, if there is such a key. Further requests
    /// with the same key wait for a later batch.
    fn exclusive_key<'a>(&self, _request: &'a Self::Request) -> Option<&'a LockKey> {
        None
    }

    /// Returns a number that increases with each switch to a different server. After a switch, the
    /// lanes that are still busy with the previous server do not count, and new lanes may start.
    fn route(&self) -> usize {
        0
    }
}

/// The state that a batcher shares with its lanes.
pub(super) struct Shared<S: SendBatch> {
    pub(super) sender: S,
    pub(super) limits: BatchLimits,
    pub(super) meter: Meter,
    pub(super) state: Mutex<State<S>>,
}

pub(super) struct State<S: SendBatch> {
    /// The number of callers that are sending a request without a batch.
    pub(super) alone: usize,
    /// The number of lanes in this turn.
    pub(super) lanes: usize,
    /// The time when a lane last started or took a batch.
    moved_at: Option<Instant>,
    /// The current turn. Lanes from earlier turns no longer count, and they end.
    turn: u64,
    /// The [route](SendBatch::route) of the lanes.
    route: usize,
    pub(super) queue: Queue<S::Request, S::Reply>,
    /// The number of batches and of their requests, and the total time of these requests in the
    /// queue.
    pub(super) sent: BatchStats,
}

/// A task that sends batches until the queue is empty.
///
/// See [`Batcher`](super::Batcher) for an example.
pub struct Lane<S: SendBatch> {
    shared: Arc<Shared<S>>,
    turn: u64,
    has_ended: bool,
}

impl<S: SendBatch> State<S> {
    /// Returns whether no lane has made progress for `limit`.
    fn is_stalled(&self, limit: Duration, now: Instant) -> bool {
        self.lanes == LANES && self.moved_at.is_some_and(|moved_at| now - moved_at >= limit)
    }

    /// Adds a lane. If `replaces` is true, the existing lanes no longer count.
    fn add_lane(&mut self, replaces: bool, route: usize, now: Instant) {
        if replaces {
            (self.turn, self.lanes) = (self.turn + 1, 0);
        }
        self.route = self.route.max(route);
        self.lanes += 1;
        self.moved_at = Some(now);
    }
}

impl<S: SendBatch> Shared<S> {
    pub(super) fn new(store: &'static str, sender: S, limits: BatchLimits) -> Arc<Self> {
        let queue = Queue::new();
        let state = State {
            alone: 0,
            lanes: 0,
            moved_at: None,
            turn: 0,
            route: 0,
            queue,
            sent: BatchStats::default(),
        };
        Arc::new(Self { sender, limits, meter: Meter::new(store), state: Mutex::new(state) })
    }

    /// Returns an additional lane, and the runtime on which to [`start`] it after `state` was
    /// unlocked, if an additional lane is allowed. A new lane replaces the existing lanes if no
    /// lane has made progress for the time limit, or if the route has changed.
    pub(super) fn new_lane(
        self: &Arc<Self>,
        state: &mut State<S>,
        now: Instant,
    ) -> Result<Option<(Handle, Lane<S>)>, Error> {
        let (is_stalled, route) = (state.is_stalled(self.limits.time, now), self.sender.route());
        let replaces = is_stalled || state.route < route;
        if state.lanes == LANES && !replaces {
            return Ok(None);
        }
        let runtime = match Handle::try_current() {
            Ok(runtime) => runtime,
            Err(_none) if state.lanes == 0 || is_stalled => return Err(outside_of_runtime()),
            Err(_none) => return Ok(None),
        };
        state.add_lane(replaces, route, now);
        Ok(Some((runtime, Lane { shared: Arc::clone(self), turn: state.turn, has_ended: false })))
    }
}

/// Starts a new lane. No mutex may be locked, because a runtime that is shutting down drops the
/// lane immediately.
pub(super) fn start<S: SendBatch>(lane: Option<(Handle, Lane<S>)>) {
    if let Some((runtime, lane)) = lane {
        runtime.spawn(lane.run());
    }
}

impl<S: SendBatch> Lane<S> {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while !self.has_ended {
            // Yielding allows callers that have just received their reply to join the next batch.
            yield_now().await;
            shared.sender.send_next(&mut self).await;
        }
    }

    /// Removes the next batch from the queue. Returns `None` if there is no batch for this lane. In
    /// this case, [`SendBatch::send_next`] must return, and the lane ends.
    pub fn next_batch(&mut self) -> Option<Batch<S::Request, S::Reply>> {
        if self.has_ended {
            return None;
        }
        let Shared { sender, limits, meter, state } = &*self.shared;
        let mut state = lock(state);
        if state.turn != self.turn {
            self.has_ended = true;
            return None;
        }
        let weight = |request: &_| sender.weight(request);
        let Taken { mut batch, left } =
            state.queue.take(limits, weight, |request| sender.exclusive_key(request));
        let now = Instant::now();
        if batch.is_empty() {
            state.lanes -= 1;
            self.has_ended = true;
        } else {
            state.moved_at = Some(now);
            state.sent.batches += 1;
            state.sent.requests += batch.len() as u64;
            state.sent.waited += batch.iter().map(|entry| now - entry.queued_at).sum();
        }
        drop(state);
        drop(left);
        if self.has_ended {
            return None;
        }
        batch.iter_mut().for_each(|entry| entry.queued = None);
        meter.sent(batch.iter().map(|entry| now - entry.queued_at));
        Some(Batch::new(batch))
    }
}

/// The runtime may shut down while the lane is running. The last lane returns an error to all
/// queued callers, because no lane is left to send their requests.
impl<S: SendBatch> Drop for Lane<S> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = lock(&self.shared.state);
        if state.turn != self.turn {
            return;
        }
        state.lanes -= 1;
        if state.lanes > 0 {
            return;
        }
        let unsent = state.queue.take_all();
        drop(state);
        for caller in unsent.filter_map(|entry| entry.caller) {
            // A caller that has left does not need the error.
            let _ = caller.send(Err(runtime_ended()));
        }
    }
}

fn runtime_ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime was shut down before it sent the request")
}

pub(super) fn outside_of_runtime() -> Error {
    let message = "the request was not sent, because the caller is outside of a tokio runtime";
    Error::new(ErrorKind::Unavailable, message)
}

impl<S: SendBatch> fmt::Debug for Lane<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("turn", &self.turn).finish_non_exhaustive()
    }
}
