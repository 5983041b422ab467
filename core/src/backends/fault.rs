//! A backend for tests that wraps another backend and injects faults on request.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join_all};

use crate::clock::{Clock, TokioClock};
use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, Finding, Fingerprint, KeyPage, KeyWatch,
    KeyWatches, Lease, LeaseId, LockBackend, Operation, Release, Renewal, Standing, StoreId,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};
use crate::sync::{Mutex, lock};

/// A backend that wraps the backend `B` and injects the faults in [`Faults`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::backend::Operation;
/// use leasehold_core::fault::{Fault, FaultBackend};
/// use leasehold_core::memory::MemoryBackend;
///
/// let store = FaultBackend::new(MemoryBackend::new());
/// let faults = store.faults().clone();
/// let client = LockClient::new(store);
///
/// // The store grants the lock, but the reply is lost. The client tries again with the same id.
/// faults.inject(Operation::Acquire, Fault::LoseReply, 1);
/// let guard = client.mutex("k")?.lock().await?;
/// assert_eq!(faults.calls(Operation::Acquire), 2);
/// # drop(guard);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FaultBackend<B> {
    inner: Arc<B>,
    clock: Arc<dyn Clock>,
    faults: Faults,
}

/// Controls the faults of a [`FaultBackend`]. Clones control the same faults.
///
/// See [`FaultBackend`](crate::fault::FaultBackend) for an example of a backend that loses a reply.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Switches>);

#[derive(Debug, Default)]
struct Switches {
    pending: Mutex<HashMap<Calls, VecDeque<Fault>>>,
    lasting: Mutex<Option<Fault>>,
    calls: Mutex<HashMap<Operation, usize>>,
    asked_for: Mutex<HashSet<LeaseId>>,
    news: Mutex<News>,
    scripted: KeyWatches,
}

/// The calls that a fault affects, which are all calls of an operation or only its calls on one
/// key.
type Calls = (Operation, Option<LockKey>);

/// A fault that affects a call.
///
/// See [`FaultBackend`](crate::fault::FaultBackend) for an example of a backend that loses a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The request reaches the store after this delay.
    DelayRequest(Duration),
    /// The store applies the request immediately, and the reply arrives after this delay.
    DelayReply(Duration),
    /// The call fails with an error of this kind. The request never reaches the store.
    Fail(ErrorKind),
    /// The call never returns. The request reaches the store after this delay, even if the caller
    /// has given up by then.
    Late(Duration),
    /// The store applies the request, and the call fails with [`ErrorKind::Indeterminate`].
    LoseReply,
    /// The call panics. The request never reaches the store.
    Panic,
    /// The request never reaches the store, and the call never returns.
    SwallowRequest,
    /// The store applies the request, and the call never returns.
    SwallowReply,
}

/// The notifications that a [`FaultBackend`]'s watches report.
///
/// ```
/// use leasehold_core::fault::{FaultBackend, News};
/// use leasehold_core::memory::MemoryBackend;
///
/// let store = FaultBackend::new(MemoryBackend::new());
/// store.faults().set_news(News::Muted);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum News {
    /// The store's own notifications.
    #[default]
    True,
    /// No notifications at all.
    Muted,
    /// Only the notifications that [`Faults::cry_wolf`] sends.
    Scripted,
}

impl Faults {
    /// Injects `fault` into the next `times` calls of `operation`. Faults that were injected
    /// earlier take effect first.
    pub fn inject(&self, operation: Operation, fault: Fault, times: usize) {
        self.add(operation, None, fault, times);
    }

    /// Injects `fault` into the next `times` calls of `operation` on `key`. Faults for a single key
    /// take precedence over faults for all keys.
    pub fn inject_on(&self, key: &LockKey, operation: Operation, fault: Fault, times: usize) {
        self.add(operation, Some(key.clone()), fault, times);
    }

    fn add(&self, operation: Operation, key: Option<LockKey>, fault: Fault, times: usize) {
        let mut pending = lock(&self.0.pending);
        pending.entry((operation, key)).or_default().extend(std::iter::repeat_n(fault, times));
    }

    /// Injects `fault` into every call for which no other fault was injected. To stop injecting
    /// this fault, pass `None` or call [`heal`](Self::heal).
    pub fn set_lasting(&self, fault: Option<Fault>) {
        *lock(&self.0.lasting) = fault;
    }

    /// Removes all faults that have not occurred yet, including a fault that applies to every call.
    pub fn heal(&self) {
        lock(&self.0.pending).clear();
        self.set_lasting(None);
    }

