//! A backend that counts the calls of it.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, KeyPage, KeyWatch, Lease, LockBackend,
    Release, Renewal, Standing, StoreId,
};
use leasehold_core::{Error, LockKey};

use super::Calls;

/// The backend of a [`Scene`](crate::Scene)'s clients: the harness's own, of which the suite sees whether a call is under way.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Arc<dyn LockBackend>,
    calls: Calls,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn LockBackend>, calls: Calls) -> Self {
        Self { inner, calls }
    }
}

#[async_trait]
impl LockBackend for Observed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let _call = self.calls.begin().await;
        self.inner.try_acquire(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let _call = self.calls.begin().await;
        self.inner.try_acquire_all(claims).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let _call = self.calls.begin().await;
        self.inner.renew(lease).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let _call = self.calls.begin().await;
        self.inner.renew_all(leases).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let _call = self.calls.begin().await;
        self.inner.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.inner.watch(key)
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.inner.watch_claim(claim)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.inner.watch_lease(lease)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let _call = self.calls.begin().await;
        self.inner.inspect(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let _call = self.calls.begin().await;
        self.inner.list(prefix, after).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        let _call = self.calls.begin().await;
        self.inner.force_release(key).await
    }

    async fn request_revocation(&self, key: &LockKey) -> Result<Revocation, Error> {
        let _call = self.calls.begin().await;
        self.inner.request_revocation(key).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        let _call = self.calls.begin().await;
        self.inner.standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        let _call = self.calls.begin().await;
        self.inner.enlist(enlistment).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.ping().await
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    async fn close(&self) {
        let _call = self.calls.begin().await;
        self.inner.close().await;
    }
}
