//! Retry policies, which determine when a waiting caller makes its next attempt.

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::error::{Error, ErrorKind};

/// Determines when a caller makes its next attempt while the lock is held or the store does not
/// respond.
///
/// A pause ends early if the store notifies the client that the key may be free. A pause also ends
/// early if the holder's lease expires, or if the [wait](crate::LockOptions::wait) is over. Pauses
/// therefore matter most for stores without notifications.
///
/// With the default policy, a caller does not poll if the store has queued its claim and will
/// [notify](crate::backend::WokenBy) the caller when the claim can be granted. A queued caller
/// only refreshes its queue entry every few seconds.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::retry::Retry;
///
/// // The default: retry until the wait is over, with random pauses that grow.
/// let patient = Retry::default();
///
/// // Make at most five attempts, 200 ms apart.
/// let counted = Retry::attempts(5).every(Duration::from_millis(200));
/// # let _ = (patient, counted);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retry {
    attempts: Option<NonZeroU32>,
    pause: Pause,
    /// The custom policy, which replaces `attempts` and `pause` if it is set.
    own: Option<Own>,
}

/// A custom retry policy, which decides after each attempt whether and when to make another
/// attempt.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::retry::{Retry, RetryPolicy, Tried};
///
/// /// Retries when the holder's lease expires, for at most one minute.
/// #[derive(Debug)]
/// struct Patient;
///
/// impl RetryPolicy for Patient {
///     fn pause(&self, tried: &Tried) -> Option<Duration> {
///         let left = Duration::from_secs(60).checked_sub(tried.elapsed())?;
///         Some(tried.holder_left().unwrap_or(Duration::from_secs(1)).min(left))
///     }
/// }
///
/// let retry = Retry::policy(Patient);
/// # let _ = retry;
/// ```
pub trait RetryPolicy: Debug + Send + Sync + 'static {
    /// Returns the pause before the next attempt, or `None` to stop retrying.
    ///
    /// The pause lasts at least 1 ms, but may end early for the reasons described in [`Retry`].
    fn pause(&self, tried: &Tried) -> Option<Duration>;
}

/// The progress of a call, on which a [`RetryPolicy`] bases its decision.
///
/// See [`RetryPolicy`] for an example that computes a pause from this value.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    attempts: u32,
    elapsed: Duration,
    holder_left: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Own(Arc<dyn RetryPolicy>);

impl Tried {
    /// Returns the number of attempts so far, which is at least 1. Attempts that follow a
    /// notification are not counted.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the time since the call began.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the time until the holder's lease expires if it is not renewed. Returns `None` if
    /// the store did not report this time.
    pub fn holder_left(&self) -> Option<Duration> {
        self.holder_left
    }
}

/// Two policies are equal only if they are the same object.
impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Own {}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pause {
    Between { min: Duration, max: Duration },
    Growing { min: Duration, max: Duration },
}

impl Retry {
    /// The default minimum pause, which is about as long as a critical section with a few round
    /// trips. The upper bound of the first pause is twice the minimum pause.
    const DEFAULT_MIN: Duration = Duration::from_millis(25);

    /// The default maximum pause. If the store sends notifications, clients poll only as a
    /// fallback.
    const DEFAULT_MAX: Duration = Duration::from_secs(1);

    /// The minimum pause that is allowed, because shorter pauses would make a caller spin.
    const MIN_PAUSE: Duration = Duration::from_millis(1);

    /// Retries with increasing pauses until the caller's time limit is reached.
    pub const fn unlimited() -> Self {
        Self {
            attempts: None,
            pause: Pause::Growing { min: Self::DEFAULT_MIN, max: Self::DEFAULT_MAX },
            own: None,
        }
    }

    /// Retries according to a custom policy, but only until the caller's time limit is reached.
    pub fn policy(policy: impl RetryPolicy) -> Self {
        Self { own: Some(Own(Arc::new(policy))), ..Self::unlimited() }
    }

    /// Makes at most `attempts` attempts (at least one), even if the caller's time limit has not
    /// been reached.
    ///
    /// A retry counts towards `attempts` only if it follows a complete pause. For example, a retry
    /// that follows a notification does not count. Waiting callers of the same client share their
    /// attempts, so each attempt counts towards the limit of every caller. A caller that shares
    /// attempts therefore gives up as early as a caller that makes all attempts itself.
    pub const fn attempts(attempts: u32) -> Self {
        let mut retry = Self::unlimited();
        retry.attempts = Some(match NonZeroU32::new(attempts) {
            Some(attempts) => attempts,
            None => NonZeroU32::MIN,
        });
        retry
    }

    /// Pauses for exactly `pause` between attempts.
    #[must_use]
    pub const fn every(mut self, pause: Duration) -> Self {
        self.pause = Pause::Between { min: pause, max: pause };
        self
    }

