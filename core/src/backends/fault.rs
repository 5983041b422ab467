//! A backend for tests that wraps another backend and injects faults on request.

mod exchange;

pub use exchange::{Reply, Request};

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use self::exchange::read;
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
    capabilities: Option<Capabilities>,
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
    pending: Mutex<HashMap<Calls, VecDeque<(Fault, usize)>>>,
    lasting: Mutex<Option<Fault>>,
    calls: Mutex<HashMap<Operation, usize>>,
    asked_for: Mutex<HashSet<LeaseId>>,
    news: Mutex<News>,
    scripted: KeyWatches,
    scripts: Mutex<Scripts>,
}

#[derive(Clone, Default)]
struct Scripts {
    requests: Vec<Arc<OnRequest>>,
    replies: Vec<Arc<OnReply>>,
}

type OnRequest = dyn Fn(Request) -> Result<Request, Error> + Send + Sync;
type OnReply = dyn Fn(&Request, Reply) -> Result<Reply, Error> + Send + Sync;

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").finish_non_exhaustive()
    }
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
        if times > 0 {
            let mut pending = lock(&self.0.pending);
            pending.entry((operation, key)).or_default().push_back((fault, times));
        }
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

    /// Runs `script` on each request that arrives at the store, which receives the returned request
    /// instead. If `script` returns an error, the call fails with this error, and the request does
    /// not reach the store.
    ///
    /// Scripts run in the order in which they were added, and cannot be removed. A request that an
    /// injected fault drops does not arrive at the store. All leases that are renewed in one batch
    /// arrive as one [`Request::RenewAll`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    ///
    /// use leasehold_core::fault::{FaultBackend, Request};
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{Error, ErrorKind, LockClient};
    ///
    /// let store = FaultBackend::new(MemoryBackend::new());
    /// store.faults().on_request(|request| match &request {
    ///     Request::Acquire(claim) if claim.lease().ttl() > Duration::from_secs(10) => {
    ///         Err(Error::new(ErrorKind::Refused, "the TTL is too long"))
    ///     }
    ///     _ => Ok(request),
    /// });
    ///
    /// let refused = LockClient::new(store).mutex("k")?.lock().await.unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Refused);
    /// # Ok::<(), Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_request(
        &self,
        script: impl Fn(Request) -> Result<Request, Error> + Send + Sync + 'static,
    ) {
        lock(&self.0.scripts).requests.push(Arc::new(script));
    }

    /// Runs `script` on each reply of the store. The client receives the returned reply instead. If
    /// `script` returns an error, the call fails with this error after the store has applied the
    /// request.
    ///
    /// Scripts run in the order in which they were added, and cannot be removed.
    ///
    /// # Panics
    ///
    /// The call panics if `script` returns a reply to a different type of request.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    ///
    /// use leasehold_core::LockClient;
    /// use leasehold_core::backend::Attempt;
    /// use leasehold_core::fault::{FaultBackend, Reply};
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// // This store grants each lease for one second, whatever the client asks for.
    /// let store = FaultBackend::new(MemoryBackend::new());
    /// store.faults().on_reply(|_request, reply| {
    ///     Ok(match reply {
    ///         Reply::Acquire(Attempt::Granted(grant)) => {
    ///             Reply::Acquire(Attempt::Granted(grant.with_ttl(Duration::from_secs(1))))
    ///         }
    ///         reply => reply,
    ///     })
    /// });
    ///
    /// let guard = LockClient::new(store).mutex("k")?.lock().await?;
    /// assert!(guard.remaining() < Duration::from_secs(1));
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_reply(
        &self,
        script: impl Fn(&Request, Reply) -> Result<Reply, Error> + Send + Sync + 'static,
    ) {
        lock(&self.0.scripts).replies.push(Arc::new(script));
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

    /// Returns the number of calls of `operation`, including failed calls.
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
        let mut take = |key| {
            let faults = pending.get_mut(&(operation, key))?;
            let (fault, times) = faults.front_mut()?;
            *times -= 1;
            let (fault, is_last) = (*fault, *times == 0);
            if is_last {
                faults.pop_front();
            }
            Some(fault)
        };
        let injected = key.and_then(|key| take(Some(key.clone()))).or_else(|| take(None));
        injected.or(*lock(&self.0.lasting))
    }

    /// Applies `request` as the scripts require.
    async fn apply(&self, request: Request, store: &impl LockBackend) -> Result<Reply, Error> {
        let scripts = lock(&self.0.scripts).clone();
        let request =
            scripts.requests.iter().try_fold(request, |request, script| script(request))?;
        let reply = request.send(store).await?;
        scripts.replies.iter().try_fold(reply, |reply, script| script(&request, reply))
    }

    /// Returns whether no script refuses a watch of `key`.
    fn allow_watch(&self, key: &LockKey) -> bool {
        let scripts = lock(&self.0.scripts).requests.clone();
        let request = Request::Watch(key.clone());
        scripts.iter().try_fold(request, |request, script| script(request)).is_ok()
    }
}

