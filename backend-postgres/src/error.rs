//! What errors mean, one by one.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;
use leasehold_sql_support::postgres::failure;

/// How errors and logs name this backend.
pub(crate) const BACKEND: &str = "postgres";

/// Why a text was not run, or may not have been.
#[derive(Debug)]
pub struct RunError {
    failure: Failure,
    message: &'static str,
    source: Box<dyn StdError + Send + Sync>,
}

impl RunError {
    /// The server reported an error with this `SQLSTATE`: it has rolled back, except where the code says that the connection ended, too.
    pub fn reported(code: &str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let failure = failure(code);
        Self { failure, message: message(code, failure), source: source.into() }
    }

    /// There is no connection, or none in time: the text was not sent.
    pub fn not_sent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let message = "the database cannot be reached";
        Self { failure: Failure::NotApplied, message, source: source.into() }
    }

    /// The text was sent, and no reply came: the connection broke, or time is up.
    pub fn no_reply(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let message = "no reply, outcome unknown";
        Self { failure: Failure::Unknown, message, source: source.into() }
    }

    /// Whether the same text may well succeed at once.
    pub(crate) fn is_conflict(&self) -> bool {
        self.failure == Failure::Conflict
    }

    pub(crate) fn into_error(self) -> Error {
        self.failure.because(self.message, self.source)
    }

    /// Of texts that change nothing, or nothing the second time.
    pub(crate) fn into_connecting(self) -> Error {
        match self.failure {
            Failure::Unknown => {
                Failure::NotApplied.because("the database does not answer", self.source)
            }
            _ => self.into_error(),
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl StdError for RunError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// Of an attempt to connect: nothing of ours was sent.
pub(crate) fn connect(error: tokio_postgres::Error) -> RunError {
    match error.code().cloned() {
        Some(code) => {
            let run = RunError::reported(code.code(), error);
            match run.failure {
                // It ended while it let us in.
                Failure::Unknown => RunError { failure: Failure::NotApplied, ..run },
                _ => run,
            }
        }
        None if is_refusal(&error) => RunError {
            failure: Failure::Denied,
            message: "no connection that both sides trust",
            source: error.into(),
        },
        None => RunError::not_sent(error),
    }
}

/// Of a text that was given to the connection.
pub(crate) fn exchange(error: tokio_postgres::Error) -> RunError {
    match error.code().cloned() {
        Some(code) => RunError::reported(code.code(), error),
        None => RunError::no_reply(error),
    }
}

/// Whether one side does not trust the other, or has nothing to be trusted by. The driver tells only by its texts.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    const REFUSALS: [&str; 3] =
        ["authentication error", "error performing TLS handshake", "invalid configuration"];

    let text = error.to_string();
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match io {
        // So rustls says what the other side said no to, also after the handshake.
        Some(io) => io.kind() == io::ErrorKind::InvalidData,
        None => REFUSALS.iter().any(|refusal| text.starts_with(refusal)),
    }
}

fn message(code: &str, failure: Failure) -> &'static str {
    match (code, failure) {
        ("25006", _) => "the database is read-only just now",
        ("53100", _) => "the database's disk is full",
        ("53300", _) => "the database has no connection left",
        ("55P03" | "57014", _) => "the database gave up in time, nothing was applied",
        ("22012", _) => "a stripe is missing: the table was emptied, run the migration",
        ("42501", _) => "the database's user lacks a right",
        (_, Failure::Conflict) => "transactions were in each other's way, nothing was applied",
        (_, Failure::NotApplied) => "the database refused, nothing was applied",
        (_, Failure::Layout) => "the tables are not there, or not as this version knows them",
        (_, Failure::Denied) => "the database does not let us in",
        (_, Failure::Unknown) => "the database ended the connection, outcome unknown",
        _ => "the database reported an error",
    }
}

/// Of a setting that cannot be.
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_backend(BACKEND)
}
