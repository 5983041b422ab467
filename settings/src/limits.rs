//! Limits of durations and pool sizes.

use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold_core::Error;

use crate::invalid;

/// The valid time limits for a request.
///
/// A server replies within 1 ms only if it is nearby. After 60 s, most leases have expired.
///
/// [`duration_in`] takes an argument of this type.
pub const REQUEST_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);

/// Returns `duration` if it is within `limits`. `name` is the name of the setting.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the duration is outside
/// the limits.
///
/// ```
/// use std::time::Duration;
/// use leasehold_settings::{REQUEST_TIMEOUT, duration_in};
///
/// let error = duration_in(&REQUEST_TIMEOUT, "timeout", Duration::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "timeout must be between 1 ms and 60 s, not 0 ms");
/// ```
pub fn duration_in(
    limits: &RangeInclusive<Duration>,
    name: &str,
    duration: Duration,
) -> Result<Duration, Error> {
    if limits.contains(&duration) {
        return Ok(duration);
    }
    let [min, max, actual] = [*limits.start(), *limits.end(), duration].map(with_unit);
    Err(invalid(format!("{name} must be between {min} and {max}, not {actual}")))
}

fn with_unit(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis > 0 && millis.is_multiple_of(1000) => format!("{} s", millis / 1000),
        // A fraction of a millisecond is shown, because the value may be just outside of a limit.
        _ if !duration.subsec_nanos().is_multiple_of(1_000_000) => format!("{duration:?}"),
        millis => format!("{millis} ms"),
    }
}

/// Returns `count` if it is within `limits`. `name` is the name of the setting.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the number is outside the
/// limits.
///
/// ```
/// let error = leasehold_settings::count_in(&(1..=100), "connections", 0).unwrap_err();
///
/// assert_eq!(error.to_string(), "connections must be between 1 and 100, not 0");
/// ```
pub fn count_in(limits: &RangeInclusive<usize>, name: &str, count: usize) -> Result<usize, Error> {
    if limits.contains(&count) {
        return Ok(count);
    }
    let (min, max) = (limits.start(), limits.end());
    Err(invalid(format!("{name} must be between {min} and {max}, not {count}")))
}
