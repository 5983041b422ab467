//! The contract between Leasehold and a store: the [`LockBackend`] trait, its requests and its
//! replies.
//!
//! Use this module to write a backend for another store. Code that only uses locks does not need
//! this module, except for `Arc<dyn LockBackend>`, which can hold any backend.

mod attempt;
mod capabilities;
mod claim;
mod contention;
mod dial;
mod finding;
mod grant;
mod hub;
mod key_page;
mod lease;
mod membership;
mod runtime;
mod share;
mod shared;
mod tally;
mod unreachable;
mod watch;
mod watches;

pub use attempt::{Attempt, AttemptAll, Release, Renewal};
pub use capabilities::{Capabilities, Feature, Fencing};
pub use claim::{Claim, Patience};
pub use contention::{CalledBy, Contention};
pub use dial::Dial;
pub use finding::{Finding, Verdict};
pub use grant::Grant;
pub use key_page::KeyPage;
pub use lease::{Fingerprint, Lease, LeaseId, Tenure};
pub use membership::{Charter, Enlistment, Standing, StoreId};
pub use runtime::{check_io, check_timer};
pub use share::Share;
pub use unreachable::why_unreachable;
pub use watch::KeyWatch;
pub(crate) use watch::{Heeded, Replaced};
pub use watches::KeyWatches;

