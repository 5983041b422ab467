//! The queue of releases that no caller waits for, for example because a guard was dropped or a
//! call was cancelled.

mod tasks;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use self::tasks::{FallbackThread, Tasks};
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{LockBackend, Operation, Release};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::loss::LossReason;
use crate::engine::deadline;
use crate::engine::record::LeaseRecord;
use crate::observe::{Event, Events, ReleaseFailed};
use crate::retry::{Pauses, Retry};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, Notify, lock};

/// The maximum number of concurrent releases.
const MAX_IN_FLIGHT: usize = 64;

/// How long a caller waits for its release before the release is queued. Reconnects and most
/// stalls on a busy machine are shorter than this.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// The pause between two attempts to release a lease while the caller is waiting.
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Leases that the store may still hold but that no caller needs.
///
/// Each release is retried until the store replies or the lease has expired.
#[derive(Debug)]
pub(crate) struct ReleaseQueue {
    pub(super) clock: Arc<dyn Clock>,
    events: Events,
    pub(super) queue: Mutex<Queue>,
    pub(super) tasks: Tasks,
    /// Notifies all tasks of changes, because the task on any runtime may be idle.
    changed: Notify,
    /// The number of pending releases, including the releases that callers send.
    pending: AtomicUsize,
    /// Whether a shutdown is waiting for all pending releases. During this wait, no caller may
    /// start a new acquisition.
    is_awaited: AtomicBool,
    settled: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Sorted by the time of the next attempt, so that a waiting release does not block other
    /// releases.
    entries: BTreeMap<EntryKey, QueuedRelease>,
    /// The state of the thread that sends releases when no task is running.
    pub(super) fallback: FallbackThread,
    next_id: u64,
    /// Whether the queue rejects further releases.
    finishing: bool,
}

/// The key of a queue entry, which consists of the time of the next attempt and a number that makes
/// the key unique.
type EntryKey = (Instant, u64);

/// A release that no caller waits for.
#[derive(Debug)]
struct QueuedRelease {
    record: Arc<LeaseRecord>,
    /// The approximate time at which the lease expires in the store even without a release.
    expires_at: Instant,
    /// The TTL of the lease, which determines the time limit of each attempt.
    ttl: Duration,
    pauses: Pauses,
}

/// An attempt to send a queued release. If the runtime ends, a different runtime continues the
/// release.
///
/// The entry stays in the queue, with the end of the attempt as its time, because the attempt's
/// runtime may never run again.
struct ReleaseAttempt<'a> {
    releases: &'a ReleaseQueue,
    /// Keeps the record alive when the entry is removed from the locked queue, because the
    /// destructors of a record may lock other mutexes.
    record: Arc<LeaseRecord>,
    give_up: Instant,
    /// `None` after the attempt has ended.
    place: Option<EntryKey>,
}

/// The duty to release a lease that the store may have. If this value is dropped while it is
/// armed, the queue of releases takes over the duty.
#[derive(Debug)]
pub(crate) struct PendingRelease<'a> {
    record: Arc<LeaseRecord>,
    is_armed: bool,
    releases: &'a Arc<ReleaseQueue>,
}

impl<'a> PendingRelease<'a> {
    /// Creates a value that is not armed.
    pub(crate) fn new(record: Arc<LeaseRecord>, releases: &'a Arc<ReleaseQueue>) -> Self {
        Self { record, is_armed: false, releases }
    }

    pub(crate) fn record(&self) -> &Arc<LeaseRecord> {
        &self.record
    }

    /// Makes this value responsible for the release. Shutdowns wait for armed values.
    pub(crate) fn arm(&mut self) {
        if !self.is_armed {
            self.is_armed = true;
            self.releases.pending.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends the duty, because the store does not have the lease, or because a guard or another
    /// value is responsible for the release.
    pub(crate) fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.releases.note_settled();
        }
    }

