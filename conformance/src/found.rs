//! Checks what a store did against what it should have done.

use std::fmt::{Arguments, Debug};

use leasehold_core::TryLockError;
use leasehold_core::backend::Attempt;

/// Starts a check of a value, as in `found!(guard.state()).is(LeaseState::Held)`.
///
/// A failure has the form "`guard.state()`: found …, expected …", where *found* is what the store
/// or the client did, and *expected* is the specification. A second argument describes the value in
/// place of the expression.
macro_rules! found {
    ($value:expr $(,)?) => {
        $crate::found::Found::new(format_args!("`{}`", stringify!($value)), &$value)
    };
    ($value:expr, $($what:tt)+) => {
        $crate::found::Found::new(format_args!($($what)+), &$value)
    };
}

/// A value that a case has found.
#[derive(Debug)]
pub(crate) struct Found<'a, T: ?Sized> {
    what: Arguments<'a>,
    value: &'a T,
}

impl<'a, T: Debug + ?Sized> Found<'a, T> {
    pub(crate) const fn new(what: Arguments<'a>, value: &'a T) -> Self {
        Self { what, value }
    }

    #[track_caller]
    pub(crate) fn is<U: Debug>(&self, expected: U)
    where
        T: PartialEq<U>,
    {
        self.check(*self.value == expected, format_args!("{expected:?}"));
    }

    #[track_caller]
    pub(crate) fn is_not<U: Debug>(&self, other: U)
    where
        T: PartialEq<U>,
    {
        self.check(*self.value != other, format_args!("another value"));
    }

    #[track_caller]
    pub(crate) fn at_most<U: Debug>(&self, most: U)
    where
        T: PartialOrd<U>,
    {
        self.check(*self.value <= most, format_args!("at most {most:?}"));
    }

    #[track_caller]
    pub(crate) fn at_least<U: Debug>(&self, least: U)
    where
        T: PartialOrd<U>,
    {
        self.check(*self.value >= least, format_args!("at least {least:?}"));
    }

    #[track_caller]
    pub(crate) fn less_than<U: Debug>(&self, bound: U)
    where
        T: PartialOrd<U>,
    {
        self.check(*self.value < bound, format_args!("less than {bound:?}"));
    }

    #[track_caller]
    pub(crate) fn more_than<U: Debug>(&self, bound: U)
    where
        T: PartialOrd<U>,
    {
        self.check(*self.value > bound, format_args!("more than {bound:?}"));
    }

    #[track_caller]
    fn check(&self, holds: bool, expected: Arguments<'_>) {
        let Self { what, value } = self;
        assert!(holds, "{what}: found {value:?}, expected {expected}");
    }
}

impl<T: Debug> Found<'_, Result<T, TryLockError>> {
    /// Checks that the call did not get the lock, because another caller holds the lock.
    #[track_caller]
    pub(crate) fn is_busy(&self) {
        let is_busy = matches!(self.value, Err(TryLockError::Busy(_)));
        self.check(is_busy, format_args!("a refusal because the lock is held"));
    }
}

impl Found<'_, Attempt> {
    #[track_caller]
    pub(crate) fn is_granted(&self) {
        let is_granted = matches!(self.value, Attempt::Granted(_));
        self.check(is_granted, format_args!("a grant"));
    }

    #[track_caller]
    pub(crate) fn is_refused(&self) {
        self.check(matches!(self.value, Attempt::Held(_)), format_args!("a refusal"));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    #[test]
    fn a_failed_check_says_what_was_found_and_what_was_expected() {
        let message = |check: fn()| {
            *catch_unwind(check).expect_err("the check fails").downcast::<String>().unwrap()
        };

        assert_eq!(message(|| found!(1 + 1).is(3)), "`1 + 1`: found 2, expected 3");
        assert_eq!(
            message(|| found!(2, "the {} token", "second").more_than(2)),
            "the second token: found 2, expected more than 2"
        );
    }
}