    /// Sets which notifications are reported by watches that are created after this call. Existing
    /// watches are not affected.
    pub fn set_news(&self, news: News) {
        *lock(&self.0.news) = news;
    }

    /// Notifies all watches of `key` that were created with [`News::Scripted`].
    pub fn cry_wolf(&self, key: &LockKey) {
        self.0.scripted.notify(key.as_str());
    }

    /// Returns the number of calls to `operation`, including failed calls.
    pub fn calls(&self, operation: Operation) -> usize {
        lock(&self.0.calls).get(&operation).copied().unwrap_or_default()
    }

    /// Returns the number of distinct leases for which at least one attempt has completed,
    /// regardless of its outcome.
    pub fn asked_for(&self) -> usize {
        lock(&self.0.asked_for).len()
    }

    fn next(&self, operation: Operation, key: Option<&LockKey>) -> Option<Fault> {
        *lock(&self.0.calls).entry(operation).or_default() += 1;
        let mut pending = lock(&self.0.pending);
        let mut take = |key| pending.get_mut(&(operation, key))?.pop_front();
        let injected = key.and_then(|key| take(Some(key.clone()))).or_else(|| take(None));
        injected.or(*lock(&self.0.lasting))
    }
}

impl<B: LockBackend> FaultBackend<B> {
    /// Wraps `inner` without any faults. Delays use Tokio's clock.
    pub fn new(inner: B) -> Self {
        let clock = Arc::new(TokioClock::new());
        Self { inner: Arc::new(inner), clock, faults: Faults::default() }
    }

