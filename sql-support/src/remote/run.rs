//! The interface between query batches and the connections that run them.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::{self, Debug};
use std::iter;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::why_unreachable;

use crate::failure::Failure;
use crate::remote::{Row, Text};

/// Runs query batches on the application's connections, for example from a pool of any crate.
///
/// Each query batch must be sent unchanged, in *one message*, on a connection that is not in a
/// transaction. The message is specified in the documentation of the database's crate. The example
/// in the `leasehold-postgres` crate implements this trait.
#[async_trait]
pub trait Run: Debug + Send + Sync + 'static {
    /// Runs a query batch within `limit`. Returns the rows of all of its statements.
    ///
    /// The server must give up before the client. Pass the time limit for the server to
    /// [`Text::at`].
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] that states whether the server may have applied the transaction.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe. A connection may be reused only after its reply has
    /// been read completely.
    async fn run(
        &self,
        text: &Text,
        urgency: Urgency,
        limit: Duration,
    ) -> Result<Vec<Row>, RunError>;

    /// Drops the connections that the application did not provide. Later query batches open new
    /// connections.
    fn disconnect(&self) {}

    /// Closes the connections that the application did not provide.
    async fn close(&self) {}
}

/// The urgency of a transaction.
///
/// [`Run::run`] receives this value, so that an implementation can reserve connections for
/// renewals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Urgency {
    /// An acquisition or a read. The transaction may wait for a connection.
    Asks,
    /// A release. Acquisitions must not occupy its connection, no matter how many acquisitions
    /// there are.
    Releases,
    /// A renewal. Neither acquisitions nor releases may occupy the connection that renewals use.
    Renews,
}

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

    fn without_source(failure: Failure, message: impl Into<Cow<'static, str>>) -> Self {
        Self { failure, message: message.into(), source: None }
    }

    /// Adds the servers' address to the error of a connection attempt.
    #[must_use]
    pub(crate) fn at(self, address: &str) -> Self {
        Self { message: format!("{address}: {}", self.message).into(), ..self }
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