    /// Releases the lease with a few retries, but no later than `deadline`. If the release fails,
    /// this value stays armed.
    pub(crate) async fn send(
        &mut self,
        backend: &dyn LockBackend,
        clock: &dyn Clock,
        mut now: Instant,
        deadline: Instant,
    ) -> Result<(), Error> {
        let give_up = deadline.min(now + RELEASE_WAIT);
        let mut unanswered = None;
        loop {
            let reply = clock::until(clock, give_up, self.record.end(backend, now)).await;
            self.releases.events.heard(Operation::Release, reply.as_ref(), clock);
            let error = match reply {
                Some(Ok(release)) => {
                    self.record.ended();
                    self.disarm();
                    return match release {
                        Release::Released => Ok(()),
                        // The lease may be gone because an earlier attempt succeeded and only its
                        // reply was lost.
                        Release::NotHeld => {
                            Err(unanswered.unwrap_or_else(|| Error::lost(LossReason::Vanished)))
                        }
                    };
                }
                Some(Err(error)) => error,
                None => Error::no_reply(),
            };
            if !error.is_retryable() || clock.now() + RELEASE_PAUSE >= give_up {
                self.releases.report_failed(&self.record, &error, true);
                return Err(error);
            }
            if error.may_have_been_applied() {
                unanswered = Some(error);
            }
            clock.sleep_until(clock.now() + RELEASE_PAUSE).await;
            now = clock.now();
        }
    }
}

impl Drop for PendingRelease<'_> {
    fn drop(&mut self) {
        if self.is_armed && !flaw!("dropped-call-not-released") {
            self.releases.push(Arc::clone(&self.record));
            self.releases.start_fallback();
        }
    }
}

impl ReleaseQueue {
    pub(crate) fn new(clock: Arc<dyn Clock>, events: Events) -> Self {
        Self {
            clock,
            events,
            queue: Mutex::default(),
            tasks: Tasks::default(),
            changed: Notify::new(),
            pending: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            settled: Notify::new(),
        }
    }

    /// Adds a pending release to the queue.
    fn push(&self, record: Arc<LeaseRecord>) {
        let (not_before, ttl) = record.end_later();
        let expires_at = self.clock.now() + ttl;
        let queued = QueuedRelease { record, expires_at, ttl, pauses: Retry::unlimited().pauses() };
        lock(&self.queue).push(not_before, queued);
        self.changed.notify_waiters();
    }

    /// Makes the tasks finish after all releases have been completed.
    pub(crate) fn finish(&self) {
        lock(&self.queue).finishing = true;
        self.changed.notify_waiters();
    }

    /// Returns the number of pending releases.
    pub(crate) fn unsettled(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Returns whether a shutdown is waiting for all pending releases. An acquisition counts its
    /// release *before* it reads this flag, so the shutdown either waits for the release or
    /// prevents the acquisition.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::SeqCst)
    }

    /// Waits until no release is pending, including the releases of callers.
    pub(crate) async fn wait_settled(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.unsettled() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// Reports that the remaining releases will not be retried.
    #[cfg(feature = "blocking")]
    pub(crate) fn report_given_up(&self) {
        let left: Vec<_> =
            lock(&self.queue).entries.values().map(|queued| Arc::clone(&queued.record)).collect();
        left.iter().for_each(|record| self.report_failed(record, &Error::no_reply(), false));
    }

    fn report_failed(&self, record: &LeaseRecord, error: &Error, retried: bool) {
        let (store, key) = (self.events.store(), record.lease().key());
        self.events.emit(Event::ReleaseFailed(ReleaseFailed { store, key, error, retried }));
    }

    fn note_settled(&self) {
        // Shutdowns are rare, and this code runs twice per lock, so check the counter first.
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_awaited() {
            self.settled.notify_waiters();
        }
    }

    /// Records that a release handled by the tasks has finished. The tasks end after the last
    /// release.
    fn note_done(&self) {
        self.note_settled();
        let mut queue = lock(&self.queue);
        if queue.is_empty() {
            queue.fallback.note_empty();
        }
        let is_finished = queue.is_finished();
        drop(queue);
        if is_finished {
            self.changed.notify_waiters();
        }
    }

    /// Sends queued releases. Each runtime has one such task. The task ends after
    /// [`ReleaseQueue::finish`] was called and no release is pending.
    pub(crate) async fn run(&self, backend: &dyn LockBackend) {
        let mut releases = FuturesUnordered::new();
        loop {
            let mut changed = pin!(self.changed.notified());
            while releases.len() < MAX_IN_FLIGHT
                && let Some(attempt) = self.next()
            {
                releases.push(attempt.run(backend));
            }
            if releases.is_empty() && self.is_finished() {
                return;
            }
            let has_room = releases.len() < MAX_IN_FLIGHT;
            let next_attempt = if has_room { self.next_try() } else { Instant::FAR_FUTURE };
            // Polled in a fixed order, as in the watchdog, so that equal schedules lead to equal
            // runs.
            tokio::select! {
                biased;
                Some(()) = releases.next() => {}
                () = &mut changed => {}
                () = self.clock.sleep_until(next_attempt) => {}
            }
        }
    }

    /// Returns the next release to attempt. Releases that have not failed yet come first.
    fn next(&self) -> Option<ReleaseAttempt<'_>> {
        let now = self.clock.now();
        let mut queue = lock(&self.queue);
        let ((_, id), queued) = queue.take_due(now)?;
        let record = Arc::clone(&queued.record);
        let give_up = deadline::attempt_end(now, queued.ttl).min(queued.expires_at);
        let place = (give_up + RELEASE_PAUSE, id);
        queue.entries.insert(place, queued);
        Some(ReleaseAttempt { releases: self, record, give_up, place: Some(place) })
    }

