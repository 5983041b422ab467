//! Measures delays reliably, even if the machine stalls.
//!
//! Observer threads record the periods in which the machine does not run them. A check compares an
//! event's delay with the recorded stalls. If the event occurs in time, the check passes. If the
//! event is late and the stalls do not explain the delay, the check fails. If the stalls explain
//! the delay, the measurement is [`Void`] and must be repeated.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use leasehold_conformance::stalls::{Stalls, measure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! measure(async || {
//!     let (stalls, started) = (Stalls::watch(), Instant::now());
//!
//!     tokio::time::sleep(Duration::from_millis(20)).await;
//!
//!     stalls.in_time("a short sleep", started.elapsed(), Duration::from_millis(100))
//! })
//! .await;
//! # }
//! ```

mod processor;

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::log;
use processor::{Processor, processors};

/// The interval between two wake-ups of an observer thread, which is much shorter than the limits
/// of checks and much longer than the work of a wake-up. Observing a test takes 0.5 % of a core.
const BEAT: Duration = Duration::from_millis(5);

/// A sleep that is late by up to this time does not count as a stall, because timers are coarse.
const USUAL: Duration = Duration::from_millis(1);

/// How long to wait for a late event.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum number of measurements. Additional measurements would hide an unsuitable machine or
/// an intermittent defect.
const MEASUREMENTS: usize = 3;

/// The stalls of a machine during an observation.
///
/// One thread per processor and one thread for the server sleep for 5 ms at a time and record how
/// late they wake. Each processor needs a thread, because an unavailable processor delays only the
/// threads that are waiting for it. All observations in a process share these observer threads,
/// which exit after the last observation.
///
/// The example for [`stalls`](self) observes a short sleep.
#[derive(Debug)]
pub struct Stalls(Vec<Observer>);

/// The records of a thread.
type Observer = Arc<Mutex<Beats>>;

/// The threads of the processors, one per processor.
static PROCESSORS: Mutex<Vec<Weak<Mutex<Beats>>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Beats {
    started: Instant,
    last: Instant,
    /// The minimum length of a recorded stall.
    shortest: Duration,
    /// The end and the length of each stall.
    stalls: Vec<(Instant, Duration)>,
}

/// A measurement without a result, because the machine stalled.
///
/// [`Stalls::in_time`] returns this type.
#[must_use = "a void measurement must be repeated"]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Void {
    pub(crate) measured: String,
    pub(crate) stalled: Duration,
}

/// The result of a measurement that did not fail.
///
/// [`Stalls::in_time`] returns this type.
pub type Measured<T = ()> = Result<T, Void>;

/// The result of a case that did not fail. Only a case that measures time may be void.
pub(crate) trait Ending {
    fn into_measured(self) -> Measured;
}

impl Ending for () {
    fn into_measured(self) -> Measured {
        Ok(())
    }
}

impl Ending for Measured {
    fn into_measured(self) -> Measured {
        self
    }
}

impl Stalls {
    /// Observes the machine.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started.
    pub fn watch() -> Self {
        Self::watch_with(|| {})
    }

    /// Observes the machine and a server. A thread calls `heartbeat` after each sleep. `heartbeat` should
    /// request a reply from the server, so that stalls of the server are recorded too.
    ///
    /// # Panics
    ///
    /// Panics if a thread cannot be started.
    pub fn watch_with(heartbeat: impl FnMut() + Send + 'static) -> Self {
        let mut observers = shared();
        observers.push(observe(Processor::Any, USUAL, heartbeat));
        Self(observers)
    }

    /// Observes only the processors, because a server may use other processors.
    pub(crate) fn watch_processors() -> Self {
        Self(shared())
    }

    /// Observes only stalls that are longer than `shortest`. Even an observation of several hours
    /// records few such stalls.
    #[cfg(all(feature = "history", target_os = "linux"))]
    pub(crate) fn watch_those_over(
        shortest: Duration,
        heartbeat: impl FnMut() + Send + 'static,
    ) -> Self {
        let mut observers = of_processors(shortest);
        observers.push(observe(Processor::Any, shortest, heartbeat));
        Self(observers)
    }

    /// Creates an observation that never records a stall, for virtual time.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Checks the delay of an event that has just occurred. The test started to wait for the event
    /// `took` ago, and the event should have occurred within `bound`.
    ///
    /// # Errors
    ///
    /// Returns [`Void`] if the event was late, but by no more than the time for which the machine
    /// stalled while the test waited.
    ///
    /// # Panics
    ///
    /// Panics if the stalls do not explain the delay, or if the test started to wait before the
    /// observation started.
    pub fn in_time(&self, event: impl fmt::Display, took: Duration, bound: Duration) -> Measured {
        let late = took.saturating_sub(bound);
        let stalled = self.during(took).iter().sum();
        if late.is_zero() {
            return Ok(());
        }
        assert!(
            late <= stalled,
            "{event}: found after {took:?}, expected within {bound:?} (the machine stalled for {stalled:?})"
        );
        Err(Void { measured: event.to_string(), stalled })
    }

