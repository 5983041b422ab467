//! The clock of the store, as far as this process knows it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A reading of the store's clock, in microseconds since 1970. When the store replied, its clock
/// was between both values.
///
/// ```
/// use leasehold_cas::Reading;
///
/// assert_eq!(Reading::exact(7), Reading { earliest: 7, latest: 7 });
/// // The header `Date` of HTTP is rounded down to seconds.
/// assert_eq!(Reading::seconds(3), Reading { earliest: 3_000_000, latest: 3_999_999 });
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reading {
    /// The earliest possible time.
    pub earliest: i64,
    /// The latest possible time.
    pub latest: i64,
}

impl Reading {
    /// Returns the reading of a clock in microseconds.
    pub fn exact(micros: i64) -> Self {
        Self { earliest: micros, latest: micros }
    }

    /// Reads the clock of this machine, for a store that is a file or a service on the same
    /// machine.
    pub fn of_this_machine() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::exact(since.as_micros().try_into().unwrap_or(i64::MAX))
    }

    /// Returns the reading of a clock that shows whole seconds.
    pub fn seconds(seconds: i64) -> Self {
        let earliest = seconds.saturating_mul(1_000_000);
        Self { earliest, latest: earliest.saturating_add(999_999) }
    }
}

/// The rates of two clocks differ by at most 1 / `RATE`, which is half of the drift that the core
/// subtracts from the validity of a lease.
const RATE: i64 = 200;

/// How long after a reading the bounds are close enough to write an end without another reading.
/// With a TTL of up to 90 s, renewals do not read.
const FRESH: Duration = Duration::from_secs(30);

/// By how much an end may be too late because of the age of a reading.
pub(crate) const INEXACTNESS: Duration = Duration::from_millis(150);

/// The bounds of the store's clock. All times are in microseconds. Local times are on the clock of
/// this process.
///
/// Both bounds come from the best readings so far, so a clock that shows whole seconds becomes as
/// exact as a round trip after a few requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreClock {
    /// A local time, and the earliest store time at that time.
    low: Option<(i64, i64)>,
    /// A local time, and the latest store time at that time.
    high: Option<(i64, i64)>,
    last_read: Option<i64>,
}

impl StoreClock {
    /// Applies a reading from the reply to a request that was `sent` and whose reply was `received`
    /// at these local times.
    pub(crate) fn read(&mut self, reading: Reading, sent: i64, received: i64) {
        self.last_read = Some(received);
        if self.low_at(received).is_none_or(|low| low < reading.earliest) {
            self.low = Some((received, reading.earliest));
        }
        if self.high_at(sent).is_none_or(|high| high > reading.latest) {
            self.high = Some((sent, reading.latest));
        }
    }

    /// Returns whether the clock was read recently.
    pub(crate) fn is_fresh(&self, now: i64) -> bool {
        let elapsed = self.last_read.and_then(|last| u64::try_from(now - last).ok());
        elapsed.is_some_and(|elapsed| Duration::from_micros(elapsed) < FRESH)
    }

    /// Returns the earliest and the latest store time at a local time, if the clock was read.
    pub(crate) fn bounds(&self, now: i64) -> Option<(i64, i64)> {
        Some((self.low_at(now)?, self.high_at(now)?))
    }

    fn low_at(&self, now: i64) -> Option<i64> {
        let (read, low) = self.low?;
        let elapsed = now - read;
        Some(low + elapsed - drift(elapsed))
    }

    fn high_at(&self, now: i64) -> Option<i64> {
        let (read, high) = self.high?;
        let elapsed = now - read;
        Some(high + elapsed + drift(elapsed))
    }
}

/// Returns by how much two clocks can differ after this time.
fn drift(elapsed: i64) -> i64 {
    elapsed.abs() / RATE + i64::from(elapsed % RATE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_contain_the_time_of_the_store() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.bounds(0), None);

        clock.read(Reading::exact(1_000), 100, 200);

        let (low, high) = clock.bounds(200).unwrap();
        assert!(low <= 1_000 && (1_100..=1_101).contains(&high), "{low} to {high}");
    }

    #[test]
    fn a_clock_with_whole_seconds_becomes_as_exact_as_a_round_trip() {
        let mut clock = StoreClock::default();
        for local in (0..3_000_000).step_by(10_000) {
            // The store is ahead by 400 ms, and a round trip takes 2 ms.
            clock.read(Reading::seconds((local + 401_000) / 1_000_000), local, local + 2_000);
        }

        let (low, high) = clock.bounds(3_000_000).unwrap();

        assert!(low <= 3_400_000 && 3_400_000 <= high, "{low} to {high}");
        assert!(high - low < 50_000, "{low} to {high}");
    }

    #[test]
    fn old_readings_are_less_exact() {
        let mut clock = StoreClock::default();
        clock.read(Reading::exact(0), 0, 0);

        assert_eq!(clock.bounds(200_000), Some((199_000, 201_000)));
        let (_, latest) = clock.bounds(30_000_000).unwrap();
        assert_eq!(u128::try_from(latest - 30_000_000), Ok(INEXACTNESS.as_micros()));
        assert!(clock.is_fresh(29_999_999) && !clock.is_fresh(30_000_000));
    }
}
