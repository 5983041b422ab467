//! The kinds of transaction failure, independent of the database.

use std::borrow::Cow;
use std::error::Error as StdError;

use leasehold_core::{Error, ErrorKind};

/// Why a transaction failed. Each dialect maps its error codes to these values.
///
/// A failure must indicate whether the transaction is known not to have been committed. The
/// transaction was not committed if the database reports an error before `COMMIT` was sent, or an
/// error for the whole transaction. The outcome is unknown if no reply arrives, if the connection
/// breaks after `COMMIT` may have been sent, or if the disk fails during `COMMIT`.
///
/// ```
/// use leasehold_core::ErrorKind;
/// use leasehold_sql_support::Failure;
///
/// assert_eq!(Failure::Unknown.kind(), ErrorKind::Indeterminate);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// Not applied. A retry may succeed immediately. Examples are a deadlock victim and a
    /// serialization failure.
    Conflict,
    /// Not applied. A row has changed since it was read.
    Changed,
    /// Not applied. The client had no connection, another transaction kept a database lock for too
    /// long, or the server is shutting down.
    NotApplied,
    /// Not applied. The server or the transaction is read-only, for example on a replica or on a
    /// primary that is being demoted.
    ReadOnly,
    /// Not applied. The store has not joined the quorum with the vote's configuration.
    NotMember,
    /// Not applied. The session does not have Leasehold's settings and prepared statements, for
    /// example because a pooler has used a different session.
    Unprepared,
    /// Not applied. The server's queue of notifications is full, because a client does not read its
    /// notifications.
    QueueFull,
    /// Unknown. The connection broke or no reply arrived in time, after the `COMMIT` may have been
    /// sent.
    Unknown,
    /// Not applied, and a retry fails until an operator intervenes. The disk is full, a quota is
    /// exceeded, or the file or database is permanently read-only.
    Full,
    /// Not applied. The password is wrong, a permission is missing, or the host is not allowed.
    Denied,
    /// Not applied. A table is missing.
    Missing,
    /// Not applied. The tables do not have the layout of this version, or a required row
    /// is missing.
    Layout,
    /// Unknown. The data is corrupt, or the database's reply does not match the request.
    Unexpected,
}

impl Failure {
    /// Returns the error kind of this failure.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Conflict
            | Self::Changed
            | Self::NotApplied
            | Self::NotMember
            | Self::Unprepared
            | Self::QueueFull => ErrorKind::Unavailable,
            Self::ReadOnly => ErrorKind::NotWritable,
            Self::Unknown => ErrorKind::Indeterminate,
            Self::Full | Self::Missing | Self::Layout => ErrorKind::Refused,
            Self::Denied => ErrorKind::Denied,
            Self::Unexpected => ErrorKind::Unexpected,
        }
    }

    /// Returns the default message of this failure.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Conflict => "the transaction conflicted with another one; nothing was applied",
            Self::Changed => "another client changed the lock in the meantime",
            Self::NotApplied => "the database rejected the request; nothing was applied",
            Self::ReadOnly => "the database is read-only; connect to the primary",
            Self::NotMember => "the store is not a member of this quorum",
            Self::Unprepared => {
                "a connection pooler changed the connection between two transactions"
            }
            Self::QueueFull => "the database's queue of notifications is full; nothing was applied",
            Self::Unknown => "the database failed, so the outcome is unknown",
            Self::Full => "the database cannot write",
            Self::Denied => "permission denied by the database",
            Self::Missing => {
                "the tables are missing; run the statements that `leasehold tables` prints"
            }
            Self::Layout => "another version of Leasehold created the tables",
            Self::Unexpected => "the database reported an error",
        }
    }

    /// Creates the error of a failed request. `message` is in lower case, does not end with a full
    /// stop and does not contain secrets.
    pub fn error(self, message: impl Into<Cow<'static, str>>) -> Error {
        Error::new(self.kind(), message)
    }

    /// Creates the error of a failed request, with the driver's error as its cause. The cause must
    /// not contain secrets.
    pub fn because(
        self,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        self.error(message).with_source(source)
    }
}
