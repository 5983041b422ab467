//! A clock that jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant, Sleep, TokioClock};

/// Tokio's time, and all jumps so far on top.
#[derive(Clone, Debug)]
pub(crate) struct Jumping {
    clock: TokioClock,
    ahead_ms: Arc<AtomicU64>,
}

impl Jumping {
    pub(crate) fn new() -> Self {
        Self { clock: TokioClock::new(), ahead_ms: Arc::default() }
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.ahead_ms.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        self.clock.now() + self.ahead()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.clock.sleep_until(deadline - self.ahead())
    }
}
