//! Values of requests, in the units of the tables.

use std::time::{Duration, SystemTime};

use leasehold_core::backend::Grant;

/// A request for one page of a list of keys.
///
/// [`Database::list`](crate::rows::Database::list) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List {
    /// The inclusive lower bound of the listed names.
    pub from: String,
    /// The name after which the page starts, or an empty string for the first page.
    pub after: String,
    /// The exclusive upper bound of the listed names.
    pub to: String,
}

impl List {
    /// The maximum number of keys on a page.
    pub const KEYS: usize = 256;

    pub(crate) fn of(prefix: &str, after: Option<&str>) -> Self {
        let after = after.unwrap_or_default().to_owned();
        // The tilde sorts after all characters of encoded names.
        Self { from: prefix.to_owned(), after, to: format!("{prefix}~") }
    }
}

/// Returns the token of a time in microseconds since 1970. [`Grant::TOKENS_PER_MICROSECOND`] is the
/// factor.
pub fn token_at(micros: i64) -> i64 {
    micros.saturating_mul(token(Grant::TOKENS_PER_MICROSECOND))
}

/// Converts a token to the integer type of the tables' columns, which is large enough for all
/// tokens in use.
///
/// ```
/// assert_eq!(leasehold_sql_support::request::token(7), 7);
/// ```
pub fn token(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a duration in microseconds, the unit of the tables. The duration is rounded up, so that
/// no lease is shorter than requested.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(leasehold_sql_support::request::micros(Duration::from_nanos(1_500)), 2);
/// ```
pub fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// Converts a value of a database's clock, in microseconds since 1970, to a system time.
pub(crate) fn time_of(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// Returns a time in microseconds that is small enough to be added to the clock.
pub(crate) fn span(time: Duration) -> i64 {
    micros(time).min(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_saturate() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_millis(1)), 1000);
        assert_eq!(micros(Duration::MAX), i64::MAX);
    }
}