    /// Sets the clock that measures injected delays, which should be the clients' clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Replaces the [`Faults`] of this backend. Several backends can share the same [`Faults`].
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Returns the [`Faults`] of this backend.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Ends all leases on `key`, as if they had expired in the store.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockBackend::force_release`].
    pub async fn expire(&self, key: &LockKey) -> Result<(), Error> {
        self.inner.force_release(key, None).await.map(|_ended| ())
    }

    /// Ends all leases on `key` and acquires the key for a different owner for `ttl`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockBackend::force_release`] and [`LockBackend::try_acquire`].
    /// Returns [`ErrorKind::Timeout`] if another claim was granted first.
    pub async fn steal(&self, key: &LockKey, ttl: Duration) -> Result<Lease, Error> {
        self.expire(key).await?;
        let thief = Lease::new(key, ttl);
        match self.inner.try_acquire(&Claim::new(thief.clone())).await? {
            Attempt::Granted(_) => Ok(thief),
            Attempt::Held(_) => Err(Error::new(ErrorKind::Timeout, "another claim was quicker")),
        }
    }

    async fn renew_with(&self, fault: Option<Fault>, lease: &Lease) -> Result<Renewal, Error> {
        let sent = lease.clone();
        let call = move |inner: Arc<B>| async move { inner.renew(&sent).await };
        self.call(fault, Operation::Renew, Some(lease.key()), call).await
    }

    /// Runs `call` with the operation's next fault, if there is one.
    async fn suffer<T, F>(
        &self,
        operation: Operation,
        key: Option<&LockKey>,
        call: impl FnOnce(Arc<B>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let fault = self.faults.next(operation, key);
        self.call(fault, operation, key, call).await
    }

    async fn call<T, F>(
        &self,
        fault: Option<Fault>,
        operation: Operation,
        key: Option<&LockKey>,
        call: impl FnOnce(Arc<B>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let inner = Arc::clone(&self.inner);
        let sleep = |delay| self.clock.sleep_until(self.clock.now() + delay);
        match fault {
            None => call(inner).await,
            Some(Fault::DelayRequest(delay)) => {
                sleep(delay).await;
                call(inner).await
            }
            Some(Fault::DelayReply(delay)) => {
                let reply = call(inner).await;
                sleep(delay).await;
                reply
            }
            Some(Fault::Fail(kind)) => Err(self.error(kind, operation, key)),
            Some(Fault::Late(delay)) => {
                let arrives = sleep(delay);
                tokio::spawn(async move {
                    arrives.await;
                    // The caller has given up, so the outcome is not needed.
                    drop(call(inner).await);
                });
                pending().await
            }
            Some(Fault::LoseReply) => {
                // The caller never receives the outcome.
                drop(call(inner).await);
                Err(self.error(ErrorKind::Indeterminate, operation, key))
            }
            Some(Fault::Panic) => panic!("injected fault"),
            Some(Fault::SwallowRequest) => pending().await,
            Some(Fault::SwallowReply) => {
                drop(call(inner).await);
                pending().await
            }
        }
    }

    fn error(&self, kind: ErrorKind, operation: Operation, key: Option<&LockKey>) -> Error {
        let error = Error::new(kind, "injected fault")
            .with_operation(operation)
            .with_backend(self.capabilities().name());
        key.into_iter().fold(error, Error::with_key)
    }
}

#[async_trait]
impl<B: LockBackend> LockBackend for FaultBackend<B> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let sent = claim.clone();
        let call = move |inner: Arc<B>| async move { inner.try_acquire(&sent).await };
        let outcome = self.suffer(Operation::Acquire, Some(claim.key()), call).await;
        lock(&self.faults.0.asked_for).insert(claim.id());
        outcome
    }

    /// Injects the fault that applies to a call on the first key.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let Some(first) = claims.first() else {
            return self.inner.try_acquire_all(claims).await;
        };
        let sent = claims.to_vec();
        let call = move |inner: Arc<B>| async move { inner.try_acquire_all(&sent).await };
        let outcome = self.suffer(Operation::Acquire, Some(first.key()), call).await;
        lock(&self.faults.0.asked_for).extend(claims.iter().map(Claim::id));
        outcome
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let fault = self.faults.next(Operation::Renew, Some(lease.key()));
        self.renew_with(fault, lease).await
    }

    /// Counts each lease as one call. Leases without a fault are renewed in one batch. The call
    /// returns after all renewals have returned.
    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let fault = |lease: &Lease| self.faults.next(Operation::Renew, Some(lease.key()));
        let faults: Vec<Option<Fault>> = leases.iter().map(fault).collect();
        let each = || leases.iter().zip(&faults);
        let whole = each().filter(|(_, fault)| fault.is_none());
        let whole: Vec<Lease> = whole.map(|(lease, _)| lease.clone()).collect();
        let suffering = each().filter(|(_, fault)| fault.is_some());
        let suffering = join_all(suffering.map(|(lease, fault)| self.renew_with(*fault, lease)));
        let whole = async {
            if whole.is_empty() { Vec::new() } else { self.inner.renew_all(&whole).await }
        };
        let (whole, suffering) = join(whole, suffering).await;
        let (mut whole, mut suffering) = (whole.into_iter(), suffering.into_iter());
        let reply = |fault: &Option<Fault>| match fault {
            None => whole.next(),
            Some(_) => suffering.next(),
        };
        faults.iter().map_while(reply).collect()
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let sent = lease.clone();
        let call = move |inner: Arc<B>| async move { inner.release(&sent).await };
        self.suffer(Operation::Release, Some(lease.key()), call).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        match *lock(&self.faults.0.news) {
            News::True => self.inner.watch(key),
            News::Muted => KeyWatch::silent(),
            News::Scripted => self.faults.0.scripted.watch(key),
        }
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        match *lock(&self.faults.0.news) {
            News::True => self.inner.watch_claim(claim),
            News::Muted => KeyWatch::silent(),
            News::Scripted => self.faults.0.scripted.watch(claim.key()),
        }
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        match *lock(&self.faults.0.news) {
            News::True => self.inner.watch_lease(lease),
            News::Muted => KeyWatch::silent(),
            News::Scripted => self.faults.0.scripted.watch(lease.key()),
        }
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let sent = key.clone();
        let call = move |inner: Arc<B>| async move { inner.inspect(&sent).await };
        self.suffer(Operation::Inspect, Some(key), call).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let call = move |inner: Arc<B>| async move { inner.list(&prefix, after.as_deref()).await };
        self.suffer(Operation::List, None, call).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let sent = key.clone();
        let call = move |inner: Arc<B>| async move { inner.force_release(&sent, only).await };
        self.suffer(Operation::ForceRelease, Some(key), call).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let sent = key.clone();
        let call = move |inner: Arc<B>| async move { inner.request_revocation(&sent, only).await };
        self.suffer(Operation::Revoke, Some(key), call).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        let call = move |inner: Arc<B>| async move { inner.standing(fresh).await };
        self.suffer(Operation::Enlist, None, call).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        let sent = enlistment.clone();
        let call = move |inner: Arc<B>| async move { inner.enlist(&sent).await };
        self.suffer(Operation::Enlist, None, call).await
    }

    async fn ping(&self) -> Result<(), Error> {
        let call = async |inner: Arc<B>| inner.ping().await;
        self.suffer(Operation::Ping, None, call).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let call = async |inner: Arc<B>| inner.diagnose().await;
        self.suffer(Operation::Diagnose, None, call).await
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