    /// Waits for an event that is due now, and checks that it occurs within `bound`.
    ///
    /// # Errors
    ///
    /// Returns [`Void`] if the event was late, but by no more than the time for which the machine
    /// stalled while this method waited.
    ///
    /// # Panics
    ///
    /// Panics if the stalls do not explain the delay, or if the event does not occur within another
    /// 10 s.
    pub async fn promptly<T>(
        &self,
        event: impl fmt::Display,
        bound: Duration,
        future: impl Future<Output = T>,
    ) -> Measured<T> {
        let due = Instant::now();
        let came = timeout(bound + PATIENCE, future).await;
        self.in_time(&event, due.elapsed(), bound)?;
        Ok(came.unwrap_or_else(|_| panic!("{event}: found nothing, expected within {bound:?}")))
    }

    /// Checks that no stall during the last `time` was longer than `limit`. During a longer stall,
    /// a client may be unable to renew its leases.
    ///
    /// # Errors
    ///
    /// Returns [`Void`] if a stall was longer than `limit`.
    ///
    /// # Panics
    ///
    /// Panics if the observation is shorter than `time`.
    pub fn steady(&self, event: impl fmt::Display, time: Duration, limit: Duration) -> Measured {
        let stalled = self.during(time).into_iter().max().unwrap_or_default();
        if stalled <= limit { Ok(()) } else { Err(Void { measured: event.to_string(), stalled }) }
    }

    /// Returns the total length of the stalls between two times. `ended` must not be in the future.
    pub(crate) fn between(&self, began: Instant, ended: Instant) -> Duration {
        let now = Instant::now();
        let (from, until) = (now - began, now - ended);
        let spans = self.spans(now, from).into_iter();
        spans.map(|(end, start)| start.saturating_sub(end.max(until))).sum()
    }

    /// Returns the lengths of the stalls during the last `time`, including a current stall.
    /// Simultaneous stalls are merged.
    fn during(&self, time: Duration) -> Vec<Duration> {
        let now = Instant::now();
        for beats in &self.0 {
            let watched = now - lock(beats).started;
            assert!(
                time <= watched + USUAL,
                "the measured time: found {time:?}, expected at most {watched:?}, the time for which the machine was observed"
            );
        }
        self.spans(now, time).into_iter().map(|(end, start)| start - end).collect()
    }

    /// Returns the end and the start of each stall so far, as times before now.
    #[cfg(all(feature = "history", target_os = "linux"))]
    pub(crate) fn all(&self) -> Vec<(Duration, Duration)> {
        self.spans(Instant::now(), Duration::MAX)
    }

    /// Creates an observation of length `time`, with a single stall of `length` that has just
    /// ended.
    #[cfg(test)]
    pub(crate) fn of_one(time: Duration, length: Duration) -> Self {
        let now = Instant::now();
        let stalls = vec![(now, length)];
        let beats = Beats { started: now - time, last: now, shortest: USUAL, stalls };
        Self(vec![Arc::new(Mutex::new(beats))])
    }

    /// Returns the end and the start of each stall during the last `time`, as times before now.
    /// Simultaneous stalls are merged.
    fn spans(&self, now: Instant, time: Duration) -> Vec<(Duration, Duration)> {
        let mut stalls = Vec::new();
        for beats in &self.0 {
            let beats = lock(beats);
            let goes_on = beats.stall(now).map(|stall| (now, stall));
            let ended = beats.stalls.iter().filter(|(ended, _)| now - *ended < time).copied();
            // Sorting by the time before now puts the stall that ended last first.
            let spans = ended.chain(goes_on).map(|(ended, stall)| {
                let end = now - ended;
                (end, (end + stall).min(time))
            });
            stalls.extend(spans);
        }
        stalls.sort();
        merged(stalls)
    }
}

/// Merges sorted spans that overlap.
fn merged(spans: Vec<(Duration, Duration)>) -> Vec<(Duration, Duration)> {
    let mut merged: Vec<(Duration, Duration)> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
            _ => merged.push(span),
        }
    }
    merged
}

