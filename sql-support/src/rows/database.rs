//! The driver-specific part of a backend.

use std::fmt::Debug;

use async_trait::async_trait;
use leasehold_core::backend::{Fencing, Finding, JoinRequest, MemberStatus, Operation, StoreId};
use leasehold_core::{Error, LockKey};

use crate::news::News;
use crate::request::List;
use crate::rows::request::{Acquire, Change, Granted, Named, Renew};
use crate::rows::row::{Clock, State};

/// A database that stores leases, with one row per key. Implementations of this trait contain the
/// driver-specific part of a backend, and [`Backend`](crate::rows::Backend) adds everything else.
///
/// The `leasehold-sqlite` crate contains a complete implementation.
///
/// # Exclusion
///
/// A row changes only if, at the time of the write, one of these conditions holds:
///
/// - Nothing of the row is in force: `ends <= now`.
/// - The row has the tag of the caller's lease.
/// - The row has the version that the client has read.
///
/// Each condition is evaluated on the current row, under the database's lock on the row. `now` is
/// the database's clock at that time or shortly before. No lock remains between two statements of a
/// client that the network separates, so a paused client does not block others.
///
/// # Tokens
///
/// The token of a grant is larger than the last token of the row, and at least the
/// [token](crate::request::token_at) of the current time since 1970. If the statement creates the row, or
/// the claim belongs to a quorum, the token is also larger than the minimum token of the tables.
/// Tokens therefore remain in order even if commits are lost. The minimum token must be read after
/// the new row is in the table, or under a lock that the purge respects. Otherwise, a purge could
/// delete a row with a larger token in the meantime.
///
/// # Membership
///
/// One row contains the configuration of the quorum that the database belongs to. The row also
/// contains the name of the *incarnation* in which the database wrote the row. A new incarnation
/// starts whenever the database may have lost acknowledged data, for example after a promotion. A
/// row from an earlier incarnation counts as empty.
///
/// - A claim with a [membership](Acquire::membership) is granted only if the row contains this
///   configuration. [`change`](Self::change) fails with
///   [`NotMember`](crate::Failure::NotMember), and [`acquire_free`](Self::acquire_free) may also
///   return `None`.
/// - **Membership status**: If the row is empty, the transaction sets the identity to the new one
///   and `since` to the current time, and removes the configuration.
/// - **Join**: The database joins if the row has the requested identity, and if its configuration
///   is either not set or equal to the requested configuration. To join, the transaction writes the
///   requested configuration to the row and raises the minimum token.
///
/// # Errors
///
/// Implementations must map every failure to a specific kind. [`Failure`](crate::Failure) lists the
/// kinds. A failure must indicate whether the statement is known not to have been applied. Errors do
/// not need to name the key, the operation or the backend, because
/// [`Backend`](crate::rows::Backend) adds them.
///
/// A method never retries a statement that may have been applied. If a transaction fails because of
/// a *conflict* (deadlock victim, serialization failure), the method retries it a few times.
///
/// # Time limits
///
/// Every call returns within a bounded time, and the database gives up before the client. Therefore,
/// most failed statements are known not to have been applied. Acquisitions cannot occupy the
/// connections that renewals and releases use.
///
/// # Notifications
///
/// [`News`] describes how changes are reported. The client that makes a change notifies its own
/// watches. A database that can notify *other* clients sends [`State::notices`] and
/// [`State::woken`] with the write. A database that polls its rows does not need them. If the
/// database does neither, [`Backend`](crate::rows::Backend) [reads](Self::read) the rows of queued
/// claims at intervals.
///
/// # Cancel safety
///
/// Any future may be dropped, in which case its statement is applied either completely or not at
/// all. After a future is dropped, its connection is reused only if the connection is known to be
/// outside of a transaction.
#[async_trait]
pub trait Database: Debug + Send + Sync + Sized + 'static {
    /// The configuration of a connection to the database.
    type Config: Clone + Debug + Send + Sync + 'static;

    /// The name of the backend in errors and logs.
    const NAME: &str;

    /// Adds context to an error of [`open`](Self::open).
    fn connecting(error: Error) -> Error {
        error.with_operation(Operation::Connect).with_backend(Self::NAME)
    }

    /// Reads a URL in the usual format of the database.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid. The error
    /// does not show the URL, because it may contain a password.
    fn read_url(url: &str) -> Result<Self::Config, Error>;

    /// Connects to the database, checks the credentials, and creates missing tables if `config`
    /// allows it.
    ///
    /// # Errors
    ///
    /// Returns [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if the database cannot be
    /// reached, and [`Denied`](leasehold_core::ErrorKind::Denied) if it rejects the credentials.
    /// Returns [`Refused`](leasehold_core::ErrorKind::Refused) if the tables are missing and cannot
    /// be created.
    async fn open(config: Self::Config) -> Result<Self, Error>;

    /// Returns the strength of the fencing tokens.
    fn fencing(&self) -> Fencing;

    /// Returns the source of change notifications for clients.
    fn news(&self) -> &News;

    /// Grants the whole key with one statement, if nothing of the row is in force, or if the lease
    /// has the key already. Returns `None` otherwise, and the caller continues with
    /// [`change`](Self::change).
    async fn acquire_free(&self, claim: &Acquire) -> Result<Option<Granted>, Error>;

    /// Releases the simple state with one statement, and returns whether the lease was in force.
    /// Returns `None` if the row does not have the tag of this lease, and the caller continues with
    /// [`change`](Self::change).
    async fn release_simple(&self, lease: &Named) -> Result<Option<bool>, Error>;

    /// Renews 1 to [`Renew::MAX_TOGETHER`] leases in the simple state with one statement, and
    /// stores their descriptions. Returns one result per lease, in the order of `leases`, which is
    /// `false` if the lease was not renewed. The caller continues with [`change`](Self::change)
    /// for these leases.
    ///
    /// If the statement fails because of one lease, the remaining leases are renewed again without
    /// that lease.
    async fn renew_simple(&self, leases: &[Renew]) -> Vec<Result<bool, Error>>;

    /// Reads the rows of the keys and the clock, calls `step` with the states in the order of the
    /// keys, and writes all rows that [have changed](State::written) in one atomic step. If `step`
    /// fails, it must not change the states, because the steps of several callers may be written together.
    ///
    /// A database in the client's process does this in one transaction. A database server compares
    /// the version of each row when it writes. If a row has changed in the meantime, the method
    /// reads the rows and calls `step` again.
    async fn change<T, F>(&self, change: Change, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send + 'static;

    /// Reads the state of a key. This method changes nothing.
    async fn read(&self, key: &LockKey) -> Result<(State, Clock), Error>;

    /// Returns the names of at most [`List::KEYS`] keys with leases or queue entries in force, in
    /// byte order.
    async fn list(&self, list: List) -> Result<Vec<String>, Error>;

    /// Returns the membership status of the tables. Tables without an identity get the identity
    /// `fresh`. If `request` is given, the tables join the quorum first.
    async fn member_status(
        &self,
        fresh: StoreId,
        request: Option<JoinRequest>,
    ) -> Result<MemberStatus, Error>;

    /// Checks the database's settings for values that can endanger locks.
    /// [`StoreAdmin::diagnose`](leasehold_core::backend::StoreAdmin::diagnose) describes what the
    /// findings contain.
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Drops the connections that depend on a runtime, if there are any. Later calls open new
    /// connections.
    fn disconnect(&self) {}

    /// Closes all connections. Later calls may fail.
    async fn close(&self);
}