    /// Returns when the next release in the queue is due, including releases that are being
    /// attempted.
    fn next_try(&self) -> Instant {
        lock(&self.queue).entries.keys().next().map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    fn is_finished(&self) -> bool {
        lock(&self.queue).is_finished()
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn is_finished(&self) -> bool {
        self.finishing && self.is_empty()
    }

    fn push(&mut self, not_before: Instant, queued: QueuedRelease) {
        self.entries.insert((not_before, self.next_id), queued);
        self.next_id += 1;
    }

    fn take_due(&mut self, now: Instant) -> Option<(EntryKey, QueuedRelease)> {
        let first = self.entries.first_entry()?;
        (first.key().0 <= now).then(|| first.remove_entry())
    }
}

impl ReleaseAttempt<'_> {
    /// Makes one attempt.
    async fn run(self, backend: &dyn LockBackend) {
        let clock = &*self.releases.clock;
        // If the backend panics, the releases of other leases must continue.
        let end = AssertUnwindSafe(self.record.end(backend, clock.now())).catch_unwind();
        let ended = clock::until(clock, self.give_up, end).await;
        let ended = ended.map(|ended| ended.unwrap_or_else(|_panic| Err(panicked())));
        self.releases.events.heard(Operation::Release, ended.as_ref(), clock);
        match ended.unwrap_or_else(|| Err(Error::no_reply())) {
            Ok(_) => self.settle(LeaseRecord::ended),
            Err(error) if error.is_retryable() => self.pause(&error),
            Err(error) => {
                self.releases.report_failed(&self.record, &error, false);
                self.settle(LeaseRecord::not_ended);
            }
        }
    }

    /// Removes the release from the queue and records its outcome.
    fn settle(mut self, note: impl FnOnce(&LeaseRecord)) {
        let Some(place) = self.place.take() else { return };
        // The task on a different runtime may have continued or completed the release.
        let was_left = lock(&self.releases.queue).entries.remove(&place).is_some();
        if was_left {
            note(&self.record);
            self.releases.note_done();
        }
    }

    /// Schedules the next attempt after a pause, unless the lease expires in the store first.
    fn pause(mut self, error: &Error) {
        let now = self.releases.clock.now();
        let mut is_retried = None;
        let given_up = self.put_back(|queued| {
            let at = now + queued.pauses.next().unwrap_or_default();
            let again = (at < queued.expires_at).then_some(at);
            is_retried = Some(again.is_some());
            again
        });
        if let Some(is_retried) = is_retried {
            self.releases.report_failed(&self.record, error, is_retried);
        }
        if given_up {
            self.record.not_ended();
            self.releases.note_done();
        }
    }

    /// Puts the release back into the queue for a later time. Returns `true` if there is no later
    /// time, so that the release is abandoned. Does nothing if the task on a different runtime has
    /// continued or completed the release.
    fn put_back(&mut self, time: impl FnOnce(&mut QueuedRelease) -> Option<Instant>) -> bool {
        let Some(place) = self.place.take() else { return false };
        let mut queue = lock(&self.releases.queue);
        let Some(mut queued) = queue.entries.remove(&place) else { return false };
        match time(&mut queued) {
            Some(at) => queue.entries.insert((at, place.1), queued).is_some(),
            None => true,
        }
    }
}

impl Drop for ReleaseAttempt<'_> {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.put_back(|_| Some(Instant::ZERO));
            self.releases.changed.notify_waiters();
        }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unexpected, "the backend panicked")
}
