//! The contract between Leasehold and a store: the [`LockBackend`] trait, its requests and its
//! replies.
//!
//! Use this module to write a backend for another store. Code that only uses locks does not need
//! this module, except for `Arc<dyn LockBackend>`, which can hold any backend.

mod admin;
mod attempt;
mod capabilities;
mod claim;
mod contention;
mod dial;
pub mod entry;
mod finding;
mod grant;
mod hub;
mod key_page;
mod layer;
mod lease;
mod member;
mod mode;
mod request;
pub mod rules;
mod runtime;
mod shared;
mod subject;
mod tally;
mod unpoisoned;
mod unreachable;
mod watch;
mod watches;

pub use admin::StoreAdmin;
pub use attempt::{Attempt, AttemptAll, Release, Renewal};
pub use capabilities::{Capabilities, Feature, Fencing};
pub use claim::{Claim, Patience};
pub use contention::{Contention, WokenBy};
pub use dial::Dial;
pub use finding::{Finding, Verdict};
pub use grant::Grant;
pub use key_page::KeyPage;
pub use layer::Layer;
pub(crate) use layer::renewals_of;
pub use lease::{Fingerprint, Lease, LeaseId, Tenure};
pub use member::{JoinRequest, Member, MemberStatus, QuorumConfiguration, StoreId, Vote};
pub use mode::Mode;
pub use request::{Reply, Request};
pub use runtime::{check_io, check_timer};
pub use subject::Subject;
pub use unpoisoned::unpoisoned;
pub use unreachable::why_unreachable;
pub(crate) use watch::Replaced;
pub use watch::{KeyWatch, WatchSelection};
pub use watches::KeyWatches;

pub use crate::contract::error::Operation;
pub use crate::contract::inspection::{Inspection, MemberView, Waiter};
pub use crate::contract::outcome::{ForcedRelease, Revocation};

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

