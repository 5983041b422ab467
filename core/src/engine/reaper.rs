//! Releases leases that a drop or a cancelled future could not.

mod absence;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use self::absence::{StandIn, Tasks};
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Lease, LockBackend, Operation, Release, Renewal, Tenure};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::loss::LossReason;
use crate::engine::deadline;
use crate::observe::{Event, Events, ReleaseFailed};
use crate::retry::{Pauses, Retry};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, Notify, lock};

/// Releases under way at once.
const MAX_IN_FLIGHT: usize = 64;

/// How long a caller that awaits a release is kept at most, before the release is left to the reaper: longer than a reconnect, and
/// than most stalls of a busy machine.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// The pause between two tries of such a release.
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Leases that the store may still have and no caller wants.
///
/// Each is tried until the store answers, or its TTL has freed it anyway.
#[derive(Debug)]
pub(crate) struct Reaper {
    pub(super) clock: Arc<dyn Clock>,
    events: Events,
    pub(super) queue: Mutex<Queue>,
    pub(super) tasks: Tasks,
    /// Notified of changes that all tasks must see, since the task of any runtime may be idle.
    changed: Notify,
    /// How many releases are owed, or may be: by callers still, or left to the reaper. While one changes hands, it counts on both sides
    /// rather than on none.
    owed: AtomicUsize,
    /// Whether a shutdown waits until none is owed: no caller may begin to owe one any more.
    is_awaited: AtomicBool,
    settled: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By when each is tried, for the first time or again: meanwhile it keeps no others from being tried.
    left: BTreeMap<Place, Left>,
    /// Works while no task does.
    pub(super) stand_in: StandIn,
    next_id: u64,
    /// No more will come.
    finishing: bool,
}

/// A place in the reaper's queue: when, and which of those at that time.
type Place = (Instant, u64);

/// The time of those that were not tried yet, or whose try was interrupted.
const AT_ONCE: Instant = Instant::from_zero(Duration::ZERO);

/// A release that is left to the reaper.
#[derive(Debug)]
struct Left {
    unwanted: Unwanted,
    /// At about this time the store frees the key in any case.
    free_anyway: Instant,
    pauses: Pauses,
}

/// A release that is being tried. Interrupted, with the runtime, it is left to the next one.
///
/// It stays in the queue, for when its time is over: the runtime that tries it may be driven no more.
struct Trying<'a> {
    reaper: &'a Reaper,
    unwanted: Unwanted,
    give_up: Instant,
    /// `None` once it has come to an end.
    place: Option<Place>,
}

/// A lease to be ended in the store.
#[derive(Clone, Debug)]
pub(crate) struct Unwanted {
    lease: Lease,
    /// The key is to stay closed until then.
    closed_until: Instant,
    /// A renewal under way could undo an end before then.
    not_before: Instant,
}

/// A release that may be owed to the store. Dropped while owed, it is left to the reaper.
#[derive(Debug)]
pub(crate) struct Debt<'a> {
    unwanted: Unwanted,
    owed: bool,
    reaper: &'a Arc<Reaper>,
}

impl Unwanted {
    /// A lease whose key may be open as soon as it has ended.
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, closed_until: AT_ONCE, not_before: AT_ONCE }
    }

    /// Keeps the key closed until then.
    pub(crate) fn closed_until(mut self, instant: Instant) -> Self {
        self.closed_until = instant;
        self
    }

    /// Leaves the lease in force until then, unless its caller ends it.
    pub(crate) fn not_before(mut self, instant: Instant) -> Self {
        self.not_before = instant;
        self
    }

    /// Ends the lease: at once, or by a last renewal to the time that the key is to stay closed.
    pub(crate) async fn end(
        &self,
        backend: &dyn LockBackend,
        now: Instant,
    ) -> Result<Release, Error> {
        let closed_for = self.closed_until.since(now);
        if closed_for.is_zero() {
            return backend.release(&self.lease).await;
        }
        let closed_for = closed_for.max(backend.capabilities().min_ttl());
        let last = self.lease.clone().with_ttl(closed_for).with_tenure(Tenure::Fixed);
        match backend.renew(&last).await? {
            Renewal::Renewed | Renewal::RevocationRequested => Ok(Release::Released),
            Renewal::Taken | Renewal::Vanished => Ok(Release::NotHeld),
        }
    }
}

