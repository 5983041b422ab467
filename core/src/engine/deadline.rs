//! Calculates how long a lease is valid and when to renew it.

use std::time::Duration;

use crate::clock::Instant;

/// A lease is renewed after one third of its TTL. If the renewal fails, there is time for two more
/// renewals before the deadline.
const RENEWALS_PER_TTL: u32 = 3;

/// The number of points in a renewal interval at which renewals can be due, so that many leases
/// share a round trip. Each renewal is less than 1 % early.
const POINTS_PER_RENEWAL: u32 = 128;

/// An attempt to renew a lease may take up to one sixth of the TTL. When a renewal becomes due, two
/// thirds of the TTL remain. This time is enough for two attempts that hang, the pauses between
/// them and a third attempt.
const ATTEMPTS_PER_TTL: u32 = 6;

/// After a failed renewal, the watchdog pauses for one twelfth of the TTL before the next renewal.
const PAUSES_PER_TTL: u32 = 12;

/// Most leases are released before they reach this age, which is enough for ten round trips to a
/// nearby server.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// The minimum time between two checks of a lease, regardless of the number of notifications.
const NOTIFICATION_SPACING: Duration = Duration::from_millis(10);

/// The minimum time between a failed renewal and a check that is caused by a notification.
/// Notifications also occur if a server drops the connection on every request and accepts a new
/// connection immediately.
const NOTIFICATION_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// With a shorter TTL, the drift allowance would exceed half of the TTL.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(6);

/// Returns the allowance for clock drift over a TTL: 1 % of the TTL, rounded up to whole
/// milliseconds, plus 2 ms for stores that expire keys with millisecond precision.
pub(crate) fn drift(ttl: Duration) -> Duration {
    const MS: u64 = 1_000_000;

    // Calculated in nanoseconds, because each acquisition needs this value several times and
    // dividing a `Duration` is slower.
    let nanos = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos((nanos / 100).next_multiple_of(MS) + 2 * MS)
}

/// Returns how long a lease is valid for its holder.
pub(crate) fn validity(ttl: Duration) -> Duration {
    let ttl = if flaw!("deadline-after-expiry") { ttl + drift(ttl) * 6 } else { ttl };
    if flaw!("no-drift-allowance") { ttl } else { ttl.saturating_sub(drift(ttl)) }
}

/// Returns the deadline of a lease that was requested at `sent_at`.
///
/// The deadline is calculated from the time before the first byte was sent, because the store
/// cannot have started the TTL earlier.
pub(crate) fn deadline(sent_at: Instant, ttl: Duration) -> Instant {
    sent_at + validity(ttl)
}

/// Returns when a lease that was granted or renewed at `sent_at` is due for renewal, together with
/// other leases that have the same TTL.
pub(crate) fn renewal_due(sent_at: Instant, ttl: Duration) -> Instant {
    let interval = ttl / RENEWALS_PER_TTL;
    (sent_at + interval).rounded_down(interval / POINTS_PER_RENEWAL)
}

/// Returns when the watchdog starts to handle a lease that was requested at `since`.
///
/// At that time, the watchdog adds the lease to the schedule and subscribes to its notifications.
/// If the store reports changes only after the first renewal, the first renewal is also due at that
/// time.
pub(crate) fn settled_at(since: Instant) -> Instant {
    since + SETTLE_TIME
}

/// Returns the earliest time at which a lease that was renewed at `sent_at` may be checked because
/// of a notification.
pub(crate) fn notification_due(sent_at: Instant) -> Instant {
    sent_at + NOTIFICATION_SPACING
}

/// Returns when a lease whose last renewal failed may be checked because of a notification that
/// arrives at `now`.
pub(crate) fn notification_due_after_failure(now: Instant) -> Instant {
    now + NOTIFICATION_AFTER_FAILURE
}

/// Returns when to stop waiting for the reply to a renewal that was sent at `sent_at`.
pub(crate) fn attempt_end(sent_at: Instant, ttl: Duration) -> Instant {
    sent_at + ttl / ATTEMPTS_PER_TTL
}

/// Returns the class of a renewal. Time limits within a class differ by less than a factor of two.
pub(crate) fn attempt_class(ttl: Duration) -> u32 {
    (ttl / ATTEMPTS_PER_TTL).as_nanos().max(1).ilog2()
}

/// Returns when to renew again after a renewal that failed at `now`.
pub(crate) fn retry_due(now: Instant, ttl: Duration) -> Instant {
    now + ttl / PAUSES_PER_TTL
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const ZERO: Instant = Instant::from_zero(Duration::ZERO);

    #[test]
    fn drift_is_one_percent_rounded_up_and_two_milliseconds() {
        assert_eq!(drift(MS(30_000)), MS(302));
        assert_eq!(drift(MS(1_000)), MS(12));
        assert_eq!(drift(MS(1_001)), MS(13));
        assert_eq!(drift(MS(1)), MS(3));
    }

    #[test]
    fn half_of_the_shortest_ttl_is_valid() {
        assert_eq!(validity(SHORTEST_TTL), SHORTEST_TTL / 2);
        let shorter = SHORTEST_TTL - MS(1);
        assert!(validity(shorter) < shorter / 2);
    }

    #[test]
    fn the_deadline_counts_from_before_the_request() {
        assert_eq!(deadline(ZERO + MS(7), MS(1_000)), ZERO + MS(7 + 1_000 - 12));
    }

    #[test]
    fn renewals_fall_due_after_a_third_or_up_to_a_hundredth_earlier() {
        for sent_at in (0..1_000).map(|n| ZERO + MS(7 * n)) {
            let third = sent_at + MS(10_000);
            let due = renewal_due(sent_at, MS(30_000));
            assert!(due <= third && third.since(due) < MS(100), "{sent_at:?}");
        }
    }

    #[test]
    fn renewals_of_many_leases_fall_due_together() {
        let due = (0..10_000).map(|n| renewal_due(ZERO + MS(n), MS(30_000)));
        let moments: HashSet<_> = due.collect();
        assert!(moments.len() <= 129, "{}", moments.len());
    }

    #[test]
    fn a_ttl_too_short_to_be_divided_is_not() {
        let nanos = Duration::from_nanos;
        assert_eq!(renewal_due(ZERO + MS(1), nanos(383)), ZERO + MS(1) + nanos(127));
    }

    #[test]
    fn two_renewals_that_hang_leave_time_for_a_third() {
        for ttl in [MS(100), MS(1_000), MS(30_000), MS(86_400_000)] {
            let mut now = renewal_due(ZERO, ttl);
            for _ in 0..2 {
                now = retry_due(attempt_end(now, ttl), ttl);
            }
            assert!(now < deadline(ZERO, ttl), "{ttl:?}");
        }
    }

    #[test]
    fn nothing_overflows_and_nothing_is_negative() {
        assert_eq!(validity(Duration::ZERO), Duration::ZERO);
        assert_eq!(deadline(ZERO, Duration::ZERO), ZERO);
        assert_eq!(Instant::FAR_FUTURE, deadline(Instant::FAR_FUTURE, Duration::MAX));
        let _ = (drift(Duration::MAX), renewal_due(Instant::FAR_FUTURE, Duration::MAX));
    }
}
