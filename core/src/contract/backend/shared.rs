//! Shared backends.

use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, Finding, Fingerprint, KeyPage, KeyWatch,
    Lease, LockBackend, Release, Renewal, Standing, StoreId,
};
use crate::contract::error::Error;
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A shared backend is itself a backend, even if its concrete type is not known
/// (`Arc<dyn LockBackend>`).
#[async_trait]
impl<B: LockBackend + ?Sized> LockBackend for Arc<B> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        (**self).try_acquire(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        (**self).try_acquire_all(claims).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        (**self).renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        (**self).release(lease).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        (**self).renew_all(leases).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        (**self).watch(key)
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        (**self).watch_claim(claim)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        (**self).watch_lease(lease)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        (**self).inspect(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        (**self).list(prefix, after).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        (**self).force_release(key, only).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        (**self).request_revocation(key, only).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        (**self).standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        (**self).enlist(enlistment).await
    }

    async fn ping(&self) -> Result<(), Error> {
        (**self).ping().await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        (**self).diagnose().await
    }

    fn disconnect(&self) {
        (**self).disconnect();
    }

    async fn close(&self) {
        (**self).close().await;
    }
}
