//! Local time, as deadlines are counted.

use std::fmt::Debug;
use std::future::poll_fn;
use std::ops::{Add, Sub};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

/// A point in time on a [`Clock`], for example the [deadline](crate::LockGuard::deadline) of a lease.
///
/// Instants of different clocks cannot be compared with each other. For the time that is left, use
/// [`LockGuard::remaining`](crate::LockGuard::remaining), which returns a [`Duration`].
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let end = client.now() + Duration::from_secs(2);
/// assert!(end.since(client.now()) <= Duration::from_secs(2));
/// ```
///
/// # Why not `std::time::Instant`
///
/// - On Linux, `std::time::Instant` reads `CLOCK_MONOTONIC`, which stands still while the machine is suspended. The store's clock does not
///   stand still, so a holder would wake up and consider an expired lease valid. [`SystemClock`] reads `CLOCK_BOOTTIME`, which counts the
///   suspension.
/// - Only the operating system can create a `std::time::Instant`. Tests could not drive time: neither with tokio's paused clock
///   ([`TokioClock`]) nor with a clock of their own.
/// - Sums of this type saturate. `std::time::Instant` panics if a caller waits for [`Duration::MAX`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant {
    /// Since the clock's zero: enough for 584 years.
    nanos: u64,
}

impl Instant {
    /// Later than every instant that can be reached by waiting.
    pub const FAR_FUTURE: Self = Self { nanos: u64::MAX };

    /// Creates the instant that is `elapsed` after the clock's zero, for implementations of [`Clock`].
    pub const fn from_zero(elapsed: Duration) -> Self {
        Self { nanos: nanos(elapsed) }
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }

    /// The last multiple of `step` since the clock's zero that is not after this.
    pub(crate) fn rounded_down(self, step: Duration) -> Self {
        let past = self.nanos.checked_rem(nanos(step)).unwrap_or_default();
        Self { nanos: self.nanos - past }
    }
}

/// Saturates.
const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// Saturates at [`Instant::FAR_FUTURE`].
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self { nanos: self.nanos.saturating_add(nanos(duration)) }
    }
}

/// Saturates at the clock's zero.
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self { nanos: self.nanos.saturating_sub(nanos(duration)) }
    }
}

/// A future that ends when a clock has reached an instant.
///
/// See [`TokioClock`] for an example.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The source of deadlines and of timed waits; a trait so that tests can drive time.
///
/// It must never go back, must count the time that the machine is suspended, and must run at the
/// rate of real time to well within 1 %, which is the drift that deadlines allow for.
///
/// See [`TokioClock`] for an example.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;

    /// Waits until [`Clock::now`] is at `deadline` or past it.
    fn sleep_until(&self, deadline: Instant) -> Sleep;

    /// The time of day since 1970, which shows a pause of the whole machine that [`Clock::now`] does not count. `None` if it shows nothing.
    ///
    /// It may be set at any time. The client compares how far both have advanced.
    fn time_of_day(&self) -> Option<Duration> {
        None
    }

    /// Whether it runs by itself. A clock that tests drive says no: then no drop waits in real time for a release, and leases that
    /// the last runtime leaves behind end by their TTL.
    fn is_real_time(&self) -> bool {
        true
    }
}

/// A shared clock is a clock.
impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        (**self).sleep_until(deadline)
    }

    fn time_of_day(&self) -> Option<Duration> {
        (**self).time_of_day()
    }

    fn is_real_time(&self) -> bool {
        (**self).is_real_time()
    }
}

/// The machine's own clock: on Linux `CLOCK_BOOTTIME`, which goes on while the machine is suspended.
///
/// Elsewhere it is [`std::time::Instant`], which on some systems stands still during a suspension;
/// there a lease may seem held for as long as the machine slept. No clock of a machine counts a pause by its hypervisor, which only the
/// [time of day](Clock::time_of_day) shows.
///
/// See [`TokioClock`] for an example.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The longest sleep before the clock is read again.
    ///
    /// Timers stand still while a machine is suspended, so after it wakes a deadline that has passed
    /// is noticed within this time. (Every check by a guard reads the clock itself.)
    const SLICE: Duration = Duration::from_secs(1);
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::from_zero(since_boot())
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        Box::pin(async move {
            if deadline == Instant::FAR_FUTURE {
                return std::future::pending().await;
            }
            loop {
                let left = deadline.since(Self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(Self::SLICE)).await;
            }
        })
    }

    fn time_of_day(&self) -> Option<Duration> {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.try_into().expect("the time since boot is not negative")
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static ZERO: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);

    ZERO.elapsed()
}

/// Tokio's clock, for tests: `tokio::time::pause` stops it and `advance` drives it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold_core::clock::{Clock, TokioClock};
///
/// let clock = TokioClock::new();
/// let before = clock.now();
/// tokio::time::advance(Duration::from_secs(3_600)).await;
/// assert_eq!(clock.now().since(before), Duration::from_secs(3_600));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    zero: tokio::time::Instant,
}

impl TokioClock {
    /// Creates a clock whose zero is now.
    #[expect(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        Self { zero: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_zero(self.zero.elapsed())
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let zero = self.zero;
        Box::pin(async move {
            match zero.checked_add(Duration::from_nanos(deadline.nanos)) {
                Some(reached) if deadline < Instant::FAR_FUTURE => {
                    tokio::time::sleep_until(reached).await;
                }
                _ => std::future::pending().await,
            }
        })
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

/// Runs `future`, but no longer than until `deadline`: `None` means that it was dropped unfinished.
pub(crate) async fn until<F: Future>(
    clock: &dyn Clock,
    deadline: Instant,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    // A future that is ready at once, or that may take for ever, needs no timer.
    let mut sleep = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if deadline == Instant::FAR_FUTURE {
            return Poll::Pending;
        }
        let sleep = sleep.get_or_insert_with(|| clock.sleep_until(deadline));
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}