/// Returns the processors' observers, which all observations share.
fn shared() -> Vec<Observer> {
    let mut known = PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner);
    let observers: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
    if !observers.is_empty() && observers.len() == known.len() {
        return observers;
    }
    let observers = of_processors(USUAL);
    *known = observers.iter().map(Arc::downgrade).collect();
    observers
}

fn of_processors(shortest: Duration) -> Vec<Observer> {
    processors().into_iter().map(|processor| observe(processor, shortest, || {})).collect()
}

/// Starts a thread that sleeps, calls `heartbeat`, and records how late it wakes.
fn observe(
    processor: Processor,
    shortest: Duration,
    mut heartbeat: impl FnMut() + Send + 'static,
) -> Observer {
    let now = Instant::now();
    let beats = Beats { started: now, last: now, shortest, stalls: Vec::new() };
    let beats = Arc::new(Mutex::new(beats));
    let watched = Arc::downgrade(&beats);
    let watch = move || {
        processor.keep();
        while beat(&watched) {
            thread::sleep(BEAT);
            heartbeat();
        }
    };
    let watch = thread::Builder::new().name("stalls".to_owned()).spawn(watch);
    watch.expect("a thread can be started");
    beats
}

/// Records that the thread is running. Returns `false` if no observation is left.
fn beat(watched: &Weak<Mutex<Beats>>) -> bool {
    let Some(beats) = watched.upgrade() else { return false };
    let (now, mut beats) = (Instant::now(), lock(&beats));
    let stall = beats.stall(now);
    beats.stalls.extend(stall.map(|stall| (now, stall)));
    beats.last = now;
    true
}

impl Beats {
    /// Returns how late the next beat is.
    fn stall(&self, now: Instant) -> Option<Duration> {
        let late = now.saturating_duration_since(self.last).saturating_sub(BEAT);
        (late > self.shortest).then_some(late)
    }
}

fn lock(beats: &Mutex<Beats>) -> MutexGuard<'_, Beats> {
    beats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a measurement until its result is not void, at most three times.
///
/// A failed measurement panics and is never repeated. Each void measurement is reported on standard
/// error, and in the file that the environment variable `LEASEHOLD_CONFORMANCE_LOG` names, if it is
/// set.
///
/// # Panics
///
/// Panics if the measurement panics, or if the measurement is void all three times because the
/// machine stalls too often.
///
/// # Examples
///
/// The example for [`stalls`](self) measures a short sleep.
pub async fn measure<T>(measurement: impl AsyncFn() -> Measured<T>) -> T {
    let mut voids = Vec::new();
    while voids.len() < MEASUREMENTS {
        match measurement().await {
            Ok(measured) => return measured,
            Err(void) => voids.push(log_void(void)),
        }
    }
    panic!("the machine stalls too often to measure time: {voids:?}")
}

fn log_void(void: Void) -> Void {
    let test = thread::current().name().unwrap_or_default().to_owned();
    eprintln!("{void}");
    log::write(&["-", &test, &void.to_string()]);
    void
}

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "void: {}: the machine stalled for {:?}", self.measured, self.stalled)
    }
}

impl Error for Void {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;

    use super::*;

    const BOUND: Duration = Duration::from_millis(250);
    const STALL: Duration = Duration::from_millis(300);

    /// Returns an observation of one minute with a single stall, which ended `ago`.
    fn stalled(ago: Duration) -> Stalls {
        let now = Instant::now();
        let started = now - Duration::from_secs(60);
        let stalls = vec![(now - ago, STALL)];
        let beats = Beats { started, last: now, shortest: USUAL, stalls };
        Stalls(vec![Arc::new(Mutex::new(beats))])
    }

    fn fails(verdict: impl FnOnce() -> Measured) -> bool {
        std::panic::catch_unwind(AssertUnwindSafe(verdict)).is_err()
    }