pub use crate::contract::error::Operation;

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::contract::error::{Error, ErrorKind};
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A store of leases.
///
/// Implement this trait to use Leasehold with another store. Four methods are required:
/// [`capabilities`](Self::capabilities), [`try_acquire`](Self::try_acquire), [`renew`](Self::renew)
/// and [`release`](Self::release). All other methods have defaults.
///
/// A backend sends requests to its store and returns the replies. Waiting for a key, retrying,
/// renewing leases and counting holders are tasks of Leasehold's core, not of a backend.
///
/// # Correctness
///
/// The core relies on the following rules, which the conformance suite checks.
///
/// - **Atomic steps.** Each `try_acquire`, `renew` or `release` is one atomic step in the store. To
///   identify a lease, each step compares the complete lease id, or a different value that is
///   unique to the lease.
///
/// - **Idempotent acquisition.** If `try_acquire` is called again with the same [`LeaseId`] before
///   that lease has expired or been released, the store grants the lease again with a full TTL.
///
/// - **Expiry by the store's clock.** If a lease is not renewed, it expires soon after its TTL has
///   elapsed on the store's clock, and never earlier. The TTL starts when the store receives the
///   request. A [kept](crate::backend::Tenure::Kept) lease is one that its holder keeps renewing.
///   The store may keep this lease in force even if the lease itself is not renewed, as long as the
///   client renews any of its other leases.
///
/// - **Honest errors.** Return [`ErrorKind::Unavailable`] only if the request is known not to have
///   been applied, and [`ErrorKind::Indeterminate`] if the reply was lost. Never report a failed
///   request as an outcome, such as [`Attempt::Held`]. Map each error of the client library to an
///   `ErrorKind` explicitly.
///
/// - **No hidden retries.** The client library must not retry a request unless the retry is proven
///   to be harmless.
///
/// - **One queue per claim.** A backend that wraps several stores queues each claim in at most one
///   of the stores, and forwards [queue entries](Contention::with_place) and [individual
///   notifications](CalledBy::Name) only from that store. If several stores queued the same claims
///   in different orders, callers would wait for each other.
///
/// - **Bounded time.** Every call returns within a bounded time. The caller may drop the future of
///   a call at any point. If the future is dropped, the store may or may not have applied the
///   request.
///
/// # Guarantees
///
/// Together, a backend and Leasehold's core provide the following guarantees. For each guarantee,
/// the table lists the test cases of the conformance suite that check the guarantee.
///
/// | guarantee | checked by |
/// | --- | --- |
/// | P1 A lease can be renewed or released only with the lease id of its acquisition. | `release::a_forged_id_releases_nothing`, `release::a_stale_release_leaves_the_successor`, `retry::releases_and_renewals_may_be_repeated_for_ever` |
/// | P2 A guard never reports a valid lease after its deadline. | `expiry::the_deadline_counts_from_before_the_request`, `expiry::belief_ends_at_the_deadline_though_the_store_still_has_the_lease`, `renewal::a_stalled_process_sees_the_loss_first` |
/// | P3 A loss is reported no later than the first time the runtime runs after the deadline, and is never withdrawn. | `renewal::failing_renewals_make_a_lease_unconfirmed_and_then_lost`, `renewal::an_acknowledgement_after_the_deadline_revives_nothing`, `lost::a_loss_is_seen_however_late_one_asks` |
/// | P4 An unknown outcome is never reported as a success or a failure. | `mutual_exclusion::a_grant_whose_reply_is_lost_is_the_same_acquisition`, `release::a_release_whose_reply_is_lost_stays_unknown_and_is_harmless`, `lost::passing_errors_are_no_loss` |
/// | P5 If a backend declares fencing, each grant of a key has a larger token than all earlier grants of the key. | `fencing::tokens_strictly_increase`, `fencing::tokens_increase_after_expiry`, `fencing::tokens_increase_after_a_restart` |
/// | P6 A future that is dropped at any point leaves at most one lease in the store, for at most one TTL. | `cancellation::an_acquisition_may_be_dropped_at_any_point`, `cancellation::a_release_may_be_dropped_at_any_point`, `cancellation::any_fault_at_any_step_leaves_the_key_usable` |
/// | P7 If the store is reachable and the holder crashes, the key is free within one TTL. | `expiry::a_holder_that_is_gone_frees_the_key_within_a_ttl`, `expiry::an_unrenewed_lease_ends_after_its_ttl_and_not_before` |
/// | P8 A waiting call returns soon after its wait is over, even if no notifications arrive. | `waiting::a_wait_ends_when_it_is_over_and_not_before`, `waiting::a_waiter_without_any_news_polls`, `waiting::a_waiter_is_served_when_a_dead_holder_expires` |
///
/// # Example
///
/// The following backend wraps another backend and prints every attempt.
/// `examples/custom_backend.rs` is a complete backend with its own store, and also runs the
/// conformance suite.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::backend::{
///     Attempt, Capabilities, Claim, Fencing, Lease, LockBackend, Release, Renewal,
/// };
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{Error, LockClient};
///
/// #[derive(Debug)]
/// struct Shown(MemoryBackend);
///
/// #[async_trait::async_trait]
/// impl LockBackend for Shown {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::new("shown", Fencing::Strict)
///     }
///
///     async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
///         let attempt = self.0.try_acquire(claim).await?;
///         match &attempt {
///             Attempt::Granted(grant) => println!("{}: token {}", claim.key(), grant.token()),
///             Attempt::Held(contention) => println!("{}: {:?}", claim.key(), contention.holder()),
///         }
///         Ok(attempt)
///     }
///
///     async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
///         self.0.renew(lease).await
///     }
///
///     async fn release(&self, lease: &Lease) -> Result<Release, Error> {
///         self.0.release(lease).await
///     }
/// }
///
/// let client = LockClient::new(Shown(MemoryBackend::new()));
/// client.mutex("k")?.run(async |guard| println!("{:?} is left", guard.remaining())).await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait LockBackend: Debug + Send + Sync + 'static {
    /// Returns the optional features of this store and the strength of its fencing tokens.
    fn capabilities(&self) -> Capabilities;

    /// Tries once to acquire a lease.
    ///
    /// The attempt is one round trip and one atomic step, and does not wait for the current holder.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the reply was lost. After a lost reply, the caller
    /// retries the same claim or releases its lease. The caller never treats a lost reply as a
    /// refusal.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have granted the lease, so the caller must release
    /// it.
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error>;

    /// Tries once to acquire leases on several different keys. The store grants either all leases
    /// or none.
    ///
    /// The attempt is one round trip and one atomic step. Each claim follows the rules of
    /// [`try_acquire`](Self::try_acquire). A claim whose own lease is already in force is granted
    /// again, and a new claim does not overtake queued claims.
    ///
    /// A refusal names the first claim that cannot be granted, changes nothing in the store, and
    /// does not add any claim to the [queue](crate::backend::Patience::Queues).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`], without sending a request, if the backend does not
    /// declare [`Feature::Together`]. A backend that declares the feature may still return this
    /// error for more than 64 claims or for claims of [units](crate::backend::Share::Units). After
    /// an `Unsupported` error, the caller acquires the leases one at a time.
    ///
    /// Returns [`ErrorKind::WrongType`], with the key, if a key is in use as a different type of
    /// lock.
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the reply was lost. After a lost reply, the store
    /// may have granted all leases.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have granted all leases, so the caller must release
    /// them.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        match claims.first() {
            Some(claim) => {
                Err(unsupported(&self.capabilities(), Operation::Acquire).with_key(claim.key()))
            }
            None => Ok(AttemptAll::Granted(Vec::new())),
        }
    }

    /// Renews a lease that is still in force.
    ///
    /// A renewal restarts the TTL of `lease`, which may be shorter than the remaining time. Unless
    /// the lease is [exclusive](crate::backend::Share::Whole), the store also replaces the
    /// description and the units with the values in `lease`. A renewal can reduce the number of
    /// units but never increase it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the reply was lost. After a lost reply, the previous
    /// deadline still applies.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have renewed the lease. The client's local deadline
    /// does not change.
    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error>;

    /// Releases a lease and removes its claim from the queue.
    ///
    /// The release affects only this exact lease, so repeated and late calls are safe.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the reply was lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have released the lease. The caller must call this
    /// method again.
    async fn release(&self, lease: &Lease) -> Result<Release, Error>;

    /// Renews many leases in as few round trips as possible. Returns one result per lease, in the
    /// same order.
    ///
    /// The default implementation calls [`renew`](Self::renew) for all leases concurrently. A
    /// failed renewal must not cause another renewal to fail.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have renewed any of the leases. The client's local
    /// deadlines do not change.
    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        join_all(leases.iter().map(|lease| self.renew(lease))).await
    }

    /// Starts watching `key`, without performing I/O.
    ///
    /// The default watch never fires, so callers poll. If a backend declares [`Feature::Push`], the
    /// watch must fire when any client releases the key. The watch must also fire if notifications
    /// may have been missed, for example because a connection was lost. [`KeyWatches`] handles the
    /// bookkeeping.
    fn watch(&self, _key: &LockKey) -> KeyWatch {
        KeyWatch::silent()
    }

    /// Starts watching for the event that the caller of `claim` is waiting for, without performing
    /// I/O.
    ///
    /// The default watch fires on every change of the key. A store with a queue can limit the watch
    /// to changes of the claims that are ahead of `claim`.
    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.watch(claim.key())
    }

    /// Starts watching for events that concern the holder of `lease`, without performing I/O.
    ///
    /// Two events concern the holder: another client ended the lease, or someone
    /// [asked](Self::request_revocation) the holder to finish early.
    ///
    /// By default, the watch of an exclusive lease fires on every change of the key. The default
    /// watch of a lease on units never fires, because it would notify each holder whenever another
    /// holder acquires or releases units.
    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        if lease.share().is_whole() { self.watch(lease.key()) } else { KeyWatch::silent() }
    }

    /// Returns the leases that are in force on `key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the backend does not declare [`Feature::Inspect`].
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        Err(unsupported(&self.capabilities(), Operation::Inspect).with_key(key))
    }

    /// Returns one page of the keys in use whose [encoded name](LockKey::as_str) starts with
    /// `prefix`.
    ///
    /// A key is in use if it has leases or queued claims. `prefix` may be empty. To get the next
    /// page, pass the [`next`](KeyPage::next) value of the previous page as `after`. Both the size
    /// of a page and the work to produce the page are bounded.
    ///
    /// A key that stays in use during the whole listing appears on at least one page and may appear
    /// on several. If a key comes into use or stops being in use while the list is being read, the
    /// key may be missing. The keys are not sorted.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the backend does not declare [`Feature::List`].
    /// Returns [`ErrorKind::Denied`] if listing needs permissions that locking does not need.
    /// Returns [`ErrorKind::Invalid`] if `after` does not come from a page.
    async fn list(&self, _prefix: &str, _after: Option<&str>) -> Result<KeyPage, Error> {
        Err(unsupported(&self.capabilities(), Operation::List))
    }

    /// Ends all leases on `key`, or only the lease with the fingerprint `only`, on behalf of an
    /// operator.
    ///
    /// The store must look up the lease by its fingerprint, or compare the id of the lease, in the
    /// same atomic step that ends the lease. A holder that acquired the key in the meantime
    /// therefore keeps its lease.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the backend does not declare
    /// [`Feature::ForceRelease`]. Returns [`ErrorKind::WrongType`], without changing anything, if
    /// the key contains a value that is not a lock.
    async fn force_release(
        &self,
        key: &LockKey,
        _only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        Err(unsupported(&self.capabilities(), Operation::ForceRelease).with_key(key))
    }

    /// Asks the current holders of `key` to finish early, or only the holder whose lease has the
    /// fingerprint `only`.
    ///
    /// The next renewal of each of these holders returns [`Renewal::RevocationRequested`]. The
    /// revocation request changes nothing else in the store.
    ///
    /// The revocation request remains until all leases that are in force at the time of the request
    /// would have expired without renewal, or until the key is free, whichever comes first. A
    /// request to a single holder ends when the holder's lease ends, or possibly earlier, when that
    /// lease would have expired without renewal.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the backend does not declare [`Feature::Revocation`].
    async fn request_revocation(
        &self,
        key: &LockKey,
        _only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        Err(unsupported(&self.capabilities(), Operation::Revoke).with_key(key))
    }

    /// Returns the membership status of the store in a quorum. If the store does not have an
    /// identity yet, `fresh` becomes its identity.
    ///
    /// A store that may have lost confirmed data must also have lost its identity and its quorum
    /// configuration.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the backend does not declare [`Feature::Membership`].
    async fn standing(&self, _fresh: StoreId) -> Result<Standing, Error> {
        Err(unsupported(&self.capabilities(), Operation::Enlist))
    }

    /// Makes the store a member of a quorum, and returns the resulting membership status.
    ///
    /// The request also sets a minimum token, and the store grants only tokens larger than the
    /// minimum to later claims of this quorum. The store applies the request as one atomic step. If
    /// the store has a different identity or belongs to a different quorum, the request changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`] if the backend does not declare [`Feature::Membership`].
    async fn enlist(&self, _enlistment: &Enlistment) -> Result<Standing, Error> {
        Err(unsupported(&self.capabilities(), Operation::Enlist))
    }

    /// Sends one cheap request that changes nothing, to check whether the store responds.
    ///
    /// The health check is not batched with other requests. The default implementation calls
    /// [`inspect`](Self::inspect).
    ///
    /// # Errors
    ///
    /// Returns the store's error if the request fails. The default implementation returns
    /// [`ErrorKind::Unsupported`] if the backend does not declare [`Feature::Inspect`].
    async fn ping(&self) -> Result<(), Error> {
        self.inspect(&LockKey::of_pings()).await.map(drop)
    }

    /// Checks each server for conditions that can endanger locks, such as its version, role,
    /// persistence and clock.
    ///
    /// The checks use the same connections as locks, and change nothing. A server that does not
    /// respond, or that rejects a check, is reported as a finding, not as an error. The default
    /// implementation checks nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the backend cannot determine the list of servers.
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Drops all connections. The next request opens a new connection, on the runtime of its
    /// caller.
    ///
    /// The client calls this method when the runtime that drives the connections has ended or is
    /// about to end. This method may be called during a drop, so it must not block. A backend whose
    /// connections do not belong to a runtime does not need to implement this method.
    fn disconnect(&self) {}

    /// Closes all connections. Requests that are sent after `close` may fail. Closing the backend
    /// does not release leases; they expire after their TTL.
    async fn close(&self) {}
}

fn unsupported(store: &Capabilities, operation: Operation) -> Error {
    Error::new(ErrorKind::Unsupported, "this store does not support the operation")
        .with_operation(operation)
        .with_backend(store.name())
}