impl<B: LockBackend> FaultBackend<B> {
    /// Wraps `inner` without any faults. Delays use Tokio's clock.
    pub fn new(inner: B) -> Self {
        let clock = Arc::new(TokioClock::new());
        Self { inner: Arc::new(inner), capabilities: None, clock, faults: Faults::default() }
    }

    /// Declares `capabilities` instead of the capabilities of the wrapped backend. The wrapped
    /// backend still replies to requests for features that `capabilities` does not declare.
    ///
    /// ```
    /// use leasehold_core::backend::{Feature, LockBackend};
    /// use leasehold_core::fault::FaultBackend;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let memory = MemoryBackend::new();
    /// let capabilities = memory.capabilities().without(Feature::Queue);
    /// let without_queue = FaultBackend::new(memory).with_capabilities(capabilities);
    /// ```
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
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

    /// Sends `request` with the next fault of its operation, if there is one.
    async fn exchange(&self, request: Request) -> Result<Reply, Error> {
        let fault = request.operation().and_then(|of| self.faults.next(of, request.key()));
        self.suffer(fault, request).await
    }

    async fn suffer(&self, fault: Option<Fault>, request: Request) -> Result<Reply, Error> {
        let error = |kind| self.error(kind, &request);
        let sleep = |delay| self.clock.sleep_until(self.clock.now() + delay);
        let send = || self.faults.apply(request.clone(), &*self.inner);
        match fault {
            None => send().await,
            Some(Fault::DelayRequest(delay)) => {
                sleep(delay).await;
                send().await
            }
            Some(Fault::DelayReply(delay)) => {
                let reply = send().await;
                sleep(delay).await;
                reply
            }
            Some(Fault::Fail(kind)) => Err(error(kind)),
            Some(Fault::Late(delay)) => {
                let arrives = sleep(delay);
                let (faults, inner) = (self.faults.clone(), Arc::clone(&self.inner));
                tokio::spawn(async move {
                    arrives.await;
                    // The caller has given up, so the outcome is not needed.
                    drop(faults.apply(request, &*inner).await);
                });
                pending().await
            }
            Some(Fault::LoseReply) => {
                // The caller never receives the outcome.
                drop(send().await);
                Err(error(ErrorKind::Indeterminate))
            }
            Some(Fault::Panic) => panic!("injected fault"),
            Some(Fault::SwallowRequest) => pending().await,
            Some(Fault::SwallowReply) => {
                drop(send().await);
                pending().await
            }
        }
    }

