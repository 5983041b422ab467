//! A backend for tests that wraps another backend and injects faults on request.

mod exchange;
mod faults;

pub use exchange::{Reply, Request};
pub use faults::{Fault, Faults, News};

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use self::exchange::read;
use crate::clock::{Clock, TokioClock};
use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, Finding, Fingerprint, KeyPage, KeyWatch,
    Lease, LockBackend, Operation, Release, Renewal, Standing, StoreId,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A backend that wraps the backend `B` and injects the faults in [`Faults`].
///
/// Scripts can also change individual requests and replies: see [`Faults::on_request`] and
/// [`Faults::on_reply`].
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
        self.faults.attempted([claim.id()]);
        read!(outcome, Acquire)
    }

    /// Injects the fault that applies to a call on the first key.
    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let outcome = self.exchange(Request::AcquireAll(claims.to_vec())).await;
        self.faults.attempted(claims.iter().map(Claim::id));
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
        self.faults.watch(key, || self.inner.watch(key))
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.faults.watch(claim.key(), || self.inner.watch_claim(claim))
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.faults.watch(lease.key(), || self.inner.watch_lease(lease))
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
        // `close` cannot report an error of a script.
        drop(self.exchange(Request::Close).await);
    }
}
