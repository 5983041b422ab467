//! Group commit: while requests are in progress, new requests from several callers are collected
//! and sent together. In a batch, mutexes that are acquired or released share one script. Scripts
//! that each handle a single lock are sent together in one round trip.
//!
//! [`Batcher`] collects the requests. If no request is in progress, a caller sends its request
//! without a batch, with the script for a single lock. If fewer than
//! [`LANES`](leasehold_core::batch::LANES) requests are in progress and all of them were sent
//! without a batch, a request whose script cannot handle several locks is also sent without a
//! batch.
//!
//! Renewals leave the queue first. All other requests leave it in the order in which they were
//! submitted, and batches are sent in the order in which they leave the queue. If a caller gives up
//! on an acquisition, it releases the lease, in case the lease was granted. This release is sent
//! after the acquisition, and a batch omits the requests of callers that gave up before the batch
//! was sent. In a batch, the shared script, whose releases precede its acquisitions, runs before
//! the scripts for single locks.

mod batch;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backend::{Lease, unpoisoned};
use leasehold_core::batch::{Alone, BatchLimits, Batcher, Lane, SendBatch, Submitted};
use leasehold_core::{Error, LockKey};
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::call::Call;
use crate::connection::{ConnectionManager, Current};
use crate::driver::{Driver, Request, in_full};
use crate::layout::Layout;
use crate::reply::Received;

use batch::{Batch, Requests, Work, fail, finish};
pub(crate) use batch::{Change, Outcome};

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

/// The maximum number of requests in a batch. A full batch keeps a server busy for about 1 ms.
const MAX_REQUESTS: usize = 128;

/// The maximum size of a batch in bytes, unless the batch has only one request. A connection sends
/// this number of bytes at a time.
const MAX_BYTES: usize = 64 * 1024;

/// The requests to one server.
pub(crate) struct Pipeline<D: Driver>(Batcher<Server<D>>);

/// The server, and how requests are sent to it.
pub(crate) struct Server<D: Driver> {
    connection: Arc<ConnectionManager<D>>,
    layout: Layout,
    /// Locked while requests are taken from the queue and sent, so that a request that has left the
    /// queue is sent before all later requests.
    order: Mutex<()>,
    skipped: Mutex<Skipped>,
}

/// The locks that do not share scripts for some time.
#[derive(Default)]
struct Skipped {
    /// The time when a lock was last found on a different server.
    elsewhere_at: Option<Instant>,
    /// The time when each of these locks was last skipped.
    contended: HashMap<LockKey, Instant>,
}

impl Skipped {
    /// Returns whether the lock needs the script for a single lock.
    fn contains(&self, key: &LockKey) -> bool {
        self.slots_move() || self.is_contended(key)
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
}

impl<D: Driver> Pipeline<D> {
    pub(crate) fn new(connection: &Arc<ConnectionManager<D>>, layout: &Layout) -> Self {
        // A batch may be sent once by hash and once with the sources.
        let time = 2 * connection.timeout();
        let limits = BatchLimits::new(time).with_requests(MAX_REQUESTS).with_weight(MAX_BYTES);
        let server = Server {
            connection: Arc::clone(connection),
            layout: layout.clone(),
            order: Mutex::default(),
            skipped: Mutex::default(),
        };
        Self(Batcher::new(D::NAME, server, limits))
    }

    /// Registers a caller that sends a request without a batch, in [order](Self::in_order), if few
    /// requests are in progress. In a measurement, sharing one request between two callers took one
    /// third more of the client's CPU time, and sharing it between eight callers took one sixth
    /// less.
    pub(crate) fn alone(&self) -> Option<Alone<'_, Server<D>>> {
        self.0.alone()
    }

    /// Polls `future`, with its first poll in the order of all requests.
    pub(crate) async fn in_order<F: Future>(&self, future: F) -> F::Output {
        self.0.sender().in_order(future).await
    }

