//! The clock that the driver advances.

use std::collections::BTreeMap;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant, Sleep};
use tokio::sync::Notify;

/// A clock that does not advance on its own. Clones share the clock.
#[derive(Clone, Debug)]
pub(crate) struct DrivenClock(Arc<Shared>);

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

impl DrivenClock {
    pub(crate) fn new() -> Self {
        let now = Instant::from_zero(Duration::ZERO);
        let state = State { now, timers: 0, waiting: BTreeMap::new() };
        Self(Arc::new(Shared { state: Mutex::new(state), added: Notify::new() }))
    }

    /// Waits until there is a timer.
    pub(crate) async fn has_timer(&self) {
        loop {
            let added = self.0.added.notified();
            if self.next_timer().is_some() {
                return;
            }
            added.await;
        }
    }

    /// Returns the time when the first timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.state().waiting.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Advances the clock without waking the timers that are due.
    pub(crate) fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.now = state.now + by;
    }

    /// Wakes the timers that are due.
    pub(crate) fn wake(&self) {
        let due = {
            let mut state = self.state();
            let later = (state.now + Duration::from_nanos(1), 0);
            let later = state.waiting.split_off(&later);
            mem::replace(&mut state.waiting, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for DrivenClock {
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
    clock: DrivenClock,
    timer: Timer,
}

impl Future for Sleeping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.now >= self.timer.0 {
            state.waiting.remove(&self.timer);
            return Poll::Ready(());
        }
        state.waiting.insert(self.timer, cx.waker().clone());
        drop(state);
        self.clock.0.added.notify_waiters();
        Poll::Pending
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let waker = self.clock.state().waiting.remove(&self.timer);
        // Dropping a waker may run arbitrary code, so the clock must not be locked here.
        drop(waker);
    }
}
