//! Failures of statements on connections.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::{fmt, iter};

use leasehold_core::Error;
use leasehold_core::backend::why_unreachable;

use crate::failure::Failure;

/// Why a query batch did not run or may not have run.
///
/// ```
/// use leasehold_sql_support::Failure;
/// use leasehold_sql_support::remote::RunError;
///
/// let error = RunError::no_reply(std::io::Error::other("the connection broke"));
/// assert_eq!(error.failure(), Failure::Unknown);
/// ```
#[derive(Debug)]
pub struct RunError {
    failure: Failure,
    message: Cow<'static, str>,
    /// The cause, or `None` if the message is complete without a cause.
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl RunError {
    /// Creates the error of a failed query batch. `message` is in lower case, does not end with a
    /// full stop and does not contain secrets.
    pub fn new(
        failure: Failure,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { failure, message: message.into(), source: Some(source.into()) }
    }

    /// Creates the error for a query batch that was not sent, because no connection was available
    /// in time.
    pub fn not_sent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        match why_unreachable(&*source) {
            Some(reason) => Self::without_source(Failure::NotApplied, reason),
            None => Self::new(Failure::NotApplied, "cannot reach the database", source),
        }
    }

    /// Creates the error for a query batch that got no reply because the connection broke or the
    /// time limit passed.
    pub fn no_reply(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Failure::Unknown, "no reply arrived, so the outcome is unknown", source)
    }

    /// Creates the error for a connection that was not opened because TLS could not be established
    /// or the authentication failed. The message ends with the root cause.
    pub fn not_trusted(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        let causes = iter::successors(Some(&*source as &dyn StdError), |&cause| cause.source());
        let cause = causes.last().map(ToString::to_string).unwrap_or_default();
        let message =
            format!("the connection failed because one side does not trust the other: {cause}");
        Self::without_source(Failure::Denied, message)
    }

    /// Creates the error for a call whose time limit passed before its statement was sent.
    pub(crate) fn late() -> Self {
        let message = "the time limit passed before the statement was sent";
        Self::without_source(Failure::NotApplied, message)
    }

    pub(crate) fn without_source(failure: Failure, message: impl Into<Cow<'static, str>>) -> Self {
        Self { failure, message: message.into(), source: None }
    }

    /// Adds the servers' address to the error of a connection attempt.
    #[must_use]
    pub(crate) fn at(self, address: &str) -> Self {
        Self { message: format!("{address}: {}", self.message).into(), ..self }
    }

    /// Returns the error of a statement that completes a grant. The grant was committed before the
    /// statement, so the outcome of the acquisition is unknown.
    #[must_use]
    pub(crate) fn after_grant(self) -> Self {
        let message = "the lock was granted, but its token is not known, so the outcome is unknown";
        Self::new(Failure::Unknown, message, self)
    }

    /// Returns whether a single request may have caused a batch of requests to fail. All requests can
    /// be sent again one by one, even if an unexpected reply hides that the batch was applied.
    pub(crate) fn may_come_from_one_request(&self) -> bool {
        matches!(self.failure, Failure::Conflict | Failure::Unexpected)
    }

    /// Returns a copy of this error for another call. The copy has no source, so its message contains
    /// the message of the root cause.
    #[must_use]
    pub(crate) fn repeated(&self) -> Self {
        let causes = iter::successors(self.source(), |&cause| cause.source());
        let message = match causes.last() {
            Some(cause) => format!("{}: {cause}", self.message),
            None => self.message.to_string(),
        };
        Self::without_source(self.failure, message)
    }

    /// Returns the failure of the transaction.
    pub fn failure(&self) -> Failure {
        self.failure
    }

    /// If it is not known whether the query batch was applied, changes the failure from
    /// [`Failure::Unknown`] to [`Failure::NotApplied`]. Call this method only for a batch that can
    /// be repeated safely, because then it does not matter whether the batch was applied.
    #[must_use]
    pub fn harmless(self) -> Self {
        match self.failure {
            Failure::Unknown => {
                let message = "the database did not reply".into();
                Self { failure: Failure::NotApplied, message, ..self }
            }
            _ => self,
        }
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        match error.source {
            Some(source) => error.failure.because(error.message, source),
            None => error.failure.error(error.message),
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for RunError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
