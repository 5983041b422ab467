//! Group commit for backends. While requests to a store are in progress, new requests from several
//! callers are collected and sent together.
//!
//! A backend creates one [`Batcher`] per destination, such as a server or a pool of connections.
//! The backend decides how a batch is sent, by implementing [`SendBatch`].
//!
//! If few requests are in progress, a caller sends its request [alone](Batcher::alone), which is
//! faster. All remaining callers [submit](Batcher::submit) their requests to a queue, and up to
//! [`LANES`] tasks, called lanes, send the queued requests in batches. A batch never waits for
//! additional requests, and is not delayed if a caller stops polling. A request whose caller has
//! left before the request was sent is never sent.
//!
//! [Urgent](SendBatch::is_urgent) requests, such as renewals, never wait behind queued requests
//! that are not urgent. The number of queued requests is limited.
//!
//! A store that is used by function calls, such as an embedded database, has a [`Worker`]: a thread
//! that commits the requests of many callers in one transaction.
//!
//! Backends for stores without a single ordered connection use [`InOrder`], so that a release does
//! not overtake an acquisition of the same lease.

mod in_order;
mod lane;
mod limits;
mod meter;
mod queue;
mod requests;
mod stats;
mod submitted;
mod worker;

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::contract::error::{Error, ErrorKind};
use crate::sync::lock;

pub use in_order::{InOrder, Running};
pub use lane::{LANES, Lane, SendBatch};
use lane::{Shared, start};
pub use limits::BatchLimits;
pub use requests::Batch;
pub use stats::BatchStats;
pub use submitted::Submitted;
pub use worker::{Transactional, Waker, Worker};

/// The queue of requests to one destination. Clones share the queue.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_core::Error;
/// use leasehold_core::batch::{BatchLimits, Batcher, Lane, SendBatch};
///
/// /// A store that doubles numbers.
/// struct Doubler;
///
/// impl SendBatch for Doubler {
///     type Request = u64;
///     type Reply = u64;
///
///     async fn send_next(&self, lane: &mut Lane<Self>) {
///         let Some(mut batch) = lane.next_batch() else { return };
///         // A backend sends one message to its store at this point.
///         batch.answer_all(|number| 2 * number);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let batcher = Batcher::new("doubler", Doubler, BatchLimits::new(Duration::from_secs(5)));
/// let submitted = batcher.submit(21)?;
/// assert_eq!(submitted.reply().await?, 42);
/// assert_eq!(batcher.stats().batches, 1);
/// # Ok(())
/// # }
/// ```
pub struct Batcher<S: SendBatch>(Arc<Shared<S>>);

impl<S: SendBatch> Batcher<S> {
    /// Creates an empty queue. This function does not start any task.
    ///
    /// `store` is the name of the backend. With the `metrics` feature, this name is the `store`
    /// label of the metrics of the queue, which `docs/observability.md` explains.
    pub fn new(store: &'static str, sender: S, limits: BatchLimits) -> Self {
        Self(Shared::new(store, sender, limits))
    }

    /// Returns the sender of the batches.
    pub fn sender(&self) -> &S {
        &self.0.sender
    }

    /// Returns whether no request is in progress.
    pub fn is_idle(&self) -> bool {
        let state = lock(&self.0.state);
        state.lanes + state.alone == 0
    }

    /// Registers a caller that sends its request without a batch. Returns `None` if a lane is
    /// running or if [`LANES`] callers already send their requests alone, in which case the caller
    /// [submits](Self::submit) its request.
    ///
    /// The caller keeps the returned value until its request has ended.
    pub fn alone(&self) -> Option<Alone<'_, S>> {
        let mut state = lock(&self.0.state);
        let is_alone = state.lanes == 0 && state.alone < LANES;
        state.alone += usize::from(is_alone);
        is_alone.then(|| Alone(self))
    }

    /// Returns the current figures of the queue.
    pub fn stats(&self) -> BatchStats {
        let state = lock(&self.0.state);
        BatchStats { queued: state.queue.len(), ..state.sent }
    }

    /// Adds a request to the queue, and starts a lane if an additional lane is allowed.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the queue is [full](BatchLimits::with_queued), or if a
    /// lane is needed and the caller is outside of a tokio runtime.
    pub fn submit(&self, request: S::Request) -> Result<Submitted<'_, S>, Error> {
        let (caller, reply) = oneshot::channel();
        let (is_urgent, most) = (self.0.sender.is_urgent(&request), self.0.limits.queued);
        let queued = self.0.meter.queued();
        let mut state = lock(&self.0.state);
        if state.queue.len_of(is_urgent) >= most {
            let left = state.queue.take_left(is_urgent);
            let is_full = state.queue.len_of(is_urgent) >= most;
            // Dropping a caller may run foreign code.
            drop(state);
            drop(left);
            if is_full {
                return Err(full(most));
            }
            state = lock(&self.0.state);
        }
        let now = Instant::now();
        let lane = self.0.new_lane(&mut state, now)?;
        let number = state.queue.push(request, is_urgent, queued, now, caller);
        drop(state);
        start(lane);
        Ok(Submitted::new(&self.0, number, reply))
    }
}

fn full(most: usize) -> Error {
    let message = format!(
        "the request was not sent: {most} requests are already queued, which is the limit for one destination; make fewer calls at the same time"
    );
    Error::new(ErrorKind::Unavailable, message)
}

impl<S: SendBatch> Clone for Batcher<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: SendBatch> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

/// A caller that sends its request without a batch.
///
/// Returned by [`Batcher::alone`]. See [`Batcher`] for an example with a batch.
#[derive(Debug)]
#[must_use = "the request counts as ended when this value is dropped"]
pub struct Alone<'a, S: SendBatch>(&'a Batcher<S>);

impl<S: SendBatch> Drop for Alone<'_, S> {
    fn drop(&mut self) {
        lock(&self.0.0.state).alone -= 1;
    }
}
