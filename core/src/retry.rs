//! How a caller that waits tries again.

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::error::{Error, ErrorKind};

/// How a caller that waits for a key, or for a store that does not answer, tries again.
///
/// A pause is never longer than stated, and cut short when the store tells that the key may be free, when the holder's lease runs
/// out, and when the [wait](crate::LockOptions::wait) is over. So the pauses matter where no news come. By default there are none while
/// the caller stands in the queue of a store that calls it up ([`CalledBy`](crate::backend::CalledBy)): its place is asked for again every few
/// seconds, and that is enough.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::retry::Retry;
///
/// // The default: as often as the wait allows, at random moments that grow apart.
/// let patient = Retry::default();
///
/// // Count attempts: five of them, 200 ms apart.
/// let counted = Retry::attempts(5).every(Duration::from_millis(200));
/// # let _ = (patient, counted);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retry {
    attempts: Option<NonZeroU32>,
    pause: Pause,
    /// Decides instead, if there is one.
    own: Option<Own>,
}

/// A policy of one's own: it decides after each attempt of a call whether the next follows, and when.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::retry::{Retry, RetryPolicy, Tried};
///
/// /// Waits for the end of the holder's lease, and no longer than a minute in all.
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
    /// The pause before the next attempt; `None` if there is to be no other.
    ///
    /// A pause of less than a millisecond counts as one. It is cut short like the others, see [`Retry`].
    fn pause(&self, tried: &Tried) -> Option<Duration>;
}

/// The attempts of a call so far.
///
/// See the example of [`Retry`].
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    attempts: u32,
    elapsed: Duration,
    holder_left: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Own(Arc<dyn RetryPolicy>);

impl Tried {
    /// The number of attempts, 1 at least. Attempts that follow news of the key do not count.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long ago the call began.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How long the lease of the holder lasts without renewal, if the store has told.
    pub fn holder_left(&self) -> Option<Duration> {
        self.holder_left
    }
}

/// The same policy, not one that decides alike.
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
    /// The limit of the first pause: roughly the time of a critical section of a few round trips.
    const DEFAULT_MIN: Duration = Duration::from_millis(25);

    /// The longest pause: with a store that tells of releases, polling is only the net below.
    const DEFAULT_MAX: Duration = Duration::from_secs(1);

    /// No pause may be shorter, or a caller would spin.
    const MIN_PAUSE: Duration = Duration::from_millis(1);

    /// Tries as often as the wait allows, with growing pauses.
    pub const fn unlimited() -> Self {
        Self {
            attempts: None,
            pause: Pause::Growing { min: Self::DEFAULT_MIN, max: Self::DEFAULT_MAX },
            own: None,
        }
    }

    /// Tries for as long as a `policy` of one's own says, within the wait.
    pub fn policy(policy: impl RetryPolicy) -> Self {
        Self { own: Some(Own(Arc::new(policy))), ..Self::unlimited() }
    }

    /// Tries at most `attempts` times (at least once), even if the wait is not over then.
    ///
    /// An attempt counts if it follows a whole pause. Attempts that follow news of the key do not. A caller that stands in
    /// line behind another one of its client shares that one's answers, so its attempts count there, too: it gives up as soon
    /// as a caller of another process would.
    pub const fn attempts(attempts: u32) -> Self {
        let mut retry = Self::unlimited();
        retry.attempts = Some(match NonZeroU32::new(attempts) {
            Some(attempts) => attempts,
            None => NonZeroU32::MIN,
        });
        retry
    }

    /// Pauses for exactly `pause`.
    #[must_use]
    pub const fn every(mut self, pause: Duration) -> Self {
        self.pause = Pause::Between { min: pause, max: pause };
        self
    }

    /// Pauses for a random time from `min` to `max`, so that callers fall out of step.
    #[must_use]
    pub const fn between(mut self, min: Duration, max: Duration) -> Self {
        self.pause = Pause::Between { min, max };
        self
    }

    /// Pauses for a random time from `min` to a bound that starts at twice `min` and doubles up to `max`.
    #[must_use]
    pub const fn growing(mut self, min: Duration, max: Duration) -> Self {
        self.pause = Pause::Growing { min, max };
        self
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let (Pause::Between { min, max } | Pause::Growing { min, max }) = self.pause;
        if min < Self::MIN_PAUSE {
            let message =
                format!("the pause between attempts must be at least {:?}", Self::MIN_PAUSE);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if max < min {
            let message = format!(
                "the longest pause between attempts, {max:?}, is shorter than the shortest, {min:?}"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Whether attempts may be used up before the wait is over.
    pub(crate) fn may_end(&self) -> bool {
        self.attempts.is_some() || self.own.is_some()
    }

    /// The pauses of one acquisition; they end when the attempts are used up.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { retry: self.clone(), made: 0 }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::unlimited()
    }
}

/// The pauses between the attempts of one acquisition.
#[derive(Debug)]
pub(crate) struct Pauses {
    retry: Retry,
    made: u32,
}

impl Pauses {
    /// The pause after an attempt, `elapsed` after the first one began.
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
