//! The contract between the layers and a store: a [`LockBackend`], and all that its requests and answers are made of.
//!
//! Code that takes locks needs none of it, but `Arc<dyn LockBackend>` where it keeps a store.

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

/// A store of leases. Four methods make a backend: [`capabilities`](Self::capabilities) and the three steps in the store. Everything
/// else has a default.
///
/// A backend speaks to its store and nothing more: it never waits for a key, retries, sleeps,
/// renews on its own or counts holds. The layers above do that, the same for every store.
///
/// # To ensure correctness
///
/// - Each of [`try_acquire`](Self::try_acquire), [`renew`](Self::renew) and [`release`](Self::release) is one
///   atomic step in the store. The step compares the whole lease id there, or another value that belongs as
///   surely to this lease alone.
/// - `try_acquire` is idempotent per [`LeaseId`]: repeated while its own lease is in
///   force, it is granted again with a full TTL.
/// - A lease that is not renewed ends by the store's own clock, no earlier than its TTL after the
///   store received it, and soon after; if it is [kept](crate::backend::Tenure::Kept), with the others of its client at the latest.
/// - A reply that was lost is [`ErrorKind::Indeterminate`] and a request that was surely not applied
///   is [`ErrorKind::Unavailable`]; neither is ever an outcome. Every error of the client library is
///   mapped on purpose.
/// - No layer below repeats a request on its own, unless that is proved harmless.
/// - A decorator over several stores queues a claim on at most one of them, and passes on only that store's
///   [places](Contention::with_place) and [calls](CalledBy::Name). Several queues in several orders would wait for each other.
/// - Every call ends in bounded time, and dropping its future at any point breaks nothing: the
///   request may then have been applied or not.
///
/// The conformance suite checks all of it through the promises of the whole:
///
/// | promise | is shown by |
/// | --- | --- |
/// | P1 Only an acquisition's own lease id renews or releases it. | `release::a_forged_id_releases_nothing`, `release::a_stale_release_leaves_the_successor`, `retry::releases_and_renewals_may_be_repeated_for_ever` |
/// | P2 A guard never says valid after its deadline. | `expiry::the_deadline_counts_from_before_the_request`, `expiry::belief_ends_at_the_deadline_though_the_store_still_has_the_lease`, `renewal::a_stalled_process_sees_the_loss_first` |
/// | P3 Loss is signalled at the latest when the deadline passes and the runtime next runs; never withdrawn. | `renewal::failing_renewals_make_a_lease_unconfirmed_and_then_lost`, `renewal::an_acknowledgement_after_the_deadline_revives_nothing`, `lost::a_loss_is_seen_however_late_one_asks` |
/// | P4 Unknown stays unknown. | `mutual_exclusion::a_grant_whose_reply_is_lost_is_the_same_acquisition`, `release::a_release_whose_reply_is_lost_stays_unknown_and_is_harmless`, `lost::passing_errors_are_no_loss` |
/// | P5 Where a backend declares fencing, tokens of a key strictly increase in grant order. | `fencing::tokens_strictly_increase`, `fencing::tokens_increase_after_expiry`, `fencing::tokens_increase_after_a_restart` |
/// | P6 Cancelling any future at any point leaks at most one grant for one TTL. | `cancellation::an_acquisition_may_be_dropped_at_any_point`, `cancellation::a_release_may_be_dropped_at_any_point`, `cancellation::any_fault_at_any_step_leaves_the_key_usable` |
/// | P7 If the store is reachable and the holder dies, the key is free within a TTL. | `expiry::a_holder_that_is_gone_frees_the_key_within_a_ttl`, `expiry::an_unrenewed_lease_ends_after_its_ttl_and_not_before` |
/// | P8 No waiter outlives its wait or depends on notifications. | `waiting::a_wait_ends_when_it_is_over_and_not_before`, `waiting::a_waiter_without_any_news_polls`, `waiting::a_waiter_is_served_when_a_dead_holder_expires` |
///
/// # Example
///
/// A backend that shows the steps of another. `examples/custom_backend.rs` has a store of its own, and runs the suite.
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
    /// The features of this store, and the promise of its tokens.
    fn capabilities(&self) -> Capabilities;

    /// Asks for a lease once: one round trip, one atomic step, and no waiting for others to release.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`] if the reply was lost. The caller repeats the same claim or
    /// releases its lease; it never takes the error for a refusal.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The store may have granted the lease: the caller releases it.
    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error>;

    /// Asks for leases on several keys: one round trip, one atomic step, and all are granted or none is.
    ///
    /// No two claims are for the same key. The store grants each as [`try_acquire`](Self::try_acquire) would: again while
    /// the claim's own lease is in force, and never past claims that queue. A refusal names the first claim, in their
    /// order, that the store cannot grant. It changes nothing: claims that [queue](crate::backend::Patience::Queues) get
    /// no place by it either.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`], before anything is sent, unless the backend declares
    /// [`Feature::Together`]. One that does may refuse so, too, more than 64 claims and claims
    /// of [units](crate::backend::Share::Units). The caller then asks for one after the other.
    ///
    /// [`ErrorKind::WrongType`] names the key. Else as `try_acquire`, for all claims.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The store may have granted all leases: the caller releases them.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        match claims.first() {
            Some(claim) => {
                Err(unsupported(&self.capabilities(), Operation::Acquire).with_key(claim.key()))
            }
            None => Ok(AttemptAll::Granted(Vec::new())),
        }
    }

    /// Puts the contents of the lease in force from now, if this very lease is still in force. These are its
    /// TTL, which may be shorter than the remaining time, and, unless its share is
    /// [whole](crate::backend::Share::Whole), its description and its units. A renewal may give units back
    /// but takes none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`] if the reply was lost; the old deadline stays in force.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The store may have renewed; the local deadline does not move.
    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error>;

    /// Ends this very lease, and its claim's place in the queue. Harmless when repeated or late.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`] if the reply was lost.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The store may have released; the caller repeats it.
    async fn release(&self, lease: &Lease) -> Result<Release, Error>;

    /// Renews many leases in as few round trips as the store allows, one result per lease in order.
    ///
    /// By default one by one, concurrently. One failure must not fail its neighbours.
    ///
    /// # Cancel safety
    ///
    /// As [`renew`](Self::renew), for each of them.
    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        join_all(leases.iter().map(|lease| self.renew(lease))).await
    }

    /// Begins to watch `key`, without I/O of its own.
    ///
    /// By default silent, so that callers poll. A backend that declares
    /// [`Feature::Push`] fires it when a key is released by anybody, and when
    /// a connection was lost and news may have been missed. [`KeyWatches`] does the book-keeping.
    fn watch(&self, _key: &LockKey) -> KeyWatch {
        KeyWatch::silent()
    }

    /// Begins to watch for the event that the caller of `claim` waits for, without I/O of its own: news of the key, or only
    /// of the claims before this one in the store's queue.
    ///
    /// By default any news of the key.
    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.watch(claim.key())
    }

    /// Begins to watch for events that concern the holder of `lease`, without I/O of its own: its
    /// end by another client, and requests to [revoke](Self::request_revocation) it.
    ///
    /// By default that is any news of the key for a holder of the whole key, and silence for holders of
    /// units, which would otherwise receive each other's comings and goings.
    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        if lease.share().is_whole() { self.watch(lease.key()) } else { KeyWatch::silent() }
    }

    /// Tells which leases are in force on `key`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless the backend declares [`Feature::Inspect`].
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        Err(unsupported(&self.capabilities(), Operation::Inspect).with_key(key))
    }

    /// Lists keys that have leases in force or claims in a queue, and whose [encoded names](LockKey::as_str) begin with `prefix`, which may be
    /// empty: one page, from where the page [before](KeyPage::next) says.
    ///
    /// A page is of bounded size, and so is the work for it. A key that is in use throughout is on one page at least, and may be on several; one
    /// that comes into use or ends meanwhile may be on none. Pages have no order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless the backend declares [`Feature::List`]. [`ErrorKind::Denied`] where this takes
    /// rights that locks do not take. [`ErrorKind::Invalid`] if no page says `after`.
    async fn list(&self, _prefix: &str, _after: Option<&str>) -> Result<KeyPage, Error> {
        Err(unsupported(&self.capabilities(), Operation::List))
    }

    /// Ends leases in force on `key`, on behalf of an operator: the lease with the fingerprint `only`, or all.
    ///
    /// The store finds the lease by its fingerprint in the same atomic step that ends it, or compares the lease's id in that step. So a holder
    /// that came in the meantime keeps its lease. The store leaves a value of another kind under the key alone ([`ErrorKind::WrongType`]).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless the backend declares
    /// [`Feature::ForceRelease`].
    async fn force_release(
        &self,
        key: &LockKey,
        _only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        Err(unsupported(&self.capabilities(), Operation::ForceRelease).with_key(key))
    }

    /// Asks the present holders of `key` to finish early, or only the one whose lease has the fingerprint `only`. Their next renewals report
    /// the request ([`Renewal::RevocationRequested`]), and nothing else happens to them.
    ///
    /// The request stands until the last of the leases in force now would end without renewal, or until the key
    /// is free, if that is earlier. A request to one holder ends with its lease, and may end
    /// when that lease would have ended without renewal.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless the backend declares
    /// [`Feature::Revocation`].
    async fn request_revocation(
        &self,
        key: &LockKey,
        _only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        Err(unsupported(&self.capabilities(), Operation::Revoke).with_key(key))
    }

    /// Tells how the store stands as a member of a quorum. A store whose data has no identity takes `fresh`.
    ///
    /// A store that may have lost anything that it has answered has lost its identity and its charter, too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] unless the backend declares
    /// [`Feature::Membership`].
    async fn standing(&self, _fresh: StoreId) -> Result<Standing, Error> {
        Err(unsupported(&self.capabilities(), Operation::Enlist))
    }

    /// Makes the store a member of a quorum, with the tokens of all later claims under its charter above a floor, and returns its
    /// standing afterwards.
    ///
    /// One atomic step, which changes nothing if the store has another identity or is a member under another charter.
    ///
    /// # Errors
    ///
    /// As [`standing`](Self::standing).
    async fn enlist(&self, _enlistment: &Enlistment) -> Result<Standing, Error> {
        Err(unsupported(&self.capabilities(), Operation::Enlist))
    }

    /// Makes one cheap request, to see whether the store serves. It is sent alone, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect), by which it is done unless the store has something better.
    async fn ping(&self) -> Result<(), Error> {
        self.inspect(&LockKey::of_pings()).await.map(drop)
    }

    /// Checks what can endanger locks on each server, such as its version, role, persistence and clock, through the connections that locks use.
    ///
    /// Changes nothing. A server that does not answer, or refuses a question, is a finding and not an error. By default, nothing is checked.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the backend cannot find out which servers there are.
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Gives up all connections: the next request makes another, on the runtime of its caller.
    ///
    /// The client calls it when the runtime that drives them has ended or is about to, in the middle of a drop: it must not block. A
    /// backend whose connections do not belong to a runtime has nothing to do.
    fn disconnect(&self) {}

    /// Closes connections. Calls after it may fail; leases are left to their TTL.
    async fn close(&self) {}
}

fn unsupported(store: &Capabilities, operation: Operation) -> Error {
    Error::new(ErrorKind::Unsupported, "this store cannot do that")
        .with_operation(operation)
        .with_backend(store.name())
}
