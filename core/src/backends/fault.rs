//! A backend for tests that wraps another backend and injects faults on request.

mod faults;

pub use faults::{Fault, Faults, Notifications};

use std::borrow::Cow;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::clock::{Clock, TokioClock};
use crate::contract::backend::{
    Attempt, Capabilities, Claim, KeyWatch, Layer, Lease, LeaseId, LockBackend, Member, Operation,
    Renewal, Reply, Request, StoreAdmin, Subject, renewals_of,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

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
    has_facets: bool,
    clock: Arc<dyn Clock>,
    faults: Faults,
}

impl<B: LockBackend> FaultBackend<B> {
    /// Wraps `inner` without any faults. Delays use Tokio's clock.
    pub fn new(inner: B) -> Self {
        let clock = Arc::new(TokioClock::new());
        let (capabilities, faults) = (None, Faults::default());
        Self { inner: Arc::new(inner), capabilities, has_facets: true, clock, faults }
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

    /// Hides the operations for [operators](LockBackend::admin) and for
    /// [quorums](LockBackend::member).
    #[must_use]
    pub fn without_facets(mut self) -> Self {
        self.has_facets = false;
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
    /// Returns the same errors as [`StoreAdmin::force_release`], and [`ErrorKind::Unsupported`] if
    /// the wrapped backend does not have this operation.
    pub async fn expire(&self, key: &LockKey) -> Result<(), Error> {
        Request::ForceRelease(Cow::Borrowed(key), None).send(&*self.inner).await.map(drop)
    }

    /// Ends all leases on `key` and acquires the key for a different owner for `ttl`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`expire`](Self::expire) and [`LockBackend::acquire`]. Returns
    /// [`ErrorKind::Timeout`] if another claim was granted first.
    pub async fn steal(&self, key: &LockKey, ttl: Duration) -> Result<Lease, Error> {
        self.expire(key).await?;
        let thief = Lease::new(key, ttl);
        match self.inner.acquire(&Claim::new(thief.clone())).await? {
            Attempt::Granted(_) => Ok(thief),
            Attempt::Held(_) => Err(Error::new(ErrorKind::Timeout, "another claim was quicker")),
        }
    }

    /// Applies `fault` to `request`.
    async fn suffer(&self, fault: Option<Fault>, request: Request<'_>) -> Result<Reply, Error> {
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
            Some(Fault::Fail(kind)) => Err(self.error(kind, &request)),
            Some(Fault::Late(delay)) => {
                let arrives = sleep(delay);
                let (faults, inner) = (self.faults.clone(), Arc::clone(&self.inner));
                let request = request.into_owned();
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
                Err(self.error(ErrorKind::Indeterminate, &request))
            }
            Some(Fault::Panic) => panic!("injected fault"),
            Some(Fault::SwallowRequest) => pending().await,
            Some(Fault::SwallowReply) => {
                drop(send().await);
                pending().await
            }
        }
    }

    /// Counts each lease as one call. Leases with the same fault are renewed in one batch, as are
    /// the leases without a fault. The call returns after all batches have returned.
    async fn renew_in_batches(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
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

    /// Renews `leases` in one batch. If the batch fails, the renewal of each lease fails.
    async fn renew_batch(
        &self,
        fault: Option<Fault>,
        leases: Vec<Lease>,
    ) -> Vec<Result<Renewal, Error>> {
        let reply = self.suffer(fault, Request::RenewAll(Cow::Borrowed(&leases))).await;
        renewals_of(reply, &leases)
    }

    fn error(&self, kind: ErrorKind, request: &Request<'_>) -> Error {
        let store = Layer::capabilities(self);
        let error = Error::new(kind, "injected fault").with_backend(store.name());
        let error = error.with_operation(request.operation());
        request.key().into_iter().fold(error, Error::with_key)
    }
}

#[async_trait]
impl<B: LockBackend> Layer for FaultBackend<B> {
    fn inner(&self) -> &dyn LockBackend {
        &*self.inner
    }

    /// Injects the fault that applies to a request for the first key.
    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        if let Request::RenewAll(leases) = &request {
            return Ok(self.renew_in_batches(leases).await.into());
        }
        let acquired: Vec<LeaseId> = request.claims().iter().map(Claim::id).collect();
        let fault = self.faults.next(request.operation(), request.key());
        let reply = self.suffer(fault, request).await;
        self.faults.attempted(acquired);
        reply
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone().unwrap_or_else(|| self.inner.capabilities())
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.faults.watch(subject, &*self.inner)
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        self.inner.admin().filter(|_| self.has_facets).map(|_| self as _)
    }

    fn member(&self) -> Option<&dyn Member> {
        self.inner.member().filter(|_| self.has_facets).map(|_| self as _)
    }
}
