//! A clock that a test advances.

use std::collections::BTreeMap;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Clock, Instant, Sleep};

/// A clock for tests that advances only when a test calls [`advance`](Self::advance). Clones share
/// the time.
///
/// In contrast to [`TokioClock`](super::TokioClock), this clock does not need a paused runtime, and
/// several runtimes can share the clock. In a conformance test, this clock can be the clock of an
/// embedded store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold_core::backend::{Claim, Lease, LockBackend, Renewal};
/// use leasehold_core::clock::ManualClock;
/// use leasehold_core::LockKey;
/// use leasehold_core::memory::MemoryBackend;
///
/// let clock = ManualClock::new();
/// let store = MemoryBackend::with_clock(clock.clone());
/// let lease = Lease::new(&LockKey::new("invoice:42")?, Duration::from_secs(10));
/// store.acquire(&Claim::new(lease.clone())).await?;
///
/// clock.advance(Duration::from_secs(9));
/// assert_eq!(store.renew(&lease).await?, Renewal::Renewed);
/// clock.advance(Duration::from_secs(10));
/// assert_eq!(store.renew(&lease).await?, Renewal::Vanished);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified of each new timer.
    added: Notify,
}

#[derive(Debug)]
struct State {
    now: Instant,
    /// The number of timers that were created.
    timers: u64,
    waiting: BTreeMap<Timer, Waker>,
}

/// The time when a timer is due, and the timer's number.
type Timer = (Instant, u64);

impl ManualClock {
    /// Creates a clock that starts at zero.
    pub fn new() -> Self {
        let now = Instant::from_zero(Duration::ZERO);
        let state = State { now, timers: 0, waiting: BTreeMap::new() };
        Self(Arc::new(Shared { state: Mutex::new(state), added: Notify::new() }))
    }

    /// Advances the clock and wakes the timers that are due.
    pub fn advance(&self, by: Duration) {
        self.skip(by);
        let due = {
            let mut state = self.state();
            let later = (state.now + Duration::from_nanos(1), 0);
            let later = state.waiting.split_off(&later);
            mem::replace(&mut state.waiting, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Advances the clock without waking the timers that are due, as if the process had been
    /// paused. The next call of [`advance`](Self::advance) wakes these timers, even if that call
    /// advances the clock by zero.
    pub fn skip(&self, by: Duration) {
        let mut state = self.state();
        state.now = state.now + by;
    }

    /// Waits until a task waits for a timer, and returns the time when the first timer is due.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn next_timer(&self) -> Instant {
        loop {
            let added = self.0.added.notified();
            let first = self.state().waiting.first_key_value().map(|(&(due, _), _)| due);
            if let Some(due) = first {
                return due;
            }
            added.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.state().now
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        if deadline == Instant::FAR_FUTURE {
            return Box::pin(std::future::pending());
        }
        let mut state = self.state();
        state.timers += 1;
        Box::pin(Sleeping { clock: self.clone(), timer: (deadline, state.timers) })
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

struct Sleeping {
    clock: ManualClock,
    timer: Timer,
}

impl Future for Sleeping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        let is_due = state.now >= self.timer.0;
        let earlier = if is_due {
            state.waiting.remove(&self.timer)
        } else {
            state.waiting.insert(self.timer, cx.waker().clone())
        };
        drop(state);
        // Dropping a waker may run arbitrary code, so the clock must not be locked here.
        drop(earlier);
        if is_due {
            return Poll::Ready(());
        }
        self.clock.0.added.notify_waiters();
        Poll::Pending
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let waker = self.clock.state().waiting.remove(&self.timer);
        // The clock must not be locked here, as in `poll`.
        drop(waker);
    }
}