    /// Waits in real time, because an observer's thread always uses real time.
    fn until(condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < PATIENCE, "it does not come about");
            thread::sleep(BEAT);
        }
    }

    #[test]
    fn a_thread_that_wakes_late_has_stalled() {
        let now = Instant::now();
        let beats = Beats { started: now, last: now, shortest: USUAL, stalls: Vec::new() };

        assert_eq!(beats.stall(now + BEAT), None);
        assert_eq!(beats.stall(now + BEAT + USUAL), None);
        assert_eq!(beats.stall(now + BEAT + STALL), Some(STALL));
    }

    #[test]
    fn a_stall_is_seen_while_it_lasts_and_afterwards() {
        let (sender, goes_on) = std::sync::mpsc::channel::<()>();
        let (heartbeats, heartbeat) = std::sync::mpsc::channel();
        let beats = observe(Processor::Any, USUAL, move || {
            heartbeats.send(()).unwrap_or_default();
            goes_on.recv().unwrap_or_default();
        });
        let (stalls, started) = (Stalls(vec![Arc::clone(&beats)]), Instant::now());

        // The heartbeat blocks the observer's thread, which may have started late.
        heartbeat.recv().unwrap();
        let before = lock(&beats).stalls.len();
        until(|| stalls.during(started.elapsed()).iter().sum::<Duration>() >= STALL * 2);
        assert_eq!(lock(&beats).stalls.len(), before, "it has ended already");
        drop(sender);
        until(|| lock(&beats).stalls.len() > before);
        assert!(stalls.during(started.elapsed()).into_iter().max().unwrap() >= STALL);
    }

    #[test]
    fn stalls_of_two_processors_at_the_same_time_are_one() {
        let (first, second) = (stalled(Duration::ZERO), stalled(STALL / 3));
        let both = Stalls([first.0, second.0].concat());

        assert_eq!(both.during(STALL * 2).len(), 1);
        let void = both.in_time("it", BOUND + STALL, BOUND).unwrap_err();
        assert!(void.stalled >= STALL * 5 / 4 && void.stalled < STALL * 3 / 2, "{void}");
        assert!(fails(|| both.in_time("it", BOUND + STALL * 3 / 2, BOUND)));
    }

    #[test]
    fn the_thread_ends_with_the_watch() {
        let (sender, ended) = std::sync::mpsc::channel::<()>();

        drop(Stalls::watch_with(move || {
            let _ = &sender;
        }));

        ended.recv().unwrap_err();
    }

    #[test]
    fn an_event_in_time_passes_in_spite_of_stalls() {
        assert_eq!(stalled(Duration::ZERO).in_time("it", BOUND, BOUND), Ok(()));
    }

    #[test]
    fn an_event_as_late_as_the_stalls_says_nothing() {
        let void = stalled(Duration::ZERO).in_time("it", BOUND + STALL, BOUND).unwrap_err();

        assert!(void.to_string().contains("it: the machine stalled for 300"), "{void}");
    }

    #[test]
    fn an_event_later_than_the_stalls_fails() {
        let stalls = stalled(Duration::ZERO);

        assert!(fails(|| stalls.in_time("it", BOUND + STALL * 2, BOUND)));
    }

    #[test]
    fn a_stall_before_the_event_was_due_explains_nothing() {
        let stalls = stalled(BOUND * 2);

        assert!(fails(|| stalls.in_time("it", BOUND * 2, BOUND)));
    }

    #[test]
    fn an_event_that_was_due_before_the_watch_fails() {
        let stalls = Stalls::watch();

        assert!(fails(|| stalls.in_time("it", BOUND * 2, BOUND)));
    }

    #[test]
    fn a_long_stall_spoils_a_steady_time() {
        let stalls = stalled(BOUND);

        assert_eq!(stalls.steady("it", BOUND * 2, STALL), Ok(()));
        assert_eq!(stalls.steady("it", BOUND / 2, STALL / 2), Ok(()), "it stalled before");
        assert!(stalls.steady("it", BOUND * 2, STALL / 2).is_err());
    }

    #[test]
    fn in_virtual_time_nothing_stalls() {
        assert_eq!(Stalls::none().in_time("it", BOUND, BOUND), Ok(()));
        assert!(fails(|| Stalls::none().in_time("it", BOUND * 2, BOUND)));
    }

    fn void() -> Void {
        Void { measured: "it".to_owned(), stalled: STALL }
    }

    #[tokio::test]
    async fn a_void_measurement_is_taken_again() {
        let taken = Cell::new(0);

        let third = measure(async || match taken.replace(taken.get() + 1) {
            2 => Ok("third"),
            _ => Err(void()),
        });

        assert_eq!(third.await, "third");
    }

    #[tokio::test]
    async fn three_void_measurements_are_a_failure() {
        let taken = Cell::new(0);

        let measured = measure(async || {
            taken.set(taken.get() + 1);
            Err::<(), _>(void())
        });
        let failure = AssertUnwindSafe(measured).catch_unwind().await.unwrap_err();

        assert!(failure.downcast_ref::<String>().unwrap().contains("stalls too often"));
        assert_eq!(taken.get(), 3);
    }

    #[tokio::test]
    async fn a_verdict_is_never_asked_for_twice() {
        let taken = Cell::new(0);

        let measured = measure(async || {
            taken.set(taken.get() + 1);
            stalled(Duration::ZERO).in_time("it", BOUND + STALL * 2, BOUND)
        });
        AssertUnwindSafe(measured).catch_unwind().await.unwrap_err();

        assert_eq!(taken.get(), 1);
    }
}
