//! Verdicts about time that a machine which stalls cannot spoil.
//!
//! Threads note when the machine does not let them run. A verdict about time compares with that: an event in time has
//! passed, an event later than the stalls explain has failed, and any other measurement is [`Void`] and taken again.
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

/// Short beside the bounds of verdicts, long beside the work of a beat: a watched test costs half a percent of a core.
const BEAT: Duration = Duration::from_millis(5);

/// A sleep that ends this much late is none the worse for that: timers are coarse.
const USUAL: Duration = Duration::from_millis(1);

/// An event later than this will not come.
const PATIENCE: Duration = Duration::from_secs(10);

/// More would hide an unfit machine, and a flaw that shows at times.
const MEASUREMENTS: usize = 3;

/// The stalls of a machine, for as long as it is watched.
///
/// One thread for each processor, and one for the server, sleep for 5 ms at a time, and note how late they wake. A
/// processor that is taken away delays only the threads that wait for it, so a thread that runs on another one notices nothing. All watches
/// of a process share the threads of the processors, which end with the last of them.
#[derive(Debug)]
pub struct Stalls(Vec<Witness>);

/// The notes of a thread.
type Witness = Arc<Mutex<Beats>>;

/// The threads of the processors, one for each.
static PROCESSORS: Mutex<Vec<Weak<Mutex<Beats>>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Beats {
    started: Instant,
    last: Instant,
    /// A shorter stall is not noted.
    shortest: Duration,
    /// When each stall ended, and how long it was.
    stalls: Vec<(Instant, Duration)>,
}

/// A measurement that says nothing: the machine stalled meanwhile.
#[must_use = "a void measurement is to be taken again"]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Void {
    pub(crate) measured: String,
    pub(crate) stalled: Duration,
}

/// The end of a measurement that did not fail.
pub type Measured<T = ()> = Result<T, Void>;

