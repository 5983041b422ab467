//! Clocks, from which deadlines are computed.

mod manual;

use std::fmt::Debug;
use std::future::poll_fn;
use std::ops::{Add, Sub};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

pub use self::manual::ManualClock;
use crate::contract::backend::entry::StoreTime;

/// A point in time, as measured by a [`Clock`]. Instants from different clocks cannot be compared.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::clock::Instant;
///
/// let start = Instant::from_zero(Duration::from_secs(5));
/// let later = start + Duration::from_secs(2);
/// assert_eq!(later.since(start), Duration::from_secs(2));
/// assert_eq!(start.since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant {
    /// Nanoseconds since the clock's zero. A `u64` is enough for 584 years.
    nanos: u64,
}

impl Instant {
    /// An instant so far in the future that it is never reached.
    pub const FAR_FUTURE: Self = Self { nanos: u64::MAX };

    /// The earliest instant.
    pub(crate) const ZERO: Self = Self { nanos: 0 };

    /// Creates the instant that is `elapsed` after the clock's zero.
    pub const fn from_zero(elapsed: Duration) -> Self {
        Self { nanos: nanos(elapsed) }
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later than this
    /// instant.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }

    /// Rounds this instant down to a multiple of `step` since the clock's zero.
    pub(crate) fn rounded_down(self, step: Duration) -> Self {
        let past = self.nanos.checked_rem(nanos(step)).unwrap_or_default();
        Self { nanos: self.nanos - past }
    }
}

/// Converts a duration to nanoseconds. The result is at most `u64::MAX`.
const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

impl StoreTime for Instant {
    fn after(self, duration: Duration) -> Self {
        self + duration
    }

    fn since(self, earlier: Self) -> Duration {
        Self::since(self, earlier)
    }
}

/// The sum is never later than [`Instant::FAR_FUTURE`].
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self { nanos: self.nanos.saturating_add(nanos(duration)) }
    }
}

/// The difference is never earlier than the clock's zero.
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self { nanos: self.nanos.saturating_sub(nanos(duration)) }
    }
}

/// A future that resolves when a clock has reached an instant, as returned by
/// [`Clock::sleep_until`].
///
/// See [`TokioClock`] for an example.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time for deadlines and timed waits. Tests can implement this trait to control time.
///
/// A clock must never go backwards, and must include the time during which the machine is
/// suspended. A clock's drift from real time must be well under 1 %, because deadlines allow for a
/// drift of 1 %.
///
/// See [`TokioClock`] for an example in which a test advances the clock.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Waits until [`Clock::now`] has reached `deadline`.
    fn sleep_until(&self, deadline: Instant) -> Sleep;

    /// Returns the wall-clock time since 1970, or `None` if the clock does not provide it.
    ///
    /// The client uses the wall-clock time to detect a pause of the whole machine, which
    /// [`Clock::now`] does not include. The client only compares how far the two times have
    /// advanced, so the wall-clock time may be adjusted at any time.
    fn time_of_day(&self) -> Option<Duration> {
        None
    }

    /// Returns whether the clock advances automatically. Return `false` for a clock that is
    /// controlled by tests.
    ///
    /// If this method returns `false`, dropping a guard never waits for the release of the lease.
    /// When the last runtime shuts down, leases that have not been released expire after their TTL.
    fn is_real_time(&self) -> bool {
        true
    }
}

/// A clock in an `Arc` behaves like the clock itself.
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

/// The machine's clock. On Linux, this clock reads `CLOCK_BOOTTIME`, which includes the time during
/// which the machine is suspended.
///
/// On other systems, this clock reads [`std::time::Instant`], which may stop while the machine is
/// suspended. If the clock stops during a suspension, an expired lease may afterwards appear to be
/// held for as long as the machine was suspended. On all systems, the clock stops while a
/// hypervisor pauses the machine. Only the [wall-clock time](Clock::time_of_day) reveals that a
/// hypervisor paused the machine.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::clock::{Clock, SystemClock};
///
/// let before = SystemClock.now();
/// std::thread::sleep(Duration::from_millis(1));
/// assert!(SystemClock.now().since(before) >= Duration::from_millis(1));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The maximum time to sleep before the clock is read again.
    ///
    /// Timers stop while a machine is suspended. With this limit, a sleep whose deadline passed
    /// during the suspension ends soon after the machine wakes up. Guards do not depend on the
    /// limit, because they read the clock at every check.
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

/// Tokio's clock, for tests. A test can stop the clock with `tokio::time::pause` and advance it
/// with `tokio::time::advance`.
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
    /// Creates a clock that starts at zero.
    #[expect(clippy::new_without_default, reason = "two default values would differ")]
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

/// Runs `future` until `deadline`. If the deadline passes first, drops the future and returns
/// `None`.
///
/// # Cancel safety
///
/// This function is as cancel safe as `future`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::future::pending;
/// use std::time::Duration;
///
/// use leasehold_core::clock::{Clock, SystemClock, until};
///
/// let deadline = SystemClock.now() + Duration::from_millis(1);
/// assert_eq!(until(&SystemClock, deadline, pending::<()>()).await, None);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn until<F: Future>(
    clock: &dyn Clock,
    deadline: Instant,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    // The timer is created at the first `Pending`, because most futures are ready immediately.
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
