//! A call that acquires one or several locks, from the request to its outcome.

use std::future::poll_fn;
use std::pin::Pin;
// An atomic from `std` is sufficient, because a call belongs to a single task.
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tracing::Instrument;

use super::event::{
    Acquired, Event, GrantPath, LongWait, Refusal, Refused, Subject, Waiting, WakeUp, Woken,
};
use super::log;
use super::point::Events;
use crate::clock::{Clock, Instant};
use crate::contract::busy::Busy;
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::engine::queue::LocalQueue;
use crate::engine::record::LeaseRecord;
use crate::engine::request::LockRequest;
use crate::engine::wait::Wait;
use crate::sync::{Mutex, lock};

/// A call in progress. A call that is dropped before it ends is reported as cancelled.
pub(crate) struct Call<'a> {
    events: &'a Events,
    queue: &'a LocalQueue<LeaseRecord>,
    clock: &'a dyn Clock,
    requests: &'a [LockRequest<'a>],
    waits: AtomicBool,
    /// Whether the call waits in the local queue, which ends its own waits during a shutdown.
    is_in_local_queue: AtomicBool,
    ended: AtomicBool,
    /// The store's latest refusal.
    held: Mutex<Option<Busy>>,
}

impl<'a> Call<'a> {
    /// Creates the call for all of `requests`, which must not be empty.
    pub(crate) fn new(
        events: &'a Events,
        queue: &'a LocalQueue<LeaseRecord>,
        clock: &'a dyn Clock,
        requests: &'a [LockRequest<'a>],
    ) -> Self {
        let [waits, is_in_local_queue, ended] = [false; 3].map(AtomicBool::new);
        let held = Mutex::new(None);
        Self { events, queue, clock, requests, waits, is_in_local_queue, ended, held }
    }

    /// Runs `call` in its own span, and reports a long wait. If `closing` completes while `call` is
    /// waiting outside the local queue, returns [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    pub(crate) async fn run<T>(
        &self,
        mut call: Pin<&mut impl Future<Output = Result<T, Error>>>,
        mut closing: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<T, Error> {
        let span = log::acquire_span(self.requests[0].key, self.requests[0].kind);
        let (mut told, mut alarm) = (false, None);
        let long = match self.events.long_wait() {
            Some(long_wait) => self.wait().asked_at() + long_wait,
            None => Instant::FAR_FUTURE,
        };
        poll_fn(|cx| {
            let polled = call.as_mut().poll(cx);
            if polled.is_ready() {
                return polled;
            }
            // The local queue is fast, and polling `closing` would lock a mutex of the client.
            let may_close = !self.is_in_local_queue.load(Ordering::Relaxed);
            if may_close && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Error::closed()));
            }
            if told || !self.has_waited() || long == Instant::FAR_FUTURE {
                return Poll::Pending;
            }
            let alarm = alarm.get_or_insert_with(|| self.clock.sleep_until(long));
            if alarm.as_mut().poll(cx).is_ready() {
                told = true;
                self.tell_long_wait();
            }
            Poll::Pending
        })
        .instrument(span)
        .await
    }

    /// Runs a stage that is pending only while the call waits for other callers of this process.
    pub(crate) async fn queueing<T>(&self, mut stage: Pin<&mut impl Future<Output = T>>) -> T {
        poll_fn(|cx| {
            let polled = stage.as_mut().poll(cx);
            if polled.is_pending() {
                self.waits(None);
            }
            polled
        })
        .await
    }

    /// Runs the stage in which the call waits in the local queue.
    pub(crate) async fn in_local_queue<T>(&self, stage: Pin<&mut impl Future<Output = T>>) -> T {
        self.is_in_local_queue.store(true, Ordering::Relaxed);
        let output = self.queueing(stage).await;
        self.is_in_local_queue.store(false, Ordering::Relaxed);
        output
    }

    /// Reports that the call is now waiting for a holder, or for a store that does not respond.
    pub(crate) fn waits(&self, held: Option<&Busy>) {
        let [request] = self.requests else {
            // A call for several keys waits only during an outage. Later calls for single keys
            // report their own waits.
            return;
        };
        if let Some(held) = held {
            *lock(&self.held) = Some(held.clone());
        }
        if !self.waits.swap(true, Ordering::Relaxed) && self.events.are_heard() {
            let (lock, holder) = (self.subject(request), self.holder(request));
            self.events.emit(Event::Waiting(Waiting { lock, holder: holder.as_ref() }));
        }
    }

    /// Reports that the call sends another request to the store.
    pub(crate) fn woken(&self, by: WakeUp) {
        let lock = self.subject(&self.requests[0]);
        self.events.emit(Event::Woken(Woken { lock, by }));
    }

    /// Reports that the call acquired the lock of `request` at the time `now`.
    pub(crate) fn acquired(
        &self,
        request: &LockRequest<'_>,
        token: u64,
        path: GrantPath,
        now: Instant,
    ) {
        self.ended.store(true, Ordering::Relaxed);
        let (took, waited) = (now.since(self.wait().asked_at()), self.has_waited());
        let lock = self.subject(request);
        self.events.emit(Event::Acquired(Acquired { lock, token, path, took, waited }));
    }

    /// Reports that the call was refused or failed. If the call ended without an outcome, this
    /// method does not report anything, because later calls report the outcome.
    pub(crate) fn end(&self, refusal: Result<Option<&Busy>, &Error>) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        match refusal {
            Ok(None) => {}
            Ok(Some(held)) => {
                let why = if self.wait().is_once() { Refusal::Busy } else { Refusal::TimedOut };
                self.refused(why, Some(held));
            }
            Err(error) => self.refused(Refusal::Failed(error), None),
        }
    }

    fn refused(&self, why: Refusal<'_>, held: Option<&Busy>) {
        let (took, waited) = (self.took(), self.has_waited());
        for request in self.requests {
            let lock = self.subject(request);
            let held = held.filter(|held| held.key() == request.key);
            let holder = held.and_then(Busy::holder);
            self.events.emit(Event::Refused(Refused { lock, why, holder, took, waited }));
        }
    }

    fn tell_long_wait(&self) {
        let request = &self.requests[0];
        let (lock, waited, held) = (self.subject(request), self.took(), self.holder(request));
        let (holder, by_caller) = (held.as_ref(), self.queue.is_held_by_caller(request.key));
        self.events.emit(Event::LongWait(LongWait { lock, holder, by_caller, waited }));
    }

    /// Returns the holder from the latest refusal that this call received. If there was no such
    /// refusal, returns the holder that is last known to this process.
    fn holder(&self, request: &LockRequest<'_>) -> Option<Holder> {
        let held = lock(&self.held).as_ref().and_then(|held| held.holder().cloned());
        held.or_else(|| self.queue.last_known(request.key, self.clock.now()).ok().flatten())
    }

    fn subject<'r>(&self, request: &LockRequest<'r>) -> Subject<'r> {
        self.events.subject(request.key, request.kind)
    }

    fn has_waited(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    fn wait(&self) -> Wait {
        self.requests[0].wait
    }

    fn took(&self) -> Duration {
        self.clock.now().since(self.wait().asked_at())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Relaxed) {
            self.refused(Refusal::Cancelled, None);
        }
    }
}
