//! Maps errors of SQLite and of the operating system to Leasehold's errors.

use std::borrow::Cow;
use std::io::{self, ErrorKind as IoKind};

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// The name of this backend in errors and logs.
pub(crate) const BACKEND: &str = "sqlite";

/// The step in which an error occurred, which determines whether the transaction may have been
/// applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum During {
    /// Before `COMMIT`, when nothing was applied.
    Work,
    /// During `COMMIT`.
    Commit,
}

/// Returns whether other processes kept the file locked. If so, nothing was applied.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

/// Returns whether a file is shorter than expected.
pub(crate) fn is_cut_off(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(ffi::SQLITE_IOERR_SHORT_READ)
}

/// Returns the error that SQLite reports for a file that is shorter than expected.
pub(crate) fn cut_off() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_SHORT_READ), None)
}

/// Maps an error of SQLite.
pub(crate) fn sqlite(error: rusqlite::Error, during: During) -> Error {
    let (kind, message) = match &error {
        rusqlite::Error::SqliteFailure(code, _) => of_code(*code, during),
        rusqlite::Error::SqlInputError { error, .. } => of_code(*error, during),
        _ => OTHER_TABLES,
    };
    let mapped = Error::new(kind, message);
    // SQLite's error text would only repeat this message.
    if kind == ErrorKind::WrongType { mapped } else { mapped.with_source(error) }
}

const OTHER_TABLES: (ErrorKind, &str) =
    (ErrorKind::Refused, "the tables were not created by this version of Leasehold");

fn of_code(error: ffi::Error, during: During) -> (ErrorKind, &'static str) {
    match error.code {
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => (
            ErrorKind::Unavailable,
            "other processes kept the file locked for longer than the timeout",
        ),
        ErrorCode::DiskFull => (ErrorKind::Refused, "the disk or the file is full"),
        ErrorCode::ReadOnly => (ErrorKind::Refused, "the file is read-only"),
        // SQLite may report any other error after the commit is in the log, where a recovery finds
        // the commit.
        _ if during == During::Commit => {
            (ErrorKind::Indeterminate, "the commit failed, so the outcome is unknown")
        }
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted | ErrorCode::OutOfMemory => (
            ErrorKind::Unavailable,
            "the transaction was interrupted, or the process is out of memory",
        ),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            (ErrorKind::Denied, "SQLite cannot open the file, or the log or index next to it")
        }
        ErrorCode::SystemIoFailure => (ErrorKind::Refused, "the disk failed"),
        ErrorCode::DatabaseCorrupt => {
            (ErrorKind::Unexpected, "the file is damaged; delete or restore it")
        }
        ErrorCode::NotADatabase => {
            (ErrorKind::WrongType, "the file is not a SQLite database; choose another path")
        }
        ErrorCode::Unknown => OTHER_TABLES,
        _ => (ErrorKind::Unexpected, "SQLite failed in an unexpected way"),
    }
}

/// Returns the error of a file that cannot be opened or created.
pub(crate) fn cannot_open(why: impl Into<Cow<'static, str>>, error: io::Error) -> Error {
    let failure = match error.kind() {
        IoKind::PermissionDenied => Failure::Denied,
        _ => Failure::Full,
    };
    failure.because(why, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32, during: During) -> ErrorKind {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        sqlite(error, during).kind()
    }

    #[test]
    fn a_busy_file_was_not_changed() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_SNAPSHOT, ffi::SQLITE_PROTOCOL] {
            assert_eq!(kind(code, During::Work), ErrorKind::Unavailable);
            assert_eq!(kind(code, During::Commit), ErrorKind::Unavailable);
        }
    }

    #[test]
    fn a_commit_that_fails_leaves_the_outcome_unknown() {
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_NOMEM, ffi::SQLITE_CORRUPT] {
            assert_eq!(kind(code, During::Commit), ErrorKind::Indeterminate);
        }
        assert_eq!(kind(ffi::SQLITE_IOERR_READ, During::Work), ErrorKind::Refused);
    }

    #[test]
    fn a_failure_that_an_operator_must_mend_is_final() {
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_READONLY] {
            assert_eq!(kind(code, During::Work), ErrorKind::Refused);
        }
        assert_eq!(kind(ffi::SQLITE_NOTADB, During::Work), ErrorKind::WrongType);
        assert_eq!(kind(ffi::SQLITE_CANTOPEN, During::Work), ErrorKind::Denied);
        assert_eq!(kind(ffi::SQLITE_CORRUPT, During::Work), ErrorKind::Unexpected);
    }
}
