//! A mutex implemented with a different lock type.

use async_trait::async_trait;
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Feature, Finding, Fingerprint, KeyPage, KeyWatch, Lease,
    LockBackend, Release, Renewal, Share,
};
use leasehold_core::{Error, LockKey};

use crate::case::Need;

/// A backend whose mutexes are implemented with a different lock type of `B`, so that the complete
/// suite can test that lock type.
///
/// The backend does not declare permits, a queue, several keys at a time or quorum membership,
/// because the suite tests these features on `B` itself. The backend does not declare that it can
/// reserve fencing tokens, because only mutexes use reserved tokens.
///
/// ```
/// use leasehold_conformance::AsMutex;
/// use leasehold_core::memory::MemoryBackend;
///
/// let of_permits = AsMutex::semaphore(MemoryBackend::new());
/// let of_writers = AsMutex::write_lock(MemoryBackend::new());
/// # let _ = (of_permits, of_writers);
/// ```
#[derive(Clone, Debug)]
pub struct AsMutex<B> {
    inner: B,
    share: Share,
}

impl<B> AsMutex<B> {
    /// The features that this backend never declares. Use this constant for
    /// [`Harness::LACKS`](crate::Harness::LACKS).
    pub const LACKS: &[Need] = &[Need::Membership, Need::Queue, Need::Together, Need::Units];
}

impl<B: LockBackend> AsMutex<B> {
    /// Creates a backend whose mutexes are semaphores with a single permit.
    pub fn semaphore(inner: B) -> Self {
        Self { inner, share: Share::Units { units: 1, limit: 1 } }
    }

    /// Creates a backend whose mutexes are the write locks of reader-writer locks.
    pub fn write_lock(inner: B) -> Self {
        Self { inner, share: Share::WRITER }
    }

    fn claim(&self, claim: &Claim) -> Claim {
        Claim::new(self.lease(claim.lease())).with_patience(claim.patience())
    }

    fn lease(&self, lease: &Lease) -> Lease {
        lease.clone().with_share(self.share)
    }
}

#[async_trait]
impl<B: LockBackend> LockBackend for AsMutex<B> {
    fn capabilities(&self) -> Capabilities {
        let of_mutexes_alone = [
            Feature::Membership,
            Feature::Queue,
            Feature::SpareTokens,
            Feature::Together,
            Feature::Units,
        ];
        of_mutexes_alone.into_iter().fold(self.inner.capabilities(), Capabilities::without)
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.inner.try_acquire(&self.claim(claim)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.inner.renew(&self.lease(lease)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(&self.lease(lease)).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let leases: Vec<Lease> = leases.iter().map(|lease| self.lease(lease)).collect();
        self.inner.renew_all(&leases).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.inner.watch(key)
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.inner.watch_claim(&self.claim(claim))
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.inner.watch_lease(&self.lease(lease))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.inner.inspect(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.inner.list(prefix, after).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.inner.force_release(key, only).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.inner.request_revocation(key, only).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.ping().await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        self.inner.diagnose().await
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
