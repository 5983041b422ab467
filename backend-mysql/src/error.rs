//! What errors mean, one by one.

use std::error::Error as StdError;
use std::fmt;

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;
use leasehold_sql_support::mysql::{end_before_commit, failure, failure_of_commit};
use leasehold_sql_support::remote::Row;
use mysql_async::DriverError;

/// How errors and logs name this backend.
pub(crate) const BACKEND: &str = "mysql";

/// Why a text was not run, or may not have been.
#[derive(Debug)]
pub struct RunError {
    failure: Failure,
    /// The number that the server reported.
    code: Option<u16>,
    message: &'static str,
    source: Box<dyn StdError + Send + Sync>,
}

impl RunError {
    /// The server reported an error with this number, after these rows: they tell whether it is one of the commit.
    pub fn reported(
        code: u16,
        rows: &[Row],
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let is_of_commit = end_before_commit(rows);
        let failure = if is_of_commit { failure_of_commit(code) } else { failure(code) };
        Self { failure, code: Some(code), message: message(code, failure), source: source.into() }
    }

    /// There is no connection, or none in time: the text was not sent.
    pub fn not_sent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let message = "the database cannot be reached";
        Self { failure: Failure::NotApplied, code: None, message, source: source.into() }
    }

    /// The text was sent, and no reply came: the connection broke, or time is up.
    pub fn no_reply(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let message = "no reply, outcome unknown";
        Self { failure: Failure::Unknown, code: None, message, source: source.into() }
    }

    /// Whether the same text may well succeed at once.
    pub(crate) fn is_conflict(&self) -> bool {
        self.failure == Failure::Conflict
    }

    /// Whether the server reports that there is no such table.
    pub(crate) fn is_missing_table(&self) -> bool {
        self.code == Some(1146)
    }

    pub(crate) fn into_error(self) -> Error {
        self.failure.because(self.message, self.source)
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
pub(crate) fn connect(error: mysql_async::Error) -> RunError {
    match &error {
        mysql_async::Error::Server(reported) => {
            let code = reported.code;
            RunError::reported(code, &[], error)
        }
        _ if is_refusal(&error) => RunError {
            failure: Failure::Denied,
            code: None,
            message: "no connection that both sides trust",
            source: error.into(),
        },
        _ => RunError::not_sent(error),
    }
}

/// Of a text that was given to the connection, and whose reply had these rows before.
pub(crate) fn exchange(error: mysql_async::Error, rows: &[Row]) -> RunError {
    match &error {
        mysql_async::Error::Server(reported) => {
            let code = reported.code;
            RunError::reported(code, rows, error)
        }
        _ => RunError::no_reply(error),
    }
}

/// Whether it comes from TLS, or from the way in which a password is asked for.
fn is_refusal(error: &mysql_async::Error) -> bool {
    match error {
        #[cfg(feature = "tls")]
        mysql_async::Error::Io(mysql_async::IoError::Tls(_)) => true,
        // The handshake of TLS says so.
        mysql_async::Error::Io(mysql_async::IoError::Io(error)) => {
            error.kind() == std::io::ErrorKind::InvalidData
        }
        mysql_async::Error::Driver(error) => matches!(
            error,
            DriverError::NoClientSslFlagFromServer
                | DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CleartextPluginDisabled
        ),
        _ => false,
    }
}

fn message(code: u16, failure: Failure) -> &'static str {
    match (code, failure) {
        (_, Failure::Unknown) => "the commit failed, outcome unknown",
        (1205, _) => "others kept a lock for too long, nothing was applied",
        (1290 | 1792 | 1836, _) => "the server is read-only just now",
        (1040 | 1203 | 1226, _) => "the server has no connection left",
        (1969 | 3024, _) => "the server gave up in time, nothing was applied",
        (1690, _) => "a stripe is missing: the table was emptied, run the migration",
        (1665, _) => {
            "the server's binary log must not be one of statements: set binlog_format to ROW or MIXED"
        }
        (1064 | 1193 | 1235, _) => "the server is too old: MySQL 8.0 or MariaDB 10.6 is needed",
        (1146, _) => "the tables are missing: run the migration",
        (1049, _) => "the server has no such database",
        (1142 | 1143 | 1227 | 1370, _) => "the database's user lacks a right",
        (1021 | 1114, _) => "the server's disk is full",
        (_, Failure::Full) => "the server cannot write",
        (_, Failure::Conflict) => "transactions were in each other's way, nothing was applied",
        (_, Failure::NotApplied) => "the server refused, nothing was applied",
        (_, Failure::Layout) => "the tables are not there, or not as this version knows them",
        (_, Failure::Denied) => "the server does not let us in",
        _ => "the server reported an error",
    }
}

/// Of a setting that cannot be.
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message).with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16, rows: &[Row]) -> ErrorKind {
        RunError::reported(code, rows, "a test").into_error().kind()
    }

    #[test]
    fn an_error_before_the_commit_was_not_applied() {
        let rows = [vec![Some("granted".to_owned())]];

        for code in [1205, 1213, 1290, 1317, 1836, 1927, 1969, 3024] {
            assert_eq!(kind(code, &rows), ErrorKind::Unavailable, "{code}");
        }
    }

    #[test]
    fn an_error_of_the_commit_leaves_the_outcome_unknown() {
        let rows = [vec![Some("granted".to_owned())], vec![Some("commit".to_owned())]];

        for code in [3, 1021, 1053, 1180, 1317, 1927] {
            assert_eq!(kind(code, &rows), ErrorKind::Indeterminate, "{code}");
        }
        assert_eq!(kind(1213, &rows), ErrorKind::Unavailable, "a cluster refused it");
    }

    #[test]
    fn errors_for_operators_are_not_tried_again() {
        for code in [3, 1021, 1114, 1146, 1665, 1690] {
            assert_eq!(kind(code, &[]), ErrorKind::Refused, "{code}");
        }
        for code in [1044, 1045, 1142] {
            assert_eq!(kind(code, &[]), ErrorKind::Denied, "{code}");
        }
    }
}
