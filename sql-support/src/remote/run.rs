//! The seam between the texts of transactions and the connections that run them.

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

/// Runs the texts of transactions: connections that the application has, in a pool of any crate.
///
/// Each text goes to the server as it is, in *one message*, on a connection that is outside of a transaction. The backend's crate says
/// which message that is.
#[async_trait]
pub trait Run: Debug + Send + Sync + 'static {
    /// Runs a text within `limit`, and gives the rows of all of its statements.
    ///
    /// The server must give up before: [`Text::at`] takes the limit of the server.
    ///
    /// # Errors
    ///
    /// A [`RunError`] that says whether the server may have applied the transaction.
    ///
    /// # Cancel safety
    ///
    /// Must be safe to drop: the connection is used again only when its reply was read to the end.
    async fn run(
        &self,
        text: &Text,
        urgency: Urgency,
        limit: Duration,
    ) -> Result<Vec<Row>, RunError>;

    /// Gives up the connections that are not the application's. Later texts make others.
    fn disconnect(&self) {}

    /// Closes connections that are not the application's.
    async fn close(&self) {}
}

/// How urgent a transaction is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Urgency {
    /// An acquisition, a look: it may wait for a connection.
    Asks,
    /// A release: acquisitions must not keep connections from it, however many there are.
    Releases,
    /// A renewal: neither acquisitions nor releases must keep connections from it.
    Renews,
}

/// Why a text was not run, or may not have been.
#[derive(Debug)]
pub struct RunError {
    failure: Failure,
    message: Cow<'static, str>,
    /// `None` where the message says all of it.
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl RunError {
    /// Creates the error of a text that failed so; `message` is lower case, without a full stop, and without a secret.
    pub fn new(
        failure: Failure,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { failure, message: message.into(), source: Some(source.into()) }
    }

    /// There is no connection, or none in time: the text was not sent.
    pub fn not_sent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        match why_unreachable(&*source) {
            Some(reason) => Self::without_source(Failure::NotApplied, reason),
            None => Self::new(Failure::NotApplied, "the database cannot be reached", source),
        }
    }

    /// The text was sent, and no reply came: the connection broke, or time is up.
    pub fn no_reply(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Failure::Unknown, "no reply, outcome unknown", source)
    }

    /// No connection was made, since one side does not trust the other. The message ends in the first of the causes.
    pub fn not_trusted(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = source.into();
        let causes = iter::successors(Some(&*source as &dyn StdError), |&cause| cause.source());
        let cause = causes.last().map(ToString::to_string).unwrap_or_default();
        let message = format!("no connection that both sides trust: {cause}");
        Self::without_source(Failure::Denied, message)
    }

    fn without_source(failure: Failure, message: impl Into<Cow<'static, str>>) -> Self {
        Self { failure, message: message.into(), source: None }
    }

    /// The same of an attempt to connect to the servers at `address`.
    #[must_use]
    pub(crate) fn at(self, address: &str) -> Self {
        Self { message: format!("{address}: {}", self.message).into(), ..self }
    }

    /// The failure of the transaction.
    pub fn failure(&self) -> Failure {
        self.failure
    }

    /// The same error of a text that changes nothing, or nothing the second time: an unknown outcome does no harm.
    #[must_use]
    pub fn harmless(self) -> Self {
        match self.failure {
            Failure::Unknown => {
                let message = "the database does not answer".into();
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
