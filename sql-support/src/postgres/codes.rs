//! The meaning of each error's code.

use std::error::Error as StdError;

use crate::failure::Failure;
use crate::remote::RunError;

/// Creates the error of a text for which the server reported the error with this `SQLSTATE`: it has rolled back, except where the code
/// says that the connection ended, too.
pub fn reported(code: &str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> RunError {
    let failure = failure(code);
    RunError::new(failure, message(code).unwrap_or(failure.message()), source)
}

/// Finds the failure of a transaction for which the server reported the error with this `SQLSTATE`.
///
/// An error that the server reports is one of a transaction that it has rolled back. Not so when it ends the connection at the same
/// time: that may be between the commit and its reply.
fn failure(code: &str) -> Failure {
    match code {
        // Serialization failure, deadlock victim.
        "40001" | "40P01" => Failure::Conflict,
        // The database is read-only, including a standby.
        "25006" => Failure::ReadOnly,
        // The time limits of the database for locks and statements.
        "55P03" | "57014" => Failure::NotApplied,
        // An aborted or an open transaction in a session that is not ours alone.
        "25001" | "25P01" | "25P02" => Failure::NotApplied,
        // A prepared statement is missing, or is there already: a pooler has handed the transaction to another connection.
        "26000" | "42P05" => Failure::Unprepared,
        // It is about to start or to end; too many connections, no memory.
        "57P03" | "53200" | "53300" | "53400" => Failure::NotApplied,
        // The disk is full.
        "53100" => Failure::Full,
        "42P01" => Failure::Missing,
        // The logarithm of zero: no row of a member has the charter.
        "2201E" => Failure::NotEnlisted,
        // Division by zero: a stripe is missing. Columns, the schema, the database, their kind.
        "22012" | "42703" | "42804" | "42809" | "42883" | "3F000" | "3D000" => Failure::Layout,
        // A right is missing, also the right to connect.
        "42501" | "28000" | "28P01" => Failure::Denied,
        // It was shut down, crashed, or a pooler lost the server; the disk failed.
        "57P01" | "57P02" | "57P05" | "58030" => Failure::Unknown,
        _ if code.starts_with("08") => Failure::Unknown,
        _ => Failure::Unexpected,
    }
}

/// Says more than the failure does.
fn message(code: &str) -> Option<&'static str> {
    Some(match code {
        "53100" => "the database's disk is full",
        "53300" => "the database has no connection left",
        "55P03" | "57014" => {
            "the statement reached a time limit of the database, nothing was applied"
        }
        "22012" => {
            "a row is missing from the stripe table; run the statements that leasehold tables URL prints"
        }
        "42501" => {
            "the database user lacks a permission; run the statements that leasehold tables and leasehold acl print as an administrator"
        }
        "28P01" => "wrong user or password",
        "28000" => "the server's pg_hba.conf does not allow this user to connect from this host",
        "3F000" => {
            "the user sees no schema for the tables: name one that is there, and grant USAGE on it"
        }
        "3D000" => "the server has no such database",
        "57P03" => "the server is about to start or to end",
        _ => return None,
    })
}
