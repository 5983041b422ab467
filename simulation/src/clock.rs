//! A client's clock.

use std::time::Duration;

use leasehold_core::clock::{Clock, Instant, Sleep};
use tokio::time;

/// A clock that runs at a rate of its own, off by some millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriftingClock {
    zero: time::Instant,
    ppm: i64,
}

impl DriftingClock {
    /// The largest drift within which the layers promise exclusion: 1 % of the TTL, less the rounding of rates.
    pub(crate) const WITHIN: i64 = 9_900;

    pub(crate) fn new(zero: time::Instant, ppm: i64) -> Self {
        Self { zero, ppm }
    }

    fn shown_after(&self, elapsed: Duration) -> Duration {
        scaled(elapsed, 1_000_000 + self.ppm, 1_000_000)
    }

    fn elapsed_until(&self, shown: Duration) -> Duration {
        scaled(shown, 1_000_000, 1_000_000 + self.ppm)
    }
}

impl Clock for DriftingClock {
    fn now(&self) -> Instant {
        Instant::from_zero(self.shown_after(self.zero.elapsed()))
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let clock = *self;
        Box::pin(async move {
            if deadline == Instant::FAR_FUTURE {
                return std::future::pending().await;
            }
            loop {
                let left = deadline.since(clock.now());
                if left.is_zero() {
                    return;
                }
                // Never so short that rounding makes the loop busy.
                time::sleep(clock.elapsed_until(left).max(Duration::from_millis(1))).await;
            }
        })
    }
}

fn scaled(time: Duration, by: i64, of: i64) -> Duration {
    let nanos = time.as_nanos() * u128::from(by.unsigned_abs()) / u128::from(of.unsigned_abs());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
