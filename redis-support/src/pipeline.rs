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
//! the scripts for single locks. [`ConnectionManager::exchange`] keeps this order when it sends the
//! batches.

mod batch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::backend::{Lease, unpoisoned};
use leasehold_core::batch::{Alone, BatchLimits, Batcher, Lane, SendBatch, Submitted};
use leasehold_core::{Error, LockKey};
use tokio::time::Instant;

use crate::call::Call;
use crate::connection::{ConnectionManager, Current, is_unknown};
use crate::driver::{Driver, Request};
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
            skipped: Mutex::default(),
        };
        Self(Batcher::new(D::NAME, server, limits))
    }

    /// Registers a caller that sends a request without a batch, if few requests are in progress. In
    /// a measurement, sharing one request between two callers took one third more of the client's
    /// CPU time, and sharing it between eight callers took one sixth less.
    pub(crate) fn alone(&self) -> Option<Alone<'_, Server<D>>> {
        self.0.alone()
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
    /// Sends the next batch. Requests whose scripts the server does not know are sent again with
    /// the sources of the scripts. `batch` receives the batch, so that the caller can answer it if
    /// an error occurs.
    async fn send(
        &self,
        current: &Current<D::Connection>,
        lane: &mut Lane<Self>,
        batch: &mut Option<Batch>,
    ) -> Result<(), Error> {
        for form in [Requests::by_hash, Requests::in_full] {
            let forgo_news = self.connection.may_forgo_news().then_some(FORGO_NEWS);
            let mut requests = None;
            let replies = self.connection.exchange(
                current,
                || {
                    // Only the first form takes a batch.
                    *batch = batch.take().or_else(|| lane.next_batch());
                    let Some(batch) = &*batch else { return Vec::new() };
                    // Callers that have given up before this moment are excluded, because their
                    // releases may already have been sent.
                    form(requests.insert(Requests::of(batch, &self.layout, forgo_news)))
                },
                Duration::ZERO,
            );
            let replies = replies.await?;
            let (Some(batch), Some(requests)) = (batch.as_mut(), requests) else { break };
            self.note(batch, &requests, replies);
            if batch.open().next().is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Answers the callers whose scripts the server knows, and records whether the server rejects
    /// requests without notifications.
    fn note(&self, batch: &mut Batch, requests: &Requests, replies: Vec<Received>) {
        let mut replies = replies.into_iter();
        for script in &requests.scripts {
            if requests.forgoes_news(script)
                && replies
                    .next()
                    .is_some_and(|reply| reply.is_err_and(|refusal| !refusal.is_retryable()))
            {
                self.connection.take_all_news();
            }
            let Some(reply) = replies.next().filter(|reply| !is_unknown(reply)) else { continue };
            script.outcomes(reply, |index, outcome| {
                if outcome == Outcome::Elsewhere {
                    self.skipped().elsewhere_at = Some(Instant::now());
                }
                batch.answer(index, Ok(outcome));
            });
        }
    }

    fn skipped(&self) -> MutexGuard<'_, Skipped> {
        unpoisoned(&self.skipped)
    }
}

impl<D: Driver> SendBatch for Server<D> {
    type Request = Work;
    type Reply = Result<Outcome, Error>;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let mut batch = None;
        let sent = match self.connection.current().await {
            Ok(current) => self.send(&current, lane, &mut batch).await,
            Err(error) => {
                batch = lane.next_batch();
                Err(error)
            }
        };
        let Some(mut batch) = batch else { return };
        match sent {
            Ok(()) => finish(&mut batch),
            Err(error) => {
                self.connection.suspect();
                fail(&mut batch, &error);
            }
        }
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
