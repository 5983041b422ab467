//! Reports on a client's locks: an [`Observer`], events and spans of the crate `tracing`, metrics.
//!
//! Every layer reports to one point, and that point tells all three. The page `docs/observability.md` lists each event, span and metric.

mod call;
mod event;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod point;

pub use event::{
    Acquired, AskedKind, Forced, GrantPath, HandedOver, LongHold, LongWait, Lost, Refusal, Refused,
    ReleaseFailed, Released, RenewalFailed, Renewed, Store, StoreChange, StoreError, Subject,
    Unconfirmed, Waiting, WakeUp, Woken,
};
#[cfg(feature = "metrics")]
pub use metrics::{MetricKind, MetricSpec, Metrics};

pub(crate) use call::Call;
pub(crate) use event::Event;
pub(crate) use log::{hold_span, release_span, renew_span};
pub(crate) use point::{Events, Settings};

/// A listener for all that happens to the locks of one client: [`Builder::observer`](crate::Builder::observer).
///
/// Each method has a default that does nothing, and new events get new methods with defaults.
///
/// # Rules
///
/// - The client calls the methods inline, on the thread where the event happens: in a caller's future, in the background task, or in the drop
///   of a guard. A method must not block and should take microseconds. Work that takes longer belongs in a channel.
/// - The client holds no mutex of its own during a call, so a method may use the client. A method that asks for a lock makes events itself.
/// - Events of several threads may arrive at the same time and in any order, those of one thread arrive in order. A loss that time alone
///   causes arrives with the first look at the lease after its deadline.
/// - An observer that owns a clone of its client keeps that client going for ever.
/// - A panic in a method ends that call alone. The client logs it and goes on.
/// - No event carries a lease id, a URL or a password.
///
/// # Counting
///
/// Each call for a lock ends in [`on_acquired`](Self::on_acquired) or [`on_refused`](Self::on_refused), once, also if its future is
/// dropped; if it had to wait, [`on_waiting`](Self::on_waiting) came before. A [`MultiLock`](crate::MultiLock) is a call for each of
/// its parts, and a [`Striped`](crate::Striped) one for each segment that it asks for. Each lease begins with an
/// [`on_acquired`](Self::on_acquired) of [`GrantPath::Granted`] and ends in [`on_released`](Self::on_released) or
/// [`on_lost`](Self::on_lost), once. So differences of counts give the leases held and the calls that wait.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::observe::{Acquired, Lost, Observer};
///
/// #[derive(Default)]
/// struct Counts {
///     acquired: AtomicU64,
///     lost: AtomicU64,
/// }
///
/// struct Counter(Arc<Counts>);
///
/// impl Observer for Counter {
///     fn on_acquired(&self, _: &Acquired<'_>) {
///         self.0.acquired.fetch_add(1, Ordering::Relaxed);
///     }
///
///     fn on_lost(&self, lost: &Lost<'_>) {
///         self.0.lost.fetch_add(1, Ordering::Relaxed);
///         eprintln!("page the operator: {} is lost: {}", lost.lock.key, lost.reason);
///     }
/// }
///
/// let counts = Arc::new(Counts::default());
/// let observer = Counter(Arc::clone(&counts));
/// let client = LockClient::builder(MemoryBackend::new()).observer(observer).build()?;
/// client.mutex("invoice:42")?.lock().await?.release().await?;
/// assert_eq!(counts.acquired.load(Ordering::Relaxed), 1);
/// assert_eq!(counts.lost.load(Ordering::Relaxed), 0);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// The client is built. `store` is the name of its backend. Called once, before any event.
    fn on_start(&self, _store: &'static str) {}

    /// A call has to wait: for other callers of this process, for the store's holder, or for a store that does not answer.
    fn on_waiting(&self, _event: &Waiting<'_>) {}

    /// A call has waited for [`Builder::long_wait`](crate::Builder::long_wait). Once per call.
    fn on_long_wait(&self, _event: &LongWait<'_>) {}

    /// A call that waits for a held key asks the store again.
    fn on_woken(&self, _event: &Woken<'_>) {}

    /// A call has its lock.
    fn on_acquired(&self, _event: &Acquired<'_>) {}

    /// A call ends without its lock.
    fn on_refused(&self, _event: &Refused<'_>) {}

    /// A holder has passed its lease on to the next caller of this process.
    fn on_handed_over(&self, _event: &HandedOver<'_>) {}

    /// A lock was held for [`Builder::long_hold`](crate::Builder::long_hold) when it was renewed. Once per holder; elections are exempt.
    fn on_long_hold(&self, _event: &LongHold<'_>) {}

    /// The store has confirmed a renewal.
    fn on_renewed(&self, _event: &Renewed<'_>) {}

    /// A renewal failed or was not answered. The watchdog tries again until the deadline.
    fn on_renewal_failed(&self, _event: &RenewalFailed<'_>) {}

    /// A lease has become [unconfirmed](crate::LeaseState::Unconfirmed). Once until the next renewal that succeeds.
    fn on_unconfirmed(&self, _event: &Unconfirmed<'_>) {}

    /// A lease was lost.
    fn on_lost(&self, _event: &Lost<'_>) {}

    /// A holder has given its lease back. The request to the store follows.
    fn on_released(&self, _event: &Released<'_>) {}

    /// The store did not confirm a release.
    fn on_release_failed(&self, _event: &ReleaseFailed<'_>) {}

    /// An operator has ended a lease through this client.
    fn on_forced(&self, _event: &Forced<'_>) {}

    /// A request for a lock, a renewal or a release failed in the store or on the way there.
    fn on_store_error(&self, _event: &StoreError<'_>) {}

    /// The store answers from now on, or does not any more. Once per change.
    fn on_store(&self, _event: &Store<'_>) {}
}
