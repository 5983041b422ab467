//! The meaning of a failed transaction, in any database.

use std::borrow::Cow;
use std::error::Error as StdError;

use leasehold_core::{Error, ErrorKind};

/// The outcome of a transaction that failed. A dialect has one for each of its codes.
///
/// The question that decides: did it surely not commit? An error that the database *reports* before `COMMIT` was sent, or
/// that it reports for the transaction as a whole, is sure. Silence, a broken connection after `COMMIT` may have been sent and an error of
/// the disk in `COMMIT` are not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// Not applied, and the same transaction may well succeed at once: deadlock victim, serialization failure.
    Conflict,
    /// Not applied: no connection, a database lock that others kept for too long, a server that shuts down.
    NotApplied,
    /// Not applied: the server or the transaction is read-only, as on a replica or on a primary that steps down.
    ReadOnly,
    /// Not applied: the store is not enlisted under the charter that the claim names.
    NotEnlisted,
    /// Not applied: the connection lacks statements that it was to have prepared, or had them before.
    Unprepared,
    /// Unknown: the connection broke, or no reply came in time, after the `COMMIT` may have been sent.
    Unknown,
    /// Not applied, until an operator acts: disk full, file or database read-only for good, quota.
    Full,
    /// Not applied: wrong password, a missing right, a host that is not let in.
    Denied,
    /// Not applied: a table is not there.
    Missing,
    /// Not applied: the tables are not as this version knows them; an empty stripe table.
    Layout,
    /// The data is damaged, or the database answered something else than it was asked: the outcome is unknown.
    Unexpected,
}

impl Failure {
    /// How the contract calls it.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Conflict | Self::NotApplied | Self::NotEnlisted | Self::Unprepared => {
                ErrorKind::Unavailable
            }
            Self::ReadOnly => ErrorKind::NotWritable,
            Self::Unknown => ErrorKind::Indeterminate,
            Self::Full | Self::Missing | Self::Layout => ErrorKind::Refused,
            Self::Denied => ErrorKind::Denied,
            Self::Unexpected => ErrorKind::Unexpected,
        }
    }

    /// The message of an error about which nothing else is known.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Conflict => "the transaction conflicted with others, nothing was applied",
            Self::NotApplied => "the database refused, nothing was applied",
            Self::ReadOnly => "the database is read-only; connect to the primary",
            Self::NotEnlisted => "the store is not a member of this quorum",
            Self::Unprepared => "a pooler changed the connection between two transactions",
            Self::Unknown => "the database failed, outcome unknown",
            Self::Full => "the database cannot write",
            Self::Denied => "permission denied by the database",
            Self::Missing => {
                "the tables are missing; run the statements that leasehold tables URL prints"
            }
            Self::Layout => "another version of Leasehold created the tables",
            Self::Unexpected => "the database reported an error",
        }
    }

    /// Creates the error of a request that failed so; `message` is lower case, without a full stop, and without a secret.
    pub fn error(self, message: impl Into<Cow<'static, str>>) -> Error {
        Error::new(self.kind(), message)
    }

    /// The same, with the driver's error as its cause, which must not hold a secret.
    pub fn because(
        self,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        self.error(message).with_source(source)
    }
}
