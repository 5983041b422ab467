//! The driver-specific part of a backend.

use std::fmt::Debug;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{
    Enlistment, Fencing, Finding, Fingerprint, Operation, Standing, StoreId,
};

use crate::news::News;
use crate::reply::{Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed};
use crate::request::{Acquire, Key, List, Named, Renew};

/// A database that stores leases. Implementations of this trait contain the driver-specific part of
/// a backend, and [`Backend`](crate::Backend) adds everything else.
///
/// The `leasehold-sqlite` crate contains a complete implementation.
///
/// # Transactions
///
/// Each method that receives a request runs one transaction. The client sends all statements
/// together with the `COMMIT`. If the client sent the statements separately and were paused between
/// two round trips, it would keep a lock-table partition locked, and thereby block 1/256 of all
/// keys. If the database runs in the client's process, there are no round trips, so the client may
/// make decisions between the statements.
///
/// A transaction that makes a decision must use this order:
///
/// 1. Lock the row of the key's lock-table partition. For several keys, lock each partition once,
///    in ascending order. The transaction must *fail* if a row is missing, because no lease may be
///    granted on the basis of an incomplete table.
/// 2. Read the clock in a statement after step 1. All later statements use this single value,
///    `now`.
/// 3. Delete the rows of the key with `ends <= now`. It is not sufficient to ignore expired rows in
///    later statements, because a renewal does not lock the partition. The deletion waits for a
///    concurrent renewal and then sees the renewed row. A renewal after the deletion does not find
///    the row.
/// 4. After step 1, read the remaining rows in a separate statement, and base the decision only on
///    these rows.
///
/// [`renew`](Self::renew) does not lock any partition, except for leases with a [minimum
/// token](crate::request::Renew::floor). `renew` changes the row with the `tag` if `place IS NULL`
/// and `ends > now`, and never increases the number of permits.
///
/// # Decisions
///
/// `core/src/backends/memory/machine/` is the specification, and the conformance suite compares
/// backends with a model of the specification. The following rules describe the specification in
/// terms of the rows of one key, after expired rows have been deleted. *Holders* are the rows
/// without a `place`. The *queue* consists of the rows with a `place`, ordered by `place`.
///
/// - **Waking**: `acquire` wakes queue entries in its first step, and `release` wakes them after it
///   has ended a lease that had not expired. To wake queue entries, go through the queue in order
///   and add each row's `units` to a sum, as long as the sum does not exceed the row's `capacity`.
///   The sum starts with the units of all holders. The claims of the rows that are included in the
///   sum can now be granted. If such a row has a `patience`, its `ends` becomes
///   `least(ends, now + patience)`.
/// - **Different lock type**: If the key has holders whose `whole` differs from the claim's, the
///   key is in use as a different lock type, and nothing changes.
/// - **Admission**: A claim is admitted if the row with its tag is already a holder, or if enough
///   permits are free. Enough permits are free if the units of all holders, of all queue entries
///   *before the claim's entry*, and of the claim add up to at most the claim's
///   [capacity](Acquire::capacity). A claim without a queue entry is treated as the last entry of
///   the queue.
/// - **Grant**: The claim's row becomes or remains a holder: `place` is set to null and `ends` to
///   `now + ttl`, and the row gets a new token. If the row was already a holder, its number of
///   permits (`units`) never increases. A new holder's `asked` is set to the largest `asked` value
///   among the existing holders.
/// - **Refusal**: If a claim that [may be queued](Acquire::place) is already in the queue, it keeps
///   its position. Otherwise, the claim is appended to the queue. The claim's row gets
///   `ends = now + place.time` and its `patience`. A claim that must not be queued leaves no row.
///   The reply contains the holder whose lease expires first. Unless the claim is exclusive and the
///   key is held, the reply also contains the smallest `ends` of all queue entries before the
///   claim's entry.
/// - **Tokens**: `token = greatest(last + 1, clock)`. `last` is the partition's last token. `clock`
///   is the [token](crate::request::token_at) for the current time since 1970, so it does not start
///   again at zero when a machine restarts. The first token of the grant is
///   `greatest(last + 1, token - spare)`, and the partition stores `token`. Tokens therefore remain
///   in order even if the counter is lost, and additional tokens are never ahead of the clock.
/// - **Requested minimum token**: The claim's [requested minimum
///   token](crate::request::Acquire::least_token) replaces `clock` if the requested token is larger
///   but not too far ahead of `clock`.
/// - **Minimum token**: Renewing a lease that has not expired raises the partition's token to at
///   least the lease's minimum token.
///
/// A claim for several keys neither wakes nor creates queue entries. The transaction first checks,
/// in order, whether each claim can be admitted. If all claims can be admitted, all leases are
/// granted.
///
/// # Membership
///
/// One row contains the configuration of the quorum that the database belongs to. The row also
/// contains the name of the *incarnation* in which the database wrote the row. A new incarnation
/// starts whenever the database may have lost acknowledged data, for example after a promotion. A
/// row from an earlier incarnation counts as empty.
///
/// - **Claim with a quorum configuration**: Unless the row contains this configuration, the claim
///   fails with [`NotEnlisted`](crate::Failure::NotEnlisted) and changes nothing. The transaction
///   reads the row after it has locked the partition.
/// - **Claim without a quorum configuration**: The transaction does not read the row.
/// - **Membership status**: If the row is empty, the transaction sets the identity to `fresh` and
///   `since` to `now`, and removes the configuration.
/// - **Join**: The transaction locks all partitions in ascending order, and then proceeds as for a
///   *membership status* request. The database joins if the row has the requested identity and if
///   its configuration is either not set or equal to the requested configuration. To join, the
///   transaction writes the requested configuration to the row and raises the token of each
///   partition to at least the minimum token.
///
/// # Cleanup
///
/// Some keys are never claimed again, so requests also delete expired rows of unrelated keys. Each
/// granted request deletes up to two rows that expired at least one minute ago, regardless of their
/// keys. The deletion does not wait for database locks. Instead, an implementation may delete more
/// than two rows at a time, but only with some of the granted requests. Expired rows cannot
/// accumulate if the limit is two rows per granted request on average.
///
/// # Errors
///
/// Implementations must map every failure to a specific kind. [`Failure`](crate::Failure) lists the
/// kinds, and the modules of the dialects list the error codes. A failure must indicate whether the
/// transaction is known not to have been committed. If `COMMIT` returns `ROLLBACK`, the transaction
/// was not committed. Errors do not need to name the key, the operation or the backend, because
/// [`Backend`](crate::Backend) adds them.
///
/// A method never retries a transaction that may have been applied. If a transaction fails because
/// of a *conflict* (deadlock victim, serialization failure), the method retries it a few times.
///
/// # Time limits
///
/// Every call returns within a bounded time. The time limits for locks, statements and idle
/// transactions are set per transaction, so that the database gives up before the client.
/// Therefore, most failed transactions are known not to have been applied. Renewals and releases
/// use separate connections, which acquisitions cannot use.
///
/// # Notifications
///
/// [`News`] describes how changes are reported. A transaction notifies *other* clients. The client
/// that runs the transaction reads the changes from the reply, for example from
/// [`Granted::called`](crate::reply::Granted::called).
///
/// # Cancel safety
///
/// Any future may be dropped, in which case its transaction is applied either completely or not at
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

    /// Tries once to acquire a lease.
    async fn acquire(&self, claim: Acquire) -> Result<Acquired, Error>;

    /// Tries once to acquire either all or none of several leases on different keys. There are 1 to
    /// [`Acquire::MAX_TOGETHER`] claims.
    async fn acquire_all(&self, claims: Vec<Acquire>) -> Result<AcquiredAll, Error>;

    /// Renews 1 to [`Renew::MAX_TOGETHER`] leases with one statement. Returns one result per lease,
    /// in the order of `leases`.
    ///
    /// If the statement fails because of one lease, the remaining leases are renewed again without
    /// that lease.
    async fn renew(&self, leases: Vec<Renew>) -> Vec<Result<Renewed, Error>>;

    /// Releases a lease or removes a queue entry, and deletes old expired rows. Wakes waiters if a
    /// lease was released.
    async fn release(&self, lease: Named) -> Result<Released, Error>;

    /// Requests the revocation of leases. Without `only`, sets `asked` of every holder to the
    /// largest `ends` of all holders. With `only`, sets `asked` of this lease to the largest
    /// possible number, so that later holders do not inherit the request.
    async fn request_revocation(&self, key: Key, only: Option<Fingerprint>)
    -> Result<Asked, Error>;

    /// Revokes the lease with the fingerprint `only`, or all leases. Queue entries remain. If a
    /// lease was revoked, the partition's token is increased.
    async fn force_release(&self, key: Key, only: Option<Fingerprint>) -> Result<Forced, Error>;

    /// Returns the holders. This method changes nothing and does not have to lock the partition.
    async fn inspect(&self, key: Key) -> Result<Inspected, Error>;

    /// Returns the names of at most [`List::KEYS`] keys with rows in force, in byte order and
    /// without duplicates.
    async fn list(&self, list: List) -> Result<Vec<String>, Error>;

    /// Returns the membership status of the tables. Tables without an identity get the identity
    /// `fresh`. If `enlistment` is given, the tables join the quorum first.
    async fn standing(
        &self,
        fresh: StoreId,
        enlistment: Option<Enlistment>,
    ) -> Result<Standing, Error>;

    /// Checks the database's settings for values that can endanger locks.
    /// [`LockBackend::diagnose`](leasehold_core::backend::LockBackend::diagnose) describes what the
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