/// A store of leases.
///
/// Implement this trait to use Leasehold with another store. Four methods are required:
/// [`capabilities`](Self::capabilities), [`acquire`](Self::acquire), [`renew`](Self::renew) and
/// [`release`](Self::release). All other methods have defaults. Two optional facets have traits of
/// their own: [`StoreAdmin`] for operators, and [`Member`] for quorums. To wrap a backend,
/// implement [`Layer`] instead of this trait.
///
/// A backend sends requests to its store and returns the replies. Waiting for a key, retrying,
/// renewing leases and counting holders are tasks of Leasehold's core, not of a backend.
///
/// # Correctness
///
/// The core relies on the following rules, which the conformance suite checks.
///
/// - **Atomic steps.** Each `acquire`, `renew` or `release` is one atomic step in the store. To
///   identify a lease, each step compares the complete lease id, or a different value that is
///   unique to the lease.
///
/// - **Order of requests.** A request that its caller dropped is never applied after a later request
///   of the same client for the same lease. In particular, the store never grants a lease after a
///   later release of this lease was applied. One ordered connection guarantees this. A thread pool
///   does not.
///
/// - **Idempotent acquisition.** If `acquire` is called again with the same [`LeaseId`] before
///   that lease has expired or been released, the store grants the lease again with a full TTL and
///   a new token. Permits that a renewal has returned stay returned.
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
///   of the stores, and forwards [queue entries](Contention::with_queue_entry) and [individual
///   notifications](WokenBy::Claim) only from that store. If several stores queued the same claims
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
/// # Growth of this trait
///
/// A new operation is added as a method with a default that returns [`ErrorKind::Unsupported`], and
/// as a [`Request`], which existing layers forward. [`Feature`], [`Operation`], [`Patience`],
/// [`Reply`], [`Request`], [`Subject`] and [`ErrorKind`] are `#[non_exhaustive]`. Treat an unknown
/// [`Patience`] as [`Patience::Leaves`], and an unknown [`Subject`] as its
/// [key](Subject::watched_key). The outcomes ([`Attempt`], [`AttemptAll`], [`Renewal`],
/// [`Release`]) are complete: a new value would change the contract for every backend.
///
/// # Example
///
/// The following backend keeps one [`Entry`](entry::Entry) per key in a map.
/// `examples/backend-template` is a crate with a backend and the conformance suite. See [`Layer`]
/// for a backend that wraps another backend.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use async_trait::async_trait;
/// use leasehold_core::backend::entry::{Entry, Tokens};
/// use leasehold_core::backend::{
///     Attempt, Capabilities, Claim, Fencing, Lease, LeaseId, LockBackend, Release, Renewal,
/// };
/// use leasehold_core::clock::{Clock as _, Instant, SystemClock};
/// use leasehold_core::{Error, LockClient, LockKey};
///
/// #[derive(Debug, Default)]
/// struct MapBackend(Mutex<HashMap<LockKey, Entry<LeaseId, Instant>>>);
///
/// impl MapBackend {
///     fn step<R>(
///         &self,
///         key: &LockKey,
///         step: impl FnOnce(&mut Entry<LeaseId, Instant>, Instant) -> R,
///     ) -> R {
///         let mut entries = self.0.lock().expect("no step panics");
///         let (entry, now) = (entries.entry(key.clone()).or_default(), SystemClock.now());
///         entry.expire(now);
///         step(entry, now)
///     }
/// }
///
/// #[async_trait]
/// impl LockBackend for MapBackend {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::new("map", Fencing::Strict)
///     }
///
///     async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
///         self.step(claim.key(), |entry, now| {
///             Ok(entry.acquire(claim.id(), claim, Tokens::default(), now)?.reply)
///         })
///     }
///
///     async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
///         Ok(self.step(lease.key(), |entry, now| entry.renew(&lease.id(), lease, now).reply))
///     }
///
///     async fn release(&self, lease: &Lease) -> Result<Release, Error> {
///         Ok(self.step(lease.key(), |entry, now| entry.release(&lease.id(), now).reply))
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = LockClient::new(MapBackend::default());
/// client.mutex("k")?.run(async |guard| assert_eq!(guard.token().number(), 1)).await?;
/// # Ok::<(), Error>(())
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
    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error>;

    /// Renews a lease that is still in force.
    ///
    /// A renewal restarts the TTL of `lease`, which may be shorter than the remaining time. Unless
    /// the lease is [exclusive](crate::backend::Mode::Exclusive), the store also replaces the
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

    /// Tries once to acquire leases on several different keys. The store grants either all leases
    /// or none.
    ///
    /// The attempt is one round trip and one atomic step. Each claim follows the rules of
    /// [`acquire`](Self::acquire). A claim whose own lease is already in force is granted
    /// again, and a new claim does not overtake queued claims.
    ///
    /// A refusal names the first claim that cannot be granted, changes nothing in the store, and
    /// does not add any claim to the [queue](crate::backend::Patience::Queues).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`], without sending a request, if the backend does not
    /// declare [`Feature::Together`]. A backend that declares the feature may still return this
    /// error for more than 64 claims or for claims of [units](crate::backend::Mode::Units). After
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
    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        match claims.first() {
            Some(claim) => {
                Err(unsupported(&self.capabilities(), Operation::Acquire).with_key(claim.key()))
            }
            None => Ok(AttemptAll::Granted(Vec::new())),
        }
    }

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

    /// Starts watching `subject`, without performing I/O.
    ///
    /// The default watch never fires, so callers poll. If a backend declares [`Feature::Push`], the
    /// watch must fire on the events that [`Subject`] lists. The watch must also fire if
    /// notifications may have been missed, for example because a connection was lost.
    /// [`KeyWatches`] handles the bookkeeping. A store without more precise notifications watches
    /// [`Subject::watched_key`].
    fn watch(&self, _subject: Subject<'_>) -> KeyWatch {
        KeyWatch::silent()
    }

    /// Returns the operations for operators, if the store supports them. A backend with this facet
    /// also names a [holder](Contention::with_holder) in each refusal.
    fn admin(&self) -> Option<&dyn StoreAdmin> {
        None
    }

    /// Returns the operations for quorums, if the store can be a member of a quorum.
    fn member(&self) -> Option<&dyn Member> {
        None
    }

    /// Sends one cheap request that changes nothing, to check whether the store responds.
    ///
    /// The health check is not batched with other requests. The default implementation calls
    /// [`inspect`](StoreAdmin::inspect).
    ///
    /// # Errors
    ///
    /// Returns the store's error if the request fails. The default implementation returns
    /// [`ErrorKind::Unsupported`] if the backend does not have the facet
    /// [`admin`](Self::admin).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it does not change anything in the store.
    async fn ping(&self) -> Result<(), Error> {
        let unsupported = || unsupported(&self.capabilities(), Operation::Ping);
        let admin = self.admin().ok_or_else(unsupported)?;
        admin.inspect(&LockKey::of_pings()).await.map(drop)
    }

    /// Drops all connections. The next request opens a new connection, on the runtime of its
    /// caller.
    ///
    /// The client calls this method when the runtime that drives the connections has ended or is
    /// about to end. This method may be called during a drop, so it must not block. A backend whose
    /// connections do not belong to a runtime does not need to implement this method.
    fn disconnect(&self) {}

    /// Closes all connections of this backend. Requests that are sent after `close` may fail. Other
    /// backends of the same store, for example those of other clients in this process, must
    /// continue to work. Closing the backend does not release leases; they expire after their TTL.
    async fn close(&self) {}
}

pub(crate) fn unsupported(store: &Capabilities, operation: Operation) -> Error {
    Error::new(ErrorKind::Unsupported, "this store does not support the operation")
        .with_operation(operation)
        .with_backend(store.name())
}
