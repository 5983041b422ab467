//! The clocks of clients and stores.

use std::time::Duration;

use leasehold_core::clock::{Clock, Instant, Sleep};
use tokio::time;

use crate::processor::Processor;

/// The rate of a clock, off by some millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    ppm: i64,
}

impl Rate {
    /// By how much each clock may be off if any two may differ by the promised 1 %, less the rounding of rates.
    pub(crate) const WITHIN: i64 = 4_950;

    pub(crate) fn new(ppm: i64) -> Self {
        Self { ppm }
    }

    /// The time that the clock shows after some time.
    pub(crate) fn shown_after(self, elapsed: Duration) -> Duration {
        scaled(elapsed, 1_000_000 + self.ppm, 1_000_000)
    }

    /// The first time, in the simulation's time, at which the clock shows `shown`.
    fn reaches(self, shown: Duration) -> Duration {
        let nanos =
            (shown.as_nanos() * 1_000_000).div_ceil((1_000_000 + self.ppm).unsigned_abs().into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn elapsed_until(self, shown: Duration) -> Duration {
        scaled(shown, 1_000_000, 1_000_000 + self.ppm)
    }
}

/// A client's clock, which continues while the process is paused, but does not wake the tasks of the process.
#[derive(Clone, Debug)]
pub(crate) struct DriftingClock {
    zero: time::Instant,
    rate: Rate,
    processor: Processor,
}

impl DriftingClock {
    pub(crate) fn new(zero: time::Instant, rate: Rate, processor: Processor) -> Self {
        Self { zero, rate, processor }
    }

    /// The time of the simulation at which the clock shows an instant.
    pub(crate) fn reaches(&self, instant: Instant) -> Duration {
        self.time_of(instant.since(Instant::from_zero(Duration::ZERO)))
    }

    /// The time in the simulation during which the clock advances by `shown`.
    pub(crate) fn time_of(&self, shown: Duration) -> Duration {
        self.rate.reaches(shown)
    }

    pub(crate) fn processor(&self) -> &Processor {
        &self.processor
    }
}

impl Clock for DriftingClock {
    fn now(&self) -> Instant {
        Instant::from_zero(self.rate.shown_after(self.zero.elapsed()))
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let clock = self.clone();
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
                let left = clock.rate.elapsed_until(left).max(Duration::from_millis(1));
                clock.processor.sleep(left).await;
            }
        })
    }

    fn is_real_time(&self) -> bool {
        false
    }
}

fn scaled(time: Duration, by: i64, of: i64) -> Duration {
    let nanos = time.as_nanos() * u128::from(by.unsigned_abs()) / u128::from(of.unsigned_abs());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