    /// Acquires or releases a mutex as part of a batch. The mutex is skipped if no request is in
    /// progress, because the script for a single lock is then faster. The mutex is also skipped for
    /// some time after a script has skipped it or after any lock was found on a different server.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`](leasehold_core::ErrorKind::Indeterminate) if the
    /// request may have been sent and no reply arrived.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A request that has not been sent yet is never sent.
    pub(crate) async fn change(&self, change: Change, lease: &Lease) -> Result<Outcome, Error> {
        let server = self.0.sender();
        if self.0.is_idle() || server.skipped().contains(lease.key()) {
            return Ok(Outcome::LeftAlone);
        }
        let work = Work::Change(change, lease.clone());
        let outcome = self.0.submit(work)?.reply().await??;
        if outcome == Outcome::LeftAlone {
            server.skipped().note_contended(lease.key());
        }
        Ok(outcome)
    }

    /// Adds a script to a batch, together with all scripts that are added at the same time.
    pub(crate) fn submit(&self, call: &Call) -> Result<Submitted<'_, Server<D>>, Error> {
        self.0.submit(Work::Call(call.clone()))
    }
}

impl<D: Driver> Server<D> {
    /// Polls `future`, with its first poll in the order of all requests.
    async fn in_order<F: Future>(&self, future: F) -> F::Output {
        // Tokio's cooperative budget is disabled, because an exhausted budget would prevent the
        // first poll from sending the request.
        let mut future = pin!(unconstrained(future));
        let begun = poll_fn(|context| {
            let _order = unpoisoned(&self.order);
            Poll::Ready(future.as_mut().poll(context))
        });
        match begun.await {
            Poll::Ready(output) => output,
            Poll::Pending => future.await,
        }
    }

    async fn send(&self, lane: &mut Lane<Self>, current: Result<Current<D::Connection>, Error>) {
        let Some(mut batch) = lane.next_batch() else { return };
        let sent = match current {
            Ok(current) => self.send_batch(&current, &mut batch).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => finish(&mut batch),
            Err(error) => {
                self.connection.suspect();
                fail(&mut batch, &error);
            }
        }
    }

    async fn send_batch(
        &self,
        current: &Current<D::Connection>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let requests = Requests::of(batch, &self.layout);
        if requests.is_empty() {
            return Ok(());
        }
        let replies = self.exchange(current, &requests, requests.by_hash()).await?;
        self.note(batch, &requests, replies);
        if batch.open().next().is_none() {
            return Ok(());
        }
        // At this point, the lock on the order of the first attempt has been released.
        yield_now().await;
        let again = async {
            // Callers that have given up before this moment are excluded, because their releases
            // may already have been sent.
            let unknown = Requests::of(batch, &self.layout);
            if unknown.is_empty() {
                return Ok::<_, Error>((unknown, Vec::new()));
            }
            let replies = self.exchange(current, &unknown, in_full(unknown.by_hash())).await?;
            Ok((unknown, replies))
        };
        let (unknown, replies) = self.in_order(again).await?;
        self.note(batch, &unknown, replies);
        Ok(())
    }

    fn note(&self, batch: &mut Batch, requests: &Requests, replies: Vec<Received>) {
        requests.outcomes(replies, |index, outcome| {
            if outcome == Outcome::Elsewhere {
                self.skipped().elsewhere_at = Some(Instant::now());
            }
            batch.answer(index, Ok(outcome));
        });
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

    fn skipped(&self) -> MutexGuard<'_, Skipped> {
        unpoisoned(&self.skipped)
    }
}

impl<D: Driver> SendBatch for Server<D> {
    type Request = Work;
    type Reply = Result<Outcome, Error>;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let current = self.connection.current().await;
        self.in_order(self.send(lane, current)).await;
    }

    fn weight(&self, request: &Work) -> usize {
        request.bytes(&self.layout)
    }

    fn is_urgent(&self, request: &Work) -> bool {
        request.is_urgent()
    }
}

#[cfg(test)]
mod tests;
