//! Maps PostgreSQL error codes.

use std::error::Error as StdError;

use crate::failure::Failure;
use crate::remote::RunError;

/// Creates the error for a query batch that failed with this `SQLSTATE`. The transaction was rolled
/// back, unless the code means that the connection was closed.
///
/// ```
/// use leasehold_sql_support::{Failure, postgres};
///
/// assert_eq!(postgres::reported("40P01", "deadlock").failure(), Failure::Conflict);
/// ```
pub fn reported(code: &str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> RunError {
    let failure = failure(code);
    RunError::new(failure, message(code).unwrap_or(failure.message()), source)
}

/// Maps the `SQLSTATE` that the server reported for a transaction.
///
/// If the server reports an error, the transaction was rolled back. The rollback is not certain if
/// the server closes the connection at the same time, because that can happen between the commit
/// and the reply.
fn failure(code: &str) -> Failure {
    match code {
        // A serialization failure or a deadlock victim.
        "40001" | "40P01" => Failure::Conflict,
        // The database is read-only, for example on a standby.
        "25006" => Failure::ReadOnly,
        // The time limits of the database for locks and statements.
        "55P03" | "57014" => Failure::NotApplied,
        // An aborted or open transaction, in a session that other code also uses.
        "25001" | "25P01" | "25P02" => Failure::NotApplied,
        // A prepared statement is missing or already exists, or commits do not wait for the disk,
        // because a pooler has used a different session or has reset the session.
        "26000" | "42P05" | "22012" => Failure::Unprepared,
        // The server is starting or stopping, has too many connections, or is out of memory.
        "57P03" | "53200" | "53300" | "53400" => Failure::NotApplied,
        // A limit that Leasehold's statements reach only with a notification.
        "54000" => Failure::QueueFull,
        // The disk is full.
        "53100" => Failure::Full,
        "42P01" => Failure::Missing,
        // A column, schema or database is missing, or a type is different.
        "42703" | "42804" | "42809" | "42883" | "3F000" | "3D000" => Failure::Layout,
        // A permission is missing, including the permission to connect.
        "42501" | "28000" | "28P01" => Failure::Denied,
        // The server was shut down or crashed, a pooler lost the server, or the disk failed.
        "57P01" | "57P02" | "57P05" | "58030" => Failure::Unknown,
        _ if code.starts_with("08") => Failure::Unknown,
        _ => Failure::Unexpected,
    }
}

/// Returns a message that is more precise than the failure's default message.
fn message(code: &str) -> Option<&'static str> {
    Some(match code {
        "53100" => "the database's disk is full",
        "53300" => {
            "the database has no free connections left; raise max_connections, or the connection limit of the user or of the database"
        }
        "55P03" | "57014" => {
            "the statement exceeded a time limit of the database; nothing was applied"
        }
        "42501" => {
            "the database user lacks a permission; as an administrator, run the statements that `leasehold tables` and `leasehold acl` print"
        }
        "28P01" => "wrong user or password",
        "28000" => {
            "the user does not exist, or the server's pg_hba.conf does not allow the user to connect from this host"
        }
        "3F000" => {
            "the schema of the tables does not exist; run the statements that `leasehold tables` prints"
        }
        "3D000" => "the server does not have this database",
        "57P03" => "the server is starting up or shutting down",
        _ => return None,
    })
}