/// The ways in which a case may end without a failure: only a case that measures time may be void.
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
    /// Watches the machine.
    ///
    /// # Panics
    ///
    /// If a thread cannot be started.
    pub fn watch() -> Self {
        Self::watch_with(|| {})
    }

    /// The same, and has the thread call `pulse` after each sleep. A pulse asks a server for a reply, so that the stalls of the server count,
    /// too.
    ///
    /// # Panics
    ///
    /// If a thread cannot be started.
    pub fn watch_with(pulse: impl FnMut() + Send + 'static) -> Self {
        let mut witnesses = shared();
        witnesses.push(witness(Processor::Any, USUAL, pulse));
        Self(witnesses)
    }

    /// Watches the processors alone, of which a server may have others.
    pub(crate) fn watch_processors() -> Self {
        Self(shared())
    }

    /// Watches the machine for stalls that are longer than `shortest`: of a watch that goes on for hours, those are few.
    #[cfg(all(feature = "history", target_os = "linux"))]
    pub(crate) fn watch_those_over(
        shortest: Duration,
        pulse: impl FnMut() + Send + 'static,
    ) -> Self {
        let mut witnesses = of_processors(shortest);
        witnesses.push(witness(Processor::Any, shortest, pulse));
        Self(witnesses)
    }

    /// Watches nothing: in virtual time nothing stalls.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Judges an event that came just now, `took` after it was due, and was to come within `bound`.
    ///
    /// # Errors
    ///
    /// [`Void`] if it came late, and the machine stalled for that long since it was due.
    ///
    /// # Panics
    ///
    /// If it came later than that, or was due before the machine was watched.
    pub fn in_time(&self, event: impl fmt::Display, took: Duration, bound: Duration) -> Measured {
        let late = took.saturating_sub(bound);
        let stalled = self.during(took).iter().sum();
        if late.is_zero() {
            return Ok(());
        }
        assert!(
            late <= stalled,
            "{event}: after {took:?} and not {bound:?}, {stalled:?} of stalls"
        );
        Err(Void { measured: event.to_string(), stalled })
    }

    /// Waits for an event that is due now and is to come within `bound`, and judges when it comes.
    ///
    /// # Errors
    ///
    /// [`Void`] if it came late, and the machine stalled for that long meanwhile.
    ///
    /// # Panics
    ///
    /// If it came later than that, or did not come within ten seconds more.
    pub async fn promptly<T>(
        &self,
        event: impl fmt::Display,
        bound: Duration,
        future: impl Future<Output = T>,
    ) -> Measured<T> {
        let due = Instant::now();
        let came = timeout(bound + PATIENCE, future).await;
        self.in_time(&event, due.elapsed(), bound)?;
        Ok(came.unwrap_or_else(|_| panic!("{event}: not at all")))
    }

    /// Says whether the machine was fit to keep something alive, such as a lease, for the last `time`: it did not stall for longer
    /// than `limit` at once.
    ///
    /// # Errors
    ///
    /// [`Void`] if it did.
    ///
    /// # Panics
    ///
    /// If the machine was not watched for that time.
    pub fn steady(&self, event: impl fmt::Display, time: Duration, limit: Duration) -> Measured {
        let stalled = self.during(time).into_iter().max().unwrap_or_default();
        if stalled <= limit { Ok(()) } else { Err(Void { measured: event.to_string(), stalled }) }
    }

    /// How long the machine stalled in all between two times, of which the second is not to come.
    pub(crate) fn between(&self, began: Instant, ended: Instant) -> Duration {
        let now = Instant::now();
        let (from, until) = (now - began, now - ended);
        let spans = self.spans(now, from).into_iter();
        spans.map(|(end, start)| start.saturating_sub(end.max(until))).sum()
    }

    /// The stalls during the last `time`, and the one that goes on. Stalls at the same time are one.
    fn during(&self, time: Duration) -> Vec<Duration> {
        let now = Instant::now();
        for beats in &self.0 {
            let watched = now - lock(beats).started;
            assert!(time <= watched + USUAL, "{time:?} are judged, and {watched:?} were watched");
        }
        self.spans(now, time).into_iter().map(|(end, start)| start - end).collect()
    }

    /// All stalls so far: how long ago each ended, and how long ago it began.
    #[cfg(all(feature = "history", target_os = "linux"))]
    pub(crate) fn all(&self) -> Vec<(Duration, Duration)> {
        self.spans(Instant::now(), Duration::MAX)
    }

    /// A machine that had one stall of `length`, which ended just now, in the `time` for which it is watched.
    #[cfg(test)]
    pub(crate) fn of_one(time: Duration, length: Duration) -> Self {
        let now = Instant::now();
        let stalls = vec![(now, length)];
        let beats = Beats { started: now - time, last: now, shortest: USUAL, stalls };
        Self(vec![Arc::new(Mutex::new(beats))])
    }

    /// The stalls during the last `time`, as times before now: the end of each, and its start. Stalls at the same time are one.
    fn spans(&self, now: Instant, time: Duration) -> Vec<(Duration, Duration)> {
        let mut stalls = Vec::new();
        for beats in &self.0 {
            let beats = lock(beats);
            let goes_on = beats.stall(now).map(|stall| (now, stall));
            let ended = beats.stalls.iter().filter(|(ended, _)| now - *ended < time).copied();
            // As times before now, so that the order is that of their ends, latest first.
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

/// The spans that sorted spans cover together.
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

/// The witnesses of the processors that all watches share.
fn shared() -> Vec<Witness> {
    let mut known = PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner);
    let witnesses: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
    if !witnesses.is_empty() && witnesses.len() == known.len() {
        return witnesses;
    }
    let witnesses = of_processors(USUAL);
    *known = witnesses.iter().map(Arc::downgrade).collect();
    witnesses
}

fn of_processors(shortest: Duration) -> Vec<Witness> {
    processors().into_iter().map(|processor| witness(processor, shortest, || {})).collect()
}

/// Has a thread of its own sleep, call `pulse`, and note how late it wakes.
fn witness(
    processor: Processor,
    shortest: Duration,
    mut pulse: impl FnMut() + Send + 'static,
) -> Witness {
    let now = Instant::now();
    let beats = Beats { started: now, last: now, shortest, stalls: Vec::new() };
    let beats = Arc::new(Mutex::new(beats));
    let watched = Arc::downgrade(&beats);
    let watch = move || {
        processor.keep();
        while beat(&watched) {
            thread::sleep(BEAT);
            pulse();
        }
    };
    let watch = thread::Builder::new().name("stalls".to_owned()).spawn(watch);
    watch.expect("a thread can be started");
    beats
}

/// Notes that the thread runs; `false` if nothing is watched any more.
fn beat(watched: &Weak<Mutex<Beats>>) -> bool {
    let Some(beats) = watched.upgrade() else { return false };
    let (now, mut beats) = (Instant::now(), lock(&beats));
    let stall = beats.stall(now);
    beats.stalls.extend(stall.map(|stall| (now, stall)));
    beats.last = now;
    true
}

impl Beats {
    /// How late the next beat is.
    fn stall(&self, now: Instant) -> Option<Duration> {
        let late = now.saturating_duration_since(self.last).saturating_sub(BEAT);
        (late > self.shortest).then_some(late)
    }
}

fn lock(beats: &Mutex<Beats>) -> MutexGuard<'_, Beats> {
    beats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a measurement, and takes it again if it is void, three times at most.
///
/// A verdict is never asked for twice: a measurement that fails panics. Each void one is told of on standard error, and in the file that the
/// environment variable `LEASEHOLD_CONFORMANCE_LOG` names, if it does.
///
/// # Panics
///
/// If the measurement does, or is void each time: the machine is unfit.
pub async fn measure<T>(measurement: impl AsyncFn() -> Measured<T>) -> T {
    let mut voids = Vec::new();
    while voids.len() < MEASUREMENTS {
        match measurement().await {
            Ok(measured) => return measured,
            Err(void) => voids.push(log_void(void)),
        }
    }
    panic!("the machine is unfit to measure time: {voids:?}")
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

    /// A machine that is watched for a minute and had one stall, which ended so long ago.
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

    /// Waits in real time: the thread of a witness knows no other.
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
        let (pulses, pulse) = std::sync::mpsc::channel();
        let beats = witness(Processor::Any, USUAL, move || {
            pulses.send(()).unwrap_or_default();
            goes_on.recv().unwrap_or_default();
        });
        let (stalls, started) = (Stalls(vec![Arc::clone(&beats)]), Instant::now());

        // Its pulse keeps the thread from running on, which may have begun late.
        pulse.recv().unwrap();
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

        assert!(failure.downcast_ref::<String>().unwrap().contains("unfit"));
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
