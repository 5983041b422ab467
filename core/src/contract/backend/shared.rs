//! Shared backends.

use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, KeyWatch, Lease, LockBackend, Member, Release,
    Renewal, StoreAdmin, Subject,
};
use crate::contract::error::Error;

/// A shared backend is itself a backend, even if its concrete type is not known
/// (`Arc<dyn LockBackend>`).
#[async_trait]
impl<B: LockBackend + ?Sized> LockBackend for Arc<B> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        (**self).acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        (**self).renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        (**self).release(lease).await
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        (**self).acquire_all(claims).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        (**self).renew_all(leases).await
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        (**self).watch(subject)
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        (**self).admin()
    }

    fn member(&self) -> Option<&dyn Member> {
        (**self).member()
    }

    async fn ping(&self) -> Result<(), Error> {
        (**self).ping().await
    }

    fn disconnect(&self) {
        (**self).disconnect();
    }

    async fn close(&self) {
        (**self).close().await;
    }
}
