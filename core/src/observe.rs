//! Observability: [`Observer`]s, `tracing` events and spans, and metrics.
//!
//! Observers, `tracing` and metrics all report the same events. The page `docs/observability.md`
//! lists each event, span and metric.

mod call;
mod event;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod point;
mod polls;

pub use event::{
    Acquired, AskedKind, Forced, GrantPath, HandedOver, LongHold, LongWait, Lost, Refusal, Refused,
    ReleaseFailed, Released, RenewalFailed, Renewed, Store, StoreChange, StoreError, Subject,
    Unconfirmed, Waiting, WakeUp, Woken,
};
#[cfg(feature = "metrics")]
pub use metrics::{MetricKind, MetricSpec, Metrics};
pub use polls::count_poll;

pub(crate) use call::Call;
pub(crate) use event::Event;
pub(crate) use log::{hold_span, release_span, renew_span};
#[cfg(feature = "metrics")]
pub(crate) use metrics::QueueMetrics;
pub(crate) use point::{Events, Settings};

/// Receives the events of all locks of a client. To add an observer to a client, use
/// [`Builder::observer`](crate::Builder::observer).
///
/// Each method has a default implementation that does nothing. Later versions may add methods for
/// new events, with default implementations that do nothing.
///
/// # Rules
///
/// - The client calls the methods directly, on the thread where the event occurs. For example, the
///   client may call an observer's method while it polls a caller's future, runs the background
///   task or drops a guard. An observer's method must not block and should return within
///   microseconds. Send longer work to another task, for example through a channel.
///
/// - The client does not hold internal mutexes while it calls an observer, so the observer may use
///   the client. If an observer acquires a lock, the client reports additional events.
///
/// - Events of one thread arrive in order. Events of different threads may arrive at the same time
///   and in any order.
///
/// - If a lease is lost because its deadline passed, the client reports the loss when it first
///   checks the lease after the deadline.
///
/// - An observer that contains a clone of its client keeps the client alive indefinitely.
///
/// - If an observer's method panics, the client logs the panic and continues.
///
/// - Events never contain lease ids, URLs or passwords.
///
/// # Counting
///
/// Each call that requests a lock ends with exactly one [`on_acquired`](Self::on_acquired) or
/// [`on_refused`](Self::on_refused) event, even if the call's future is dropped. If a call has to
/// wait, exactly one [`on_waiting`](Self::on_waiting) event precedes its outcome. Acquiring a
/// [`MultiLock`](crate::MultiLock) counts as one call for each of its locks. Acquiring a
/// [`Striped`](crate::Striped) lock counts as one call for each segment that is requested.
///
/// Each lease starts with an [`on_acquired`](Self::on_acquired) event whose path is
/// [`GrantPath::Granted`]. Each lease ends with exactly one [`on_released`](Self::on_released) or
/// [`on_lost`](Self::on_lost) event.
///
/// You can therefore compute the number of held leases, and the number of waiting calls, as the
/// difference between two counters.
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
    /// Called once when the client is built, before any event. `store` is the name of the backend.
    fn on_start(&self, _store: &'static str) {}

    /// Called when a call has to wait for other callers of this process, for a holder, or for a
    /// store that does not respond.
    fn on_waiting(&self, _event: &Waiting<'_>) {}

    /// Called once for each call that has waited for longer than
    /// [`Builder::long_wait`](crate::Builder::long_wait).
    fn on_long_wait(&self, _event: &LongWait<'_>) {}

    /// Called when a call that waits for a held key sends another request to the store.
    fn on_woken(&self, _event: &Woken<'_>) {}

    /// Called when a call has acquired its lock.
    fn on_acquired(&self, _event: &Acquired<'_>) {}

    /// Called when a call ends without acquiring its lock.
    fn on_refused(&self, _event: &Refused<'_>) {}

    /// Called when a holder has handed off its lease to the next caller of this process.
    fn on_handed_over(&self, _event: &HandedOver<'_>) {}

    /// Called once per holder, when the client renews a lease that has been held for longer than
    /// [`Builder::long_hold`](crate::Builder::long_hold). This method is not called for elections.
    fn on_long_hold(&self, _event: &LongHold<'_>) {}

    /// Called when the store has confirmed a renewal.
    fn on_renewed(&self, _event: &Renewed<'_>) {}

    /// Called when a renewal failed or was not answered. The client retries until the deadline.
    fn on_renewal_failed(&self, _event: &RenewalFailed<'_>) {}

    /// Called when a lease becomes [unconfirmed](crate::LeaseState::Unconfirmed). For the same
    /// lease, this method is called again only after a renewal has succeeded.
    fn on_unconfirmed(&self, _event: &Unconfirmed<'_>) {}

    /// Called when a lease was lost.
    fn on_lost(&self, _event: &Lost<'_>) {}

    /// Called when a holder releases its lease, before the request is sent to the store.
    fn on_released(&self, _event: &Released<'_>) {}

    /// Called when the store did not confirm a release.
    fn on_release_failed(&self, _event: &ReleaseFailed<'_>) {}

    /// Called when an operator has ended a lease through this client.
    fn on_forced(&self, _event: &Forced<'_>) {}

    /// Called when an acquisition, a renewal or a release failed in the store or on the way to the
    /// store.
    fn on_store_error(&self, _event: &StoreError<'_>) {}

    /// Called when the store starts or stops responding.
    fn on_store(&self, _event: &Store<'_>) {}
}