    /// Pauses for a random time between `min` and `max`, so that callers do not retry in lockstep.
    #[must_use]
    pub const fn between(mut self, min: Duration, max: Duration) -> Self {
        self.pause = Pause::Between { min, max };
        self
    }

    /// Pauses for a random time between `min` and an upper bound. The upper bound is twice `min`
    /// for the first pause, and doubles with each pause until it reaches `max`.
    #[must_use]
    pub const fn growing(mut self, min: Duration, max: Duration) -> Self {
        self.pause = Pause::Growing { min, max };
        self
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let (Pause::Between { min, max } | Pause::Growing { min, max }) = self.pause;
        if min < Self::MIN_PAUSE {
            let message = format!(
                "retry is invalid: the pause between attempts must be at least {:?}",
                Self::MIN_PAUSE
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if max < min {
            let message = format!(
                "retry is invalid: the maximum pause between attempts ({max:?}) is shorter than the minimum pause ({min:?})"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Returns whether the policy can end the call before the wait is over.
    pub(crate) fn may_end(&self) -> bool {
        self.attempts.is_some() || self.own.is_some()
    }

    /// Returns the pauses of one acquisition. The iterator ends when no attempts are left.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use leasehold_core::retry::Retry;
    ///
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Retry::attempts(3).every(second).pauses().collect::<Vec<_>>(), [second; 2]);
    /// ```
    pub fn pauses(&self) -> Pauses {
        Pauses { retry: self.clone(), made: 0 }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::unlimited()
    }
}

/// The pauses between the attempts of one acquisition.
///
/// See [`Retry::pauses`] for an example.
#[derive(Debug)]
pub struct Pauses {
    retry: Retry,
    made: u32,
}

impl Pauses {
    /// Returns the pause after an attempt. `elapsed` is the time since the call began.
    pub(crate) fn after(
        &mut self,
        elapsed: Duration,
        holder_left: Option<Duration>,
    ) -> Option<Duration> {
        let Some(own) = &self.retry.own else { return self.next() };
        self.made = self.made.saturating_add(1);
        let pause = own.0.pause(&Tried { attempts: self.made, elapsed, holder_left })?;
        Some(pause.max(Retry::MIN_PAUSE))
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.made = self.made.saturating_add(1);
        if self.retry.attempts.is_some_and(|attempts| self.made >= attempts.get()) {
            return None;
        }
        let (min, max) = match self.retry.pause {
            Pause::Between { min, max } => (min, max),
            Pause::Growing { min, max } => {
                let doubled = min.saturating_mul(1_u32.checked_shl(self.made).unwrap_or(u32::MAX));
                (min, doubled.min(max))
            }
        };
        let span = u64::try_from(max.saturating_sub(min).as_nanos()).unwrap_or(u64::MAX);
        Some(min.saturating_add(Duration::from_nanos(fastrand::u64(0..=span))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn attempts_are_counted_with_the_first() {
        assert_eq!(Retry::attempts(5).every(MS(200)).pauses().collect::<Vec<_>>(), [MS(200); 4]);
        assert_eq!(Retry::attempts(0).pauses().count(), 0);
    }

    #[test]
    fn pauses_grow_and_stay_within_their_bounds() {
        let pauses: Vec<_> =
            Retry::unlimited().growing(MS(10), MS(500)).pauses().take(1_000).collect();

        for (n, pause) in (0_u32..).zip(&pauses) {
            let bound = MS(10).saturating_mul(1 << (n + 1).min(10)).min(MS(500));
            assert!(*pause >= MS(10) && *pause <= bound, "pause {n}: {pause:?} above {bound:?}");
        }
        let late: Duration = pauses[100..].iter().sum::<Duration>() / 900;
        assert!(late > MS(200) && late < MS(310), "the mean of 10..500 is 255, not {late:?}");
    }

    #[test]
    fn callers_do_not_stay_in_step() {
        let pauses: Vec<f64> =
            Retry::default().pauses().take(1_000).map(|p| p.as_secs_f64()).collect();
        let mean = pauses.iter().sum::<f64>() / 1_000.0;
        let variance = pauses.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / 1_000.0;

        assert!(variance.sqrt() / mean > 0.2);
    }

    #[test]
    fn impossible_pauses_are_refused() {
        let spinning = Retry::unlimited().every(Duration::ZERO);
        assert_eq!(spinning.validate().unwrap_err().kind(), ErrorKind::Invalid);

        let reversed = Retry::unlimited().between(MS(20), MS(10));
        assert_eq!(reversed.validate().unwrap_err().kind(), ErrorKind::Invalid);

        assert!(Retry::default().validate().is_ok());
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let retry = Retry::unlimited().growing(MS(1), Duration::MAX);
        assert!(retry.pauses().take(100).all(|pause| pause >= MS(1)));
    }
}