impl<'a> Debt<'a> {
    /// Owes nothing yet.
    pub(crate) fn new(unwanted: Unwanted, reaper: &'a Arc<Reaper>) -> Self {
        Self { unwanted, owed: false, reaper }
    }

    /// From now on the store may have the lease.
    pub(crate) fn incur(&mut self) {
        if !self.owed {
            self.owed = true;
            self.reaper.owed.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The store does not have the lease, or a caller wants it.
    pub(crate) fn forgive(&mut self) {
        if self.owed {
            self.owed = false;
            self.reaper.note_settled();
        }
    }

    /// Ends the lease now, with a few retries, but no later than the `deadline` of the lease; the reaper takes over a release
    /// that fails.
    pub(crate) async fn settle(
        &mut self,
        backend: &dyn LockBackend,
        clock: &dyn Clock,
        mut now: Instant,
        deadline: Instant,
    ) -> Result<(), Error> {
        let give_up = deadline.min(now + RELEASE_WAIT);
        let mut unanswered = None;
        loop {
            let release = self.unwanted.end(backend, now);
            let reply = clock::until(clock, give_up, release).await;
            self.reaper.events.heard(Operation::Release, reply.as_ref(), clock);
            let error = match reply {
                Some(Ok(Release::Released)) => {
                    self.forgive();
                    return Ok(());
                }
                Some(Ok(Release::NotHeld)) => {
                    self.forgive();
                    // The lost reply of an earlier try may have been the release.
                    return Err(unanswered.unwrap_or_else(|| Error::lost(LossReason::Vanished)));
                }
                Some(Err(error)) => error,
                None => Error::no_reply(),
            };
            if !error.is_retryable() || clock.now() + RELEASE_PAUSE >= give_up {
                self.reaper.tell_failed(&self.unwanted, &error, true);
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

impl Drop for Debt<'_> {
    fn drop(&mut self) {
        if self.owed {
            self.reaper.push(self.unwanted.clone());
            self.reaper.stand_in();
        }
    }
}

impl Reaper {
    pub(crate) fn new(clock: Arc<dyn Clock>, events: Events) -> Self {
        Self {
            clock,
            events,
            queue: Mutex::default(),
            tasks: Tasks::default(),
            changed: Notify::new(),
            owed: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            settled: Notify::new(),
        }
    }

    /// Takes over a release that is owed.
    fn push(&self, unwanted: Unwanted) {
        let free_anyway = self.clock.now() + unwanted.lease.ttl();
        let left = Left { unwanted, free_anyway, pauses: Retry::unlimited().pauses() };
        lock(&self.queue).push(left);
        self.changed.notify_waiters();
    }

    /// Makes the tasks end once all is settled.
    pub(crate) fn finish(&self) {
        lock(&self.queue).finishing = true;
        self.changed.notify_waiters();
    }

    /// How many releases are owed.
    pub(crate) fn unsettled(&self) -> usize {
        self.owed.load(Ordering::SeqCst)
    }

    /// Whether a shutdown waits until no release is owed. An acquisition counts its release *before* it reads this flag,
    /// so the shutdown either waits for the release or stops the acquisition.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::SeqCst)
    }

    /// Waits until none is owed any more, by callers neither.
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

    /// Tells that the releases which are left are tried no more.
    #[cfg(feature = "blocking")]
    pub(crate) fn tell_given_up(&self) {
        let left: Vec<_> =
            lock(&self.queue).left.values().map(|left| left.unwanted.clone()).collect();
        left.iter().for_each(|unwanted| self.tell_failed(unwanted, &Error::no_reply(), false));
    }

    fn tell_failed(&self, unwanted: &Unwanted, error: &Error, retried: bool) {
        let (store, key) = (self.events.store(), unwanted.lease.key());
        self.events.emit(Event::ReleaseFailed(ReleaseFailed { store, key, error, retried }));
    }

    fn note_settled(&self) {
        // Nearly always there is no shutdown, and this runs twice for each lock.
        if self.owed.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_awaited() {
            self.settled.notify_waiters();
        }
    }

    /// One that was left to the tasks is settled: it may have been the last that they were kept for.
    fn note_done(&self) {
        self.note_settled();
        let mut queue = lock(&self.queue);
        if queue.is_empty() {
            queue.stand_in.note_empty();
        }
        let is_finished = queue.is_finished();
        drop(queue);
        if is_finished {
            self.changed.notify_waiters();
        }
    }

    /// The task, of which each runtime has one. It ends after [`Reaper::finish`], when all is settled.
    pub(crate) async fn run(&self, backend: &dyn LockBackend) {
        let mut releases = FuturesUnordered::new();
        loop {
            let mut changed = pin!(self.changed.notified());
            while releases.len() < MAX_IN_FLIGHT
                && let Some(trying) = self.next()
            {
                releases.push(trying.run(backend));
            }
            if releases.is_empty() && self.is_finished() {
                return;
            }
            let has_room = releases.len() < MAX_IN_FLIGHT;
            let look_at = if has_room { self.next_try() } else { Instant::FAR_FUTURE };
            // In one order, as the watchdog.
            tokio::select! {
                biased;
                Some(()) = releases.next() => {}
                () = &mut changed => {}
                () = self.clock.sleep_until(look_at) => {}
            }
        }
    }

    /// The release to be tried next: those that have not failed yet come first.
    fn next(&self) -> Option<Trying<'_>> {
        let now = self.clock.now();
        let mut queue = lock(&self.queue);
        let ((_, id), left) = queue.take_due(now)?;
        let unwanted = left.unwanted.clone();
        let give_up = deadline::attempt_end(now, unwanted.lease.ttl()).min(left.free_anyway);
        let place = (give_up + RELEASE_PAUSE, id);
        queue.left.insert(place, left);
        Some(Trying { reaper: self, unwanted, give_up, place: Some(place) })
    }

    /// When the next of those that wait, or are being tried, is due.
    fn next_try(&self) -> Instant {
        lock(&self.queue).left.keys().next().map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    fn is_finished(&self) -> bool {
        lock(&self.queue).is_finished()
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn is_finished(&self) -> bool {
        self.finishing && self.is_empty()
    }

    fn push(&mut self, left: Left) {
        self.left.insert((left.unwanted.not_before, self.next_id), left);
        self.next_id += 1;
    }

    fn take_due(&mut self, now: Instant) -> Option<(Place, Left)> {
        let first = self.left.first_entry()?;
        (first.key().0 <= now).then(|| first.remove_entry())
    }
}

impl Trying<'_> {
    /// Tries once.
    async fn run(self, backend: &dyn LockBackend) {
        let clock = &*self.reaper.clock;
        // A backend that panics must not take the releases of others along.
        let end = AssertUnwindSafe(self.unwanted.end(backend, clock.now())).catch_unwind();
        let ended = clock::until(clock, self.give_up, end).await;
        let ended = ended.map(|ended| ended.unwrap_or_else(|_panic| Err(panicked())));
        self.reaper.events.heard(Operation::Release, ended.as_ref(), clock);
        match ended.unwrap_or_else(|| Err(Error::no_reply())) {
            Ok(_) => self.settle(),
            Err(error) if error.is_retryable() => self.pause(&error),
            Err(error) => {
                self.reaper.tell_failed(&self.unwanted, &error, false);
                self.settle();
            }
        }
    }

    /// There is nothing left to do.
    fn settle(mut self) {
        let Some(place) = self.place.take() else { return };
        // The task of another runtime may have it by now, or has settled it.
        let was_left = lock(&self.reaper.queue).left.remove(&place).is_some();
        if was_left {
            self.reaper.note_done();
        }
    }

    /// It is tried again after a pause, unless the store frees the key before.
    fn pause(mut self, error: &Error) {
        let now = self.reaper.clock.now();
        let mut is_retried = None;
        let given_up = self.put_back(|left| {
            let at = now + left.pauses.next().unwrap_or_default();
            let again = (at < left.free_anyway).then_some(at);
            is_retried = Some(again.is_some());
            again
        });
        if let Some(is_retried) = is_retried {
            self.reaper.tell_failed(&self.unwanted, error, is_retried);
        }
        if given_up {
            self.reaper.note_done();
        }
    }

    /// Puts the release back in the queue, for another time: `true` if there is none, and it is left no more. Does nothing if the task of
    /// another runtime has it by now, or has settled it.
    fn put_back(&mut self, time: impl FnOnce(&mut Left) -> Option<Instant>) -> bool {
        let Some(place) = self.place.take() else { return false };
        let mut queue = lock(&self.reaper.queue);
        let Some(mut left) = queue.left.remove(&place) else { return false };
        match time(&mut left) {
            Some(at) => queue.left.insert((at, place.1), left).is_some(),
            None => true,
        }
    }
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.put_back(|_| Some(AT_ONCE));
            self.reaper.changed.notify_waiters();
        }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unexpected, "the backend panicked")
}
