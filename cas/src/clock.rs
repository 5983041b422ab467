//! The clock of the store, as far as this process knows it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::clock::{Clock, Instant};

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

    /// Reads a clock of Leasehold, such as the
    /// [`ManualClock`](leasehold_core::clock::ManualClock) of a test.
    pub fn of(clock: &dyn Clock) -> Self {
        Self::exact(micros(clock))
    }

    /// Returns the reading of a clock that shows whole seconds.
    pub fn seconds(seconds: i64) -> Self {
        let earliest = seconds.saturating_mul(1_000_000);
        Self { earliest, latest: earliest.saturating_add(999_999) }
    }
}

/// Returns the microseconds since the clock's zero.
pub(crate) fn micros(clock: &dyn Clock) -> i64 {
    let since = clock.now().since(Instant::from_zero(Duration::ZERO));
    since.as_micros().try_into().unwrap_or(i64::MAX)
}

/// The rates of two clocks differ by at most 1 / `RATE`, which is half of the drift that the core
/// subtracts from the validity of a lease.
const RATE: u32 = 200;

/// How long after a reading the bounds are close enough to write an end without another reading.
/// With a TTL of up to 90 s, renewals do not read.
const FRESH: Duration = Duration::from_secs(30);

/// By how much an end may be too late because of the age of a reading.
pub(crate) const INEXACTNESS: Duration = FRESH.checked_div(RATE).expect("it is not zero");

/// The bounds of the store's clock. All times are in microseconds. Local times are on the clock of
/// this process.
///
/// Both bounds come from the best readings so far, so a clock that shows whole seconds becomes as
/// exact as a round trip after a few requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreClock {
    /// The maximum difference between two clocks of the store.
    pub(crate) skew: i64,
    /// A local time, and the earliest store time at that time.
    low: Option<(i64, i64)>,
    /// A local time, and the latest store time at that time.
    high: Option<(i64, i64)>,
    last_read: Option<i64>,
}

impl StoreClock {
    pub(crate) fn new(skew: i64) -> Self {
        Self { skew, ..Self::default() }
    }

    /// Applies a reading from the reply to a request that was `sent` and whose reply was
    /// `received` at these local times.
    pub(crate) fn read(&mut self, reading: Reading, sent: i64, received: i64) {
        self.last_read = Some(received);
        let (at_request, at_reply) = (self.bounds_at(sent), self.bounds_at(received));
        let is_behind =
            at_request.is_some_and(|(low, _)| low.saturating_sub(self.skew) > reading.latest);
        if is_behind || at_reply.is_none_or(|(low, _)| low < reading.earliest) {
            self.low = Some((received, reading.earliest));
        }
        let is_ahead = self.is_behind_of(reading, received);
        if is_ahead || at_request.is_none_or(|(_, high)| high > reading.latest) {
            self.high = Some((sent, reading.latest));
        }
    }

    /// Returns whether a reading in a reply that was `received` at this local time is later than
    /// all times that the bounds permit.
    pub(crate) fn is_behind_of(&self, reading: Reading, received: i64) -> bool {
        self.bounds_at(received)
            .is_some_and(|(_, high)| high.saturating_add(self.skew) < reading.earliest)
    }

    /// Returns whether the clock was read recently.
    pub(crate) fn is_fresh(&self, now: i64) -> bool {
        let elapsed = self.last_read.and_then(|last| u64::try_from(now - last).ok());
        elapsed.is_some_and(|elapsed| Duration::from_micros(elapsed) < FRESH)
    }

    /// Returns the earliest and the latest store time at a local time, if the clock was read.
    pub(crate) fn bounds_at(&self, now: i64) -> Option<(i64, i64)> {
        let ((low_read, low), (high_read, high)) = (self.low?, self.high?);
        let (since_low, since_high) = (now - low_read, now - high_read);
        let low = low.saturating_add(since_low).saturating_sub(drift(since_low));
        let high = high.saturating_add(since_high).saturating_add(drift(since_high));
        Some((low, high))
    }
}

/// Returns by how much two clocks can differ after this time.
fn drift(elapsed: i64) -> i64 {
    let rate = i64::from(RATE);
    elapsed.abs() / rate + i64::from(elapsed % rate != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_contain_the_time_of_the_store() {
        let mut clock = StoreClock::default();
        assert_eq!(clock.bounds_at(0), None);

        clock.read(Reading::exact(1_000), 100, 200);

        let (low, high) = clock.bounds_at(200).unwrap();
        assert!(low <= 1_000 && (1_100..=1_101).contains(&high), "{low} to {high}");
    }

    #[test]
    fn a_clock_with_whole_seconds_becomes_as_exact_as_a_round_trip() {
        let mut clock = StoreClock::default();
        for local in (0..3_000_000).step_by(10_000) {
            // The store is ahead by 400 ms, and a round trip takes 2 ms.
            clock.read(Reading::seconds((local + 401_000) / 1_000_000), local, local + 2_000);
        }

        let (low, high) = clock.bounds_at(3_000_000).unwrap();

        assert!(low <= 3_400_000 && 3_400_000 <= high, "{low} to {high}");
        assert!(high - low < 50_000, "{low} to {high}");
    }

    #[test]
    fn old_readings_are_less_exact() {
        let mut clock = StoreClock::default();
        clock.read(Reading::exact(0), 0, 0);

        assert_eq!(clock.bounds_at(200_000), Some((199_000, 201_000)));
        let (_, latest) = clock.bounds_at(30_000_000).unwrap();
        assert_eq!(u128::try_from(latest - 30_000_000), Ok(INEXACTNESS.as_micros()));
        assert!(clock.is_fresh(29_999_999) && !clock.is_fresh(30_000_000));
    }

    #[test]
    fn a_clock_that_was_set_replaces_the_bounds() {
        for jump in [-3_600_000_000, 3_600_000_000] {
            let mut clock = StoreClock::default();
            clock.read(Reading::exact(1_000), 0, 10);

            clock.read(Reading::exact(2_000 + jump), 1_000, 1_010);

            let (low, high) = clock.bounds_at(1_010).unwrap();
            assert!(low <= 2_000 + jump && 2_000 + jump <= high, "{low} to {high}");
            assert!(high - low < 100, "{low} to {high}");
        }
    }
}