    /// Renews `leases` in one batch. If the batch fails, the renewal of each lease fails.
    async fn renew_batch(
        &self,
        fault: Option<Fault>,
        leases: Vec<Lease>,
    ) -> Vec<Result<Renewal, Error>> {
        let reply = self.suffer(fault, Request::RenewAll(leases.clone())).await;
        read!(reply, RenewAll).unwrap_or_else(|error: Error| {
            let failed = |lease| Err(self.error(error.kind(), &Request::Renew(lease)));
            leases.into_iter().map(failed).collect()
        })
    }

    fn watch_with(&self, key: &LockKey, watch: impl FnOnce(&B) -> KeyWatch) -> KeyWatch {
        if !self.faults.allow_watch(key) {
            return KeyWatch::silent();
        }
        match *lock(&self.faults.0.news) {
            News::True => watch(&self.inner),
            News::Muted => KeyWatch::silent(),
            News::Scripted => self.faults.0.scripted.watch(key),
        }
    }

    fn error(&self, kind: ErrorKind, request: &Request) -> Error {
        let error = Error::new(kind, "injected fault").with_backend(self.capabilities().name());
        let error = request.operation().into_iter().fold(error, Error::with_operation);
        request.key().into_iter().fold(error, Error::with_key)
    }
}

#[async_trait]
impl<B: LockBackend> LockBackend for FaultBackend<B> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone().unwrap_or_else(|| self.inner.capabilities())
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let outcome = self.exchange(Request::Acquire(claim.clone())).await;
        lock(&self.faults.0.asked_for).insert(claim.id());
        read!(outcome, Acquire)
    }

    /// Injects the fault that applies to a call on the first key.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let outcome = self.exchange(Request::AcquireAll(claims.to_vec())).await;
        lock(&self.faults.0.asked_for).extend(claims.iter().map(Claim::id));
        read!(outcome, AcquireAll)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        read!(self.exchange(Request::Renew(lease.clone())).await, Renew)
    }

    /// Counts each lease as one call. Leases with the same fault are renewed in one batch, as are
    /// the leases without a fault. The call returns after all batches have returned.
    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let fault = |lease: &Lease| self.faults.next(Operation::Renew, Some(lease.key()));
        let faults: Vec<Option<Fault>> = leases.iter().map(fault).collect();
        let mut batches: Vec<(Option<Fault>, Vec<Lease>)> = Vec::new();
        for (lease, fault) in leases.iter().zip(&faults) {
            match batches.iter_mut().find(|(of, _)| of == fault) {
                Some((_, batch)) => batch.push(lease.clone()),
                None => batches.push((*fault, vec![lease.clone()])),
            }
        }
        let renew =
            async |(fault, batch)| (fault, self.renew_batch(fault, batch).await.into_iter());
        let mut renewed = join_all(batches.into_iter().map(renew)).await;
        let next = |fault| renewed.iter_mut().find(|(of, _)| *of == fault)?.1.next();
        faults.into_iter().map_while(next).collect()
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        read!(self.exchange(Request::Release(lease.clone())).await, Release)
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.watch_with(key, |inner| inner.watch(key))
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.watch_with(claim.key(), |inner| inner.watch_claim(claim))
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.watch_with(lease.key(), |inner| inner.watch_lease(lease))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        read!(self.exchange(Request::Inspect(key.clone())).await, Inspect)
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        read!(self.exchange(Request::List(prefix.to_owned(), after.map(str::to_owned))).await, List)
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        read!(self.exchange(Request::ForceRelease(key.clone(), only)).await, ForceRelease)
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        read!(self.exchange(Request::Revoke(key.clone(), only)).await, Revoke)
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        read!(self.exchange(Request::Standing(fresh)).await, Standing)
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        read!(self.exchange(Request::Enlist(enlistment.clone())).await, Enlist)
    }

    async fn ping(&self) -> Result<(), Error> {
        self.exchange(Request::Ping).await.map(drop)
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        read!(self.exchange(Request::Diagnose).await, Diagnose)
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    async fn close(&self) {
        // A script can observe this request but not refuse it: a caller gets no error.
        drop(self.exchange(Request::Close).await);
    }
}
