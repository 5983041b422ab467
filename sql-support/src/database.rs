//! The part of a backend that depends on the driver.

use std::fmt::Debug;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{
    Enlistment, Fencing, Finding, Fingerprint, Operation, Standing, StoreId,
};

use crate::news::News;
use crate::reply::{Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed};
use crate::request::{Acquire, Key, List, Named, Renew};

/// A database that stores leases: the part of a backend that depends on a driver.
/// [`Backend`](crate::Backend) adds everything else.
///
/// The `leasehold-sqlite` crate contains a complete implementation.
///
/// # Transactions
///
/// Each method that has a request runs one transaction. All of its statements are sent together
/// with the `COMMIT`. Otherwise, a client that is paused between two round trips would keep a
/// lock-table partition locked, which contains 1/256 of all keys. A database in the same process
/// may decide between the statements instead.
///
/// A transaction that makes a decision must use this order:
///
/// 1. Lock the partition row of the key. For several keys, lock each partition once, in ascending
///    order. *Fail* if a row is missing, because an empty table must not grant anything.
/// 2. Read the clock in a later statement. All later statements use this single value, `now`.
/// 3. Delete the rows of the key with `ends <= now`. A condition in later statements would not be
///    sufficient. The deletion waits for a concurrent renewal, which does not lock the partition,
///    and then sees its result. A renewal after the deletion finds no row.
/// 4. Read the remaining rows in a statement after step 1, and decide by these rows only.
///
/// [`renew`](Self::renew) does not lock partitions. Leases with a [minimum
/// token](crate::request::Renew::floor) are an exception, because `renew` locks their partitions
/// first. It changes rows with `tag`, `place IS NULL` and `ends > now`, and never increases the
/// number of permits.
///
/// # Decisions
///
/// `core/src/backends/memory/machine/` is the specification, and the conformance suite compares
/// backends with a model of it. The following rules describe it in terms of the rows of one key,
/// after expired rows were deleted. *Holders* are the rows without a `place`. The *queue* consists
/// of the rows with a `place`, in this order.
///
/// - **Waking** is the first step of `acquire`, and follows in `release` after a lease in force was
///   ended. Go through the queue, and add its `units` to the units of all holders as long as the
///   sum does not exceed the row's `capacity`. These rows can be granted now. Each of them that has
///   a patience gets `ends = least(ends, now + patience)`.
/// - **Other lock type**: There are holders whose `whole` differs from the claim's. Nothing is
///   changed.
/// - **Admission**: The row with the claim's tag is a holder. Or there are enough free permits: the
///   units of all holders, of all queue entries *before the claim's entry*, and of the claim do not
///   exceed its [capacity](Acquire::capacity). A claim without an entry counts as the last one.
/// - **Grant**: The row becomes or stays a holder with `place` null, `ends = now + ttl` and a new
///   token. A row that is already in force never gets more units than it has. A new holder gets the
///   largest `asked` of the other holders.
/// - **Refusal**: A claim with a [queue entry](Acquire::place) keeps its position, or gets the
///   position after the last one. Its row gets `ends = now + place.time` and its `patience`. Every
///   other claim leaves no row. The reply contains the holder whose lease expires first. It also
///   contains the smallest `ends` of the queue entries before the claim's, except for an exclusive
///   claim of a held key.
/// - **Tokens**: `token = greatest(last + 1, clock)`. `last` is the last token of the partition.
///   `clock` is the [token](crate::request::token_at) of the current time, by a clock that
///   continues for years. The first token of the grant is `greatest(last + 1, token - spare)`, and
///   the partition stores `token`. Tokens therefore stay in order even if the counter is lost, and
///   spare tokens never run ahead of the clock.
/// - **Requested minimum token**: The claim's [minimum token](crate::request::Acquire::least_token)
///   replaces `clock` if it is larger, unless it is too far ahead of `clock`.
/// - **Minimum token**: A renewal of a lease in force raises the partition's token to the lease's
///   minimum token.
///
/// For several keys, there is no waking and no queue. First all admissions are decided in the order
/// of the claims, and then all leases are granted.
///
/// # Membership
///
/// One row contains the quorum configuration under which the tables are a member of a quorum, and
/// the *incarnation* of the database that wrote the row. A new incarnation starts whenever the
/// database may have lost acknowledged data, for example after a promotion. A row of an earlier
/// incarnation counts as empty.
///
/// - **Claim with a quorum configuration**: Unless the row contains this configuration, the claim
///   fails with [`NotEnlisted`](crate::Failure::NotEnlisted) and changes nothing. The row is read
///   after the partition was locked. A claim without a configuration does not read the row.
/// - **Membership status**: An empty row gets the fresh identity, `since = now`, and no
///   configuration.
/// - **Join**: Locks all partitions in ascending order, and continues like *membership status*. If
///   the row has the requested identity and no other configuration, it gets the configuration, and
///   all partitions get the minimum token.
///
/// # Cleanup
///
/// Some keys are never claimed again, so other operations delete their expired rows. Each granted
/// request deletes up to two rows of any key that expired at least one minute ago, without waiting
/// for locks. Alternatively, one of many requests deletes the rows for all of them. With two rows
/// per request, expired rows cannot accumulate.
///
/// # Errors
///
/// Every failure is mapped deliberately. [`Failure`](crate::Failure) lists the kinds, and the
/// modules of the dialects list the error codes. The important question is whether the transaction
/// was certainly not committed. A `COMMIT` that returns `ROLLBACK` was not. Errors do not need the
/// key, the operation or the backend, because [`Backend`](crate::Backend) adds them.
///
/// A method never repeats a transaction that may have been applied. A transaction that failed
/// because of a *conflict* (deadlock victim, serialization failure) is repeated a few times within
/// the call.
///
/// # Time limits
///
/// Every call returns within a bounded time. The time limits for locks, statements and idle
/// transactions are set per transaction, so that the database gives up before the client. Most
/// failed transactions are therefore certainly not applied. Renewals and releases have connections
/// that acquisitions cannot use.
///
/// # Notifications
///
/// [`News`] describes how changes are reported. A transaction notifies *other* clients. This client
/// gets the changes from the reply, for example from
/// [`Granted::called`](crate::reply::Granted::called).
///
/// # Cancel safety
///
/// Any future may be dropped. Its transaction is then applied completely or not at all. Its
/// connection is not used again unless it is known to be outside of a transaction.
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

    /// Connects to the database, checks the credentials, and creates missing tables if this is
    /// allowed.
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

    /// Tries once to acquire a lease.
    async fn acquire(&self, claim: Acquire) -> Result<Acquired, Error>;

    /// Tries once to acquire leases on several different keys, all or none. There are 1 to
    /// [`Acquire::MAX_TOGETHER`] claims.
    async fn acquire_all(&self, claims: Vec<Acquire>) -> Result<AcquiredAll, Error>;

    /// Renews 1 to [`Renew::MAX_TOGETHER`] leases with one statement. Returns one result per lease,
    /// in order.
    ///
    /// If the statement fails because of one lease, the other leases are renewed again without it.
    async fn renew(&self, leases: Vec<Renew>) -> Vec<Result<Renewed, Error>>;

    /// Ends a lease or removes a queue entry, wakes waiters if it was a lease, and deletes old
    /// expired rows.
    async fn release(&self, lease: Named) -> Result<Released, Error>;

    /// Asks holders to finish. Without `only`, sets `asked` of all holders to the largest `ends`
    /// among them. With `only`, sets `asked` of this lease to the largest possible number, so that
    /// later holders do not inherit it.
    async fn request_revocation(&self, key: Key, only: Option<Fingerprint>)
    -> Result<Asked, Error>;

    /// Revokes the lease with the fingerprint `only`, or all leases. Queue entries stay. If a lease
    /// was revoked, the partition's token is increased.
    async fn force_release(&self, key: Key, only: Option<Fingerprint>) -> Result<Forced, Error>;

    /// Returns the holders. This method changes nothing and does not have to lock the partition.
    async fn inspect(&self, key: Key) -> Result<Inspected, Error>;

    /// Returns the names of at most [`List::KEYS`] keys with rows in force, each once and in byte
    /// order.
    async fn list(&self, list: List) -> Result<Vec<String>, Error>;

    /// Returns the membership status of the tables. Tables without an identity get the identity
    /// `fresh`. If `enlistment` is given, the tables join the quorum first.
    async fn standing(
        &self,
        fresh: StoreId,
        enlistment: Option<Enlistment>,
    ) -> Result<Standing, Error>;

    /// Checks the settings of the database that can endanger locks.
    /// [`LockBackend::diagnose`](leasehold_core::backend::LockBackend::diagnose) describes the
    /// findings.
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Drops the connections that belong to a runtime, if there are any. Later calls open new ones.
    fn disconnect(&self) {}

    /// Closes all connections. Later calls may fail.
    async fn close(&self);
}
