//! The meaning of each error's number.

use std::error::Error as StdError;

use crate::failure::Failure;
use crate::remote::{Row, RunError};

/// Creates the error of a text for which the server reported the error with this number, after these rows: they tell whether it is one of
/// the commit.
pub fn reported(
    code: u16,
    rows: &[Row],
    source: impl Into<Box<dyn StdError + Send + Sync>>,
) -> RunError {
    let failure = if end_before_commit(rows) { failure_of_commit(code) } else { failure(code) };
    let message = if failure == Failure::Unknown { None } else { message(code) };
    RunError::new(failure, message.unwrap_or(failure.message()), source)
}

/// Whether these rows are all that come before the commit, so that only it can fail after them.
fn end_before_commit(rows: &[Row]) -> bool {
    rows.last().is_some_and(|row| row.first().and_then(Option::as_deref) == Some("commit"))
}

/// Finds the failure of a transaction for which the server reported the error with this number before its commit began.
///
/// The statement that failed was the last that ran: the transaction is open or rolled back, and the end of its connection ends it.
fn failure(code: u16) -> Failure {
    match code {
        // A lock that others kept, deadlock victim, a row that changed, a node of a cluster that lost.
        1205 | 1213 | 1020 | 3101 => Failure::Conflict,
        // The limits of time of MariaDB and MySQL.
        1969 | 3024 => Failure::NotApplied,
        // The server or the transaction is read-only.
        1290 | 1792 | 1836 => Failure::ReadOnly,
        // A node has lost its cluster.
        1047 | 3100 => Failure::NotApplied,
        // It shuts down, or an operator ended the statement or the connection, or it was idle for too long.
        1053 | 1317 | 1927 | 3169 | 4031 => Failure::NotApplied,
        // Too many connections, of all or of this user; no memory, no threads.
        1040 | 1203 | 1226 | 1037 | 1038 | 1041 | 1135 => Failure::NotApplied,
        // The disk or the table is full; the storage engine, or a file, fails.
        3 | 1021 | 1026 | 1030 | 1114 => Failure::Full,
        // A password, a right, a host, a kind of authentication, an account that is locked or expired.
        1044 | 1045 | 1129 | 1130 | 1142 | 1143 | 1227 | 1251 | 1275 | 1370 | 1698 | 1820
        | 1862 | 3118 | 3159 | 4151 => Failure::Denied,
        1146 => Failure::Missing,
        // A subquery with two rows: no row of a member has the charter.
        1242 => Failure::NotEnlisted,
        // An overflow: a stripe is missing. Databases, columns and their types.
        1690 | 1046 | 1049 | 1050 | 1054 | 1136 | 1264 | 1364 | 1366 | 1406 => Failure::Layout,
        // A syntax, a setting or a feature that it does not know: too old. A binary log of statements.
        1064 | 1193 | 1231 | 1235 | 1665 => Failure::Layout,
        _ => Failure::Unexpected,
    }
}

/// The same of an error of the commit itself.
fn failure_of_commit(code: u16) -> Failure {
    match failure(code) {
        // The nodes of a cluster vote in the commit.
        Failure::Conflict => Failure::Conflict,
        _ => Failure::Unknown,
    }
}

/// Says more than the failure does.
fn message(code: u16) -> Option<&'static str> {
    Some(match code {
        1205 => "other transactions kept a database lock for too long, nothing was applied",
        1040 | 1203 | 1226 => "the database has no connection left",
        1969 | 3024 => "the statement reached a time limit of the database, nothing was applied",
        1690 => {
            "a row is missing from the stripe table; run the statements that leasehold tables URL prints"
        }
        1665 => {
            "the database's binary log must not be one of statements: set binlog_format to ROW or MIXED"
        }
        1064 | 1193 | 1235 => "the database is too old: MySQL 8.0 or MariaDB 10.6 is needed",
        1049 => "the server has no such database",
        1142 | 1143 | 1227 | 1370 => {
            "the database's user lacks a right: an administrator runs the statements that `leasehold tables` and `leasehold acl` print"
        }
        1044 => "the user has no right to this database",
        1045 | 1698 => "wrong user or password",
        1130 => "the server lets no user in from this host",
        1021 | 1114 => "the database's disk is full",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn kind(code: u16, rows: &[Row]) -> ErrorKind {
        reported(code, rows, "a test").failure().kind()
    }

    #[test]
    fn an_error_before_the_commit_was_not_applied() {
        let rows = [vec![Some("granted".to_owned())]];

        for code in [1205, 1213, 1317, 1927, 1969, 3024] {
            assert_eq!(kind(code, &rows), ErrorKind::Unavailable, "{code}");
        }
        for code in [1290, 1836] {
            assert_eq!(kind(code, &rows), ErrorKind::NotWritable, "{code}");
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
