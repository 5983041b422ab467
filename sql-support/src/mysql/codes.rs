//! Maps MySQL and MariaDB error numbers.

use std::error::Error as StdError;

use crate::failure::Failure;
use crate::remote::{Row, RunError};

/// Creates the error for a query batch that failed with this error number. `rows` contains the rows
/// that arrived before the error, which show whether the commit failed.
///
/// ```
/// use leasehold_sql_support::{Failure, mysql};
///
/// assert_eq!(mysql::reported(1213, &[], "deadlock").failure(), Failure::Conflict);
/// ```
pub fn reported(
    code: u16,
    rows: &[Row],
    source: impl Into<Box<dyn StdError + Send + Sync>>,
) -> RunError {
    let failure = if end_before_commit(rows) { failure_of_commit(code) } else { failure(code) };
    let message = if failure == Failure::Unknown { None } else { message(code) };
    RunError::new(failure, message.unwrap_or(failure.message()), source)
}

/// Returns whether all rows that precede the commit have arrived, so that only the commit can have
/// failed.
fn end_before_commit(rows: &[Row]) -> bool {
    rows.last().is_some_and(|row| row.first().and_then(Option::as_deref) == Some("commit"))
}

/// Maps an error number that the server reported before the commit.
///
/// A statement that is a transaction of its own may also fail in its commit. The server checks
/// whether the statement was killed or has exceeded its time limit before the commit, and reports
/// conflicts of a cluster and an unknown error (1180) during the commit.
///
/// The failed statement was the last statement that ran. The transaction is either rolled back or
/// still open, in which case closing the connection rolls it back.
fn failure(code: u16) -> Failure {
    match code {
        // A lock wait timeout, a deadlock victim, a changed row, or a conflict in a cluster.
        1205 | 1213 | 1020 | 3101 => Failure::Conflict,
        // The time limits of MariaDB and MySQL.
        1969 | 3024 => Failure::NotApplied,
        // The server or the transaction is read-only.
        1290 | 1792 | 1836 => Failure::ReadOnly,
        // A node has lost its cluster.
        1047 | 3100 => Failure::NotApplied,
        // The server is shutting down, an operator killed the statement or the connection, or the
        // connection was idle for too long.
        1053 | 1317 | 1927 | 3169 | 4031 => Failure::NotApplied,
        // Too many connections in total or for this user, out of memory, or out of threads.
        1040 | 1203 | 1226 | 1037 | 1038 | 1041 | 1135 => Failure::NotApplied,
        // The disk or the table is full, or the storage engine or a file failed.
        3 | 1021 | 1026 | 1030 | 1114 => Failure::Full,
        // A wrong password, permission, host or authentication method, or an account that is locked
        // or expired.
        1044 | 1045 | 1129 | 1130 | 1142 | 1143 | 1227 | 1251 | 1275 | 1370 | 1698 | 1820
        | 1862 | 3118 | 3159 | 4151 => Failure::Denied,
        1146 => Failure::Missing,
        // A row has changed since it was read (overflow).
        1690 => Failure::Changed,
        // A database is missing, or a column has a different type.
        1046 | 1049 | 1050 | 1054 | 1136 | 1264 | 1364 | 1366 | 1406 => Failure::Layout,
        // The pages of the server are too small for the keys.
        1071 | 1709 => Failure::Layout,
        // The server is too old for the syntax, settings or features, or its binary log is
        // statement-based.
        1064 | 1193 | 1231 | 1235 | 1665 => Failure::Layout,
        // A prepared statement is missing, the server has too many of them, or a proxy does not
        // support them.
        1243 | 1295 | 1461 => Failure::Unprepared,
        _ => Failure::Unexpected,
    }
}

/// Maps an error number that the server reported for the commit.
fn failure_of_commit(code: u16) -> Failure {
    match failure(code) {
        // The nodes of a cluster detect conflicts during the commit.
        Failure::Conflict => Failure::Conflict,
        _ => Failure::Unknown,
    }
}

/// Returns a message that is more precise than the failure's default message.
fn message(code: u16) -> Option<&'static str> {
    Some(match code {
        1205 => "another transaction held a database lock for too long; nothing was applied",
        1040 => "the database has no free connections left; raise max_connections",
        1203 => "the user has no free connections left; raise max_user_connections",
        1226 => {
            "the user has reached a limit of its account; raise the limit, such as MAX_USER_CONNECTIONS"
        }
        1969 | 3024 => "the statement exceeded a time limit of the database; nothing was applied",
        1665 => {
            "the database's binary log must not be statement-based; set binlog_format to ROW or MIXED"
        }
        1071 | 1709 => {
            "the database's pages are too small for the tables; use a server with innodb_page_size of at least 8 KiB"
        }
        1064 | 1193 | 1235 => "the database is too old; MySQL 8.0 or MariaDB 10.6 is required",
        1049 => "the server does not have this database",
        1142 | 1143 | 1227 | 1370 => {
            "the database user lacks a permission; as an administrator, run the statements that `leasehold tables` and `leasehold acl` print"
        }
        1044 => "the user has no permission to use this database",
        1045 | 1698 => "wrong user or password",
        1130 => "the server does not allow connections from this host",
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
        for code in [3, 1021, 1071, 1114, 1146, 1665, 1709] {
            assert_eq!(kind(code, &[]), ErrorKind::Refused, "{code}");
        }
        for code in [1044, 1045, 1142] {
            assert_eq!(kind(code, &[]), ErrorKind::Denied, "{code}");
        }
    }
}
