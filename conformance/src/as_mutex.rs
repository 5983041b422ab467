//! A mutex implemented with a different lock type.

use std::borrow::Cow;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{
    Capabilities, Claim, Feature, KeyWatch, Layer, Lease, LockBackend, Member, Mode, Reply,
    Request, Subject,
};

use crate::need::Need;

/// A backend whose mutexes are implemented with a different lock type of `B`, so that the complete
/// suite can test that lock type.
///
/// The backend hides permits, queues, requests for several keys and quorum membership, because the
/// suite tests these on `B` itself. It also hides spare tokens, because only mutexes use them.
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
    mode: Mode,
}

impl<B> AsMutex<B> {
    /// The features that this backend never supports. Use this constant for
    /// [`Harness::LACKS`](crate::Harness::LACKS).
    pub const LACKS: &[Need] = &[Need::Member, Need::Queue, Need::Together, Need::Units];
}

impl<B: LockBackend> AsMutex<B> {
    /// Creates a backend whose mutexes are semaphores with a single permit.
    pub fn semaphore(inner: B) -> Self {
        Self { inner, mode: Mode::Units { units: 1, limit: 1 } }
    }

    /// Creates a backend whose mutexes are the write locks of reader-writer locks.
    pub fn write_lock(inner: B) -> Self {
        Self { inner, mode: Mode::WRITER }
    }

    fn claim(&self, claim: &Claim) -> Claim {
        Claim::new(self.lease(claim.lease())).with_patience(claim.patience())
    }

    fn lease(&self, lease: &Lease) -> Lease {
        lease.clone().with_mode(self.mode)
    }
}

#[async_trait]
impl<B: LockBackend> Layer for AsMutex<B> {
    fn inner(&self) -> &dyn LockBackend {
        &self.inner
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        let request = match request {
            Request::Acquire(claim) => Request::Acquire(Cow::Owned(self.claim(&claim))),
            Request::AcquireAll(claims) => {
                Request::AcquireAll(claims.iter().map(|claim| self.claim(claim)).collect())
            }
            Request::Release(lease) => Request::Release(Cow::Owned(self.lease(&lease))),
            Request::Renew(lease) => Request::Renew(Cow::Owned(self.lease(&lease))),
            Request::RenewAll(leases) => {
                Request::RenewAll(leases.iter().map(|lease| self.lease(lease)).collect())
            }
            request => request,
        };
        request.send(&self.inner).await
    }

    fn capabilities(&self) -> Capabilities {
        let of_mutexes_alone =
            [Feature::Queue, Feature::SpareTokens, Feature::Together, Feature::Units];
        of_mutexes_alone.into_iter().fold(self.inner.capabilities(), Capabilities::without)
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Claim(claim) => self.inner.watch(Subject::Claim(&self.claim(claim))),
            Subject::Lease(lease) => self.inner.watch(Subject::Lease(&self.lease(lease))),
            subject => self.inner.watch(subject),
        }
    }

    fn member(&self) -> Option<&dyn Member> {
        None
    }
}
