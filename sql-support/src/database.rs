//! The part of a driver.

use std::fmt::Debug;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{
    Enlistment, Fencing, Finding, Fingerprint, Operation, Standing, StoreId,
};

use crate::news::News;
use crate::reply::{Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed};
use crate::request::{Acquire, Key, List, Named, Renew};

/// A database that keeps leases: the part of a backend that knows a driver. [`Backend`](crate::Backend) does the rest.
///
/// # One transaction, in one piece
///
/// Each of the methods that take a request is one transaction. All of its statements are sent together, with the `COMMIT`:
/// a client that is stopped between two round trips of a transaction would keep a stripe, and so 1/256 of all keys, locked. (A
/// database in the same process decides between statements instead.)
///
/// A transaction that decides has this order, and its correctness hangs on it:
///
/// 1. It locks the row of the key's stripe; the rows of several keys in ascending order, each stripe once. It *fails* if it finds no such
///    row: a table that was emptied grants nothing.
/// 2. It reads the clock, in a statement after that. All that follows uses this one reading `now`.
/// 3. It deletes the rows of the key with `ends <= now`. It must be a deletion, not a condition of later statements: a renewal that is
///    under way, without the stripe, either is waited for and then seen, or finds no row.
/// 4. It looks at the rows that are left, in a statement after 1, and decides by rows alone.
///
/// [`renew`](Self::renew) alone takes no stripe, unless a lease has a [floor](crate::request::Renew::floor): then it locks the stripes of those
/// first. It changes rows with `tag`, `place IS NULL` and `ends > now`, and never takes units.
///
/// # The decisions of a transaction
///
/// `core/src/backends/memory/machine/` is the specification, and the model of the conformance suite compares. In words of the rows of one key,
/// after expiry; *holders* are the rows without a place, the *queue* those with one, in its order:
///
/// - **Calling up**, first in `acquire`, and in `release` after a lease in force was ended: go through the queue, adding up
///   `units` on top of those of all holders, as long as the sum is no more than the row's `capacity`. Each such row that has patience gets
///   `ends = least(ends, now + patience)`. There is room for them.
/// - **Other kind**: there are holders, and they have another `whole` than the claim. Nothing is changed.
/// - **Admission**: the row of the claim's own tag is a holder; or the units of all holders, of all places *before the claim's
///   own* (all, if it has none) and of the claim are together no more than the claim's [capacity](Acquire::capacity).
/// - **Grant**: the row becomes, or stays, a holder: `place` null, `ends = now + ttl`, a new token. A row that is in force already gets no more
///   units than it has. A new holder takes over the largest `asked` of the others.
/// - **Refusal**: a claim with a [queue place](Acquire::place) keeps its place, or gets one behind all others (one more than
///   the last); `ends = now + place.time`, and its `patience`. Any other leaves no row. The reply has the holder whose lease ends first, and the least
///   `ends` of the places before its own, except for a claim of a whole key that is held.
/// - **Tokens**: `token = greatest(last + 1, clock)`, where `last` is the stripe's and `clock` is the [token](crate::request::token_at) of the
///   present time by a clock that goes on for years; the first of the grant is `greatest(last + 1, token - spare)`; the stripe keeps `token`. So tokens stay in order though the counter was lost, and spare ones
///   never run ahead of the clock.
///
/// - **Wish**: a claim's [least token](crate::request::Acquire::least_token), unless it is too far ahead of `clock`, counts as another `clock`
///   for `token`.
/// - **Floor**: a renewal of a lease in force raises the stripe's token to the lease's floor.
///
/// Several keys: no calling up and no places; first all admissions in the order of the claims, then all grants.
///
/// # Membership
///
/// One row says under which charter the tables are a member of a quorum, and which *incarnation* of the database wrote that. An incarnation
/// begins whenever the database may have lost something that it acknowledged, as after a promotion. A row of another incarnation than the
/// present one counts as empty.
///
/// - **Claim under a charter**: fails as [`NotEnlisted`](crate::Failure::NotEnlisted), and changes nothing, unless the row has this charter. It looks after it has
///   locked the stripe. A claim without a charter does not look.
/// - **Standing**: an empty row takes the fresh identity, `since = now`, and no charter.
/// - **Enlistment**: locks all stripes, in ascending order; then as *standing*. If the row has the identity asked for and no other
///   charter, it takes the charter, and all stripes take the floor.
///
/// # Leave nothing behind
///
/// Passing operations clear rows of keys for which no claim comes again: each request that is granted deletes at most two rows, of
/// any key, that ended a minute ago or earlier, without waiting for locks; or one of many deletes as many for all. Two, so that clearing
/// outruns filling.
///
/// # Errors
///
/// Every failure is mapped on purpose; [`Failure`](crate::Failure) has the kinds and their meaning, the modules of the dialects the
/// codes. The question is whether the transaction surely did not commit. A `COMMIT` that answers `ROLLBACK` did not. Errors need no key, operation
/// or backend: [`Backend`](crate::Backend) adds them.
///
/// A method repeats nothing that may have been applied. One that failed as a whole because of a *conflict* (deadlock victim, serialization
/// failure) is asked again within the same call, a few times at most.
///
/// # Time limits
///
/// Every call ends in bounded time. The database is told to give up before the client does (lock, statement and idle time limits set per
/// transaction), so that most failed transactions have surely not been applied. Renewals and releases have a connection that callers that
/// acquire cannot take.
///
/// # News
///
/// See [`News`]. A transaction tells *other* clients; this one learns from the reply ([`Granted::called`](crate::reply::Granted::called) and
/// its like).
///
/// # Cancel safety
///
/// Any future may be dropped: its transaction was then applied as a whole or not at all, and its connection is not used
/// again unless it is known to be outside of a transaction.
#[async_trait]
pub trait Database: Debug + Send + Sync + Sized + 'static {
    /// How to reach it.
    type Config: Clone + Debug + Send + Sync + 'static;

    /// How errors and logs name the backend.
    const NAME: &str;

    /// Adds context to an error of [`open`](Self::open).
    fn connecting(error: Error) -> Error {
        error.with_operation(Operation::Connect).with_backend(Self::NAME)
    }

    /// Reads a URL, as the ecosystem of the database writes them.
    ///
    /// # Errors
    ///
    /// [`Invalid`](leasehold_core::ErrorKind::Invalid) if it cannot be understood. It does not show the URL, which may hold a password.
    fn read_url(url: &str) -> Result<Self::Config, Error>;

    /// Connects, to find out now whether the database is there, lets us in and has the tables; creates them where it may.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if it cannot be reached, [`Denied`](leasehold_core::ErrorKind::Denied) if
    /// it does not let us in, [`Refused`](leasehold_core::ErrorKind::Refused) if the tables are missing and cannot be created.
    async fn open(config: Self::Config) -> Result<Self, Error>;

    /// How far its tokens are in order.
    fn fencing(&self) -> Fencing;

    /// Where its clients hear of changes.
    fn news(&self) -> &News;

    /// Asks for a lease once.
    async fn acquire(&self, claim: Acquire) -> Result<Acquired, Error>;

    /// Asks for leases on several keys, each once, of which all are granted or none is: 1 to [`Acquire::MAX_TOGETHER`].
    async fn acquire_all(&self, claims: Vec<Acquire>) -> Result<AcquiredAll, Error>;

    /// Renews leases in one statement, of which there are 1 to [`Renew::MAX_TOGETHER`]: one result for each, in order.
    ///
    /// If it fails because of one of them, the others are asked for again without it.
    async fn renew(&self, leases: Vec<Renew>) -> Vec<Result<Renewed, Error>>;

    /// Ends a lease or gives up a place, calls up if it was a lease, and clears rows that ended long ago.
    async fn release(&self, lease: Named) -> Result<Released, Error>;

    /// Sets `asked` of all holders to the largest `ends` among them, or that of the lease with the fingerprint `only` to the largest number, so
    /// that later holders do not inherit it.
    async fn request_revocation(&self, key: Key, only: Option<Fingerprint>)
    -> Result<Asked, Error>;

    /// Ends the lease with the fingerprint `only`, or all; places stay. If it ended any, it moves the stripe's token on.
    async fn force_release(&self, key: Key, only: Option<Fingerprint>) -> Result<Forced, Error>;

    /// Reads the holders. It need not lock the stripe and changes nothing.
    async fn inspect(&self, key: Key) -> Result<Inspected, Error>;

    /// Reads the names of keys that have rows in force, each once and in the order of their bytes: at most [`List::KEYS`].
    async fn list(&self, list: List) -> Result<Vec<String>, Error>;

    /// Tells the standing of the tables as a member of a quorum, which take the identity `fresh` if they have none; enlists them first if
    /// that is asked for.
    async fn standing(
        &self,
        fresh: StoreId,
        enlistment: Option<Enlistment>,
    ) -> Result<Standing, Error>;

    /// Checks the settings of the database that can endanger locks, as [`LockBackend::diagnose`](leasehold_core::backend::LockBackend::diagnose).
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Gives up the connections that a runtime drives, if there are such; later calls make others.
    fn disconnect(&self) {}

    /// Closes connections. Calls after it may fail.
    async fn close(&self);
}
