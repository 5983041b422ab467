//! The arithmetic of leases: how long to believe in one, and when to renew it.

use std::time::Duration;

use crate::clock::Instant;

/// A third of the TTL: after one failed renewal there is time for two more before the deadline.
const RENEWALS_PER_TTL: u32 = 3;

/// Renewals fall due at so many points of that time and none between them, so that those of many leases share round trips: each is
/// early by less than 1 %.
const POINTS_PER_RENEWAL: u32 = 128;

/// A sixth of the TTL: with the pause below, two attempts that hang and a third fit into the
/// two thirds that are left when a renewal falls due.
const ATTEMPTS_PER_TTL: u32 = 6;

/// A twelfth of the TTL between a failed renewal and the next.
const PAUSES_PER_TTL: u32 = 12;

/// Ten round trips to a server nearby: most leases are released before.
const YOUTH: Duration = Duration::from_millis(50);

/// However much news there is of a lease, it is looked at no more often.
const BETWEEN_NEWS: Duration = Duration::from_millis(10);

/// A server that breaks off whenever it is asked, and is there again at once, is news as well.
const NEWS_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The drift allowance takes more than half of a shorter TTL.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(6);

/// The allowance for the drift of clocks over a TTL: 1 % of it, in whole milliseconds, and 2 ms for
/// stores that expire keys to the millisecond.
pub(crate) fn drift(ttl: Duration) -> Duration {
    const MS: u64 = 1_000_000;

    // In nanoseconds, since each acquisition needs it several times, and to divide a `Duration` takes longer.
    let nanos = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos((nanos / 100).next_multiple_of(MS) + 2 * MS)
}

/// How long a lease may be believed in.
pub(crate) fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(drift(ttl))
}

/// Until when a lease may be believed in, if it was asked for at `sent_at`.
///
/// Counted from before the first byte was sent: the store cannot have begun to count earlier.
pub(crate) fn deadline(sent_at: Instant, ttl: Duration) -> Instant {
    sent_at + validity(ttl)
}

/// When the lease granted or renewed at `sent_at` falls due for renewal, together with others of its TTL.
pub(crate) fn renewal_due(sent_at: Instant, ttl: Duration) -> Instant {
    let interval = ttl / RENEWALS_PER_TTL;
    (sent_at + interval).rounded_down(interval / POINTS_PER_RENEWAL)
}

/// When a lease that was asked for at `since` is of age: it takes a place in the schedule, a watch, and, where the store tells nothing of a
/// lease before its first renewal, that renewal.
pub(crate) fn of_age(since: Instant) -> Instant {
    since + YOUTH
}

/// When a lease that was renewed at `sent_at` is looked at once there is news of it.
pub(crate) fn next_news_due(sent_at: Instant) -> Instant {
    sent_at + BETWEEN_NEWS
}

/// When a lease of which there is news at `now` is looked at, if it could not be renewed the last time.
pub(crate) fn news_due_after_failure(now: Instant) -> Instant {
    now + NEWS_AFTER_FAILURE
}

/// When a renewal sent at `sent_at` is given up on.
pub(crate) fn attempt_end(sent_at: Instant, ttl: Duration) -> Instant {
    sent_at + ttl / ATTEMPTS_PER_TTL
}

/// Renewals of one class are given up on after times that differ by less than a factor of two.
pub(crate) fn attempt_class(ttl: Duration) -> u32 {
    (ttl / ATTEMPTS_PER_TTL).as_nanos().max(1).ilog2()
}

/// When to renew again after a failure at `now`.
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
