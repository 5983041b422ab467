//! Layers, which wrap a backend and see every request and every reply.

use std::borrow::Cow;
use std::fmt::Debug;

use async_trait::async_trait;

use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Finding, Fingerprint, JoinRequest, KeyPage, KeyWatch,
    Lease, LockBackend, Member, MemberStatus, Release, Renewal, Reply, Request, StoreAdmin,
    StoreId, Subject, Vote,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A backend that wraps another backend and sees all requests, for example to measure, delay or
/// change them.
///
/// Two methods are required. Every type that implements `Layer` is also a [`LockBackend`]. Each
/// async method except `close` becomes a [`Request`], including batches and the methods of
/// [`StoreAdmin`] and [`Member`]. A layer therefore cannot miss a request to the store, including
/// requests that are added later. By default, a layer has the same facets as the inner backend, and
/// [`disconnect`](LockBackend::disconnect) and [`close`](LockBackend::close) call the inner
/// backend.
///
/// # Example
///
/// The following layer prints how long each request took.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Instant;
///
/// use leasehold_core::backend::{Layer, LockBackend, Reply, Request};
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{Error, LockClient};
///
/// #[derive(Debug)]
/// struct Timed<B>(B);
///
/// #[async_trait::async_trait]
/// impl<B: LockBackend> Layer for Timed<B> {
///     fn inner(&self) -> &dyn LockBackend {
///         &self.0
///     }
///
///     async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
///         let started = Instant::now();
///         let reply = request.send(&self.0).await;
///         println!("{}: {:?}", request.operation(), started.elapsed());
///         reply
///     }
/// }
///
/// let client = LockClient::new(Timed(MemoryBackend::new()));
/// client.mutex("k")?.run(async |guard| println!("{:?} is left", guard.remaining())).await?;
/// # Ok::<(), Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Layer: Debug + Send + Sync + 'static {
    /// Returns the inner backend.
    fn inner(&self) -> &dyn LockBackend;

    /// Sends `request` to the inner backend with [`Request::send`], and returns the reply.
    ///
    /// If this method returns an error for [`Request::RenewAll`], the renewals of all leases fail
    /// with this error.
    ///
    /// # Errors
    ///
    /// Returns the error that the caller of the operation receives.
    ///
    /// # Cancel safety
    ///
    /// The caller may drop the future at any point. The store may have applied the request.
    async fn request(&self, request: Request<'_>) -> Result<Reply, Error>;

    /// Returns the capabilities of the inner backend.
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// Starts a watch of the inner backend.
    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.inner().watch(subject)
    }

    /// Returns this layer if the inner backend has the [facet for
    /// operators](LockBackend::admin).
    fn admin(&self) -> Option<&dyn StoreAdmin>
    where
        Self: Sized,
    {
        self.inner().admin().map(|_| self as _)
    }

    /// Returns this layer if the inner backend can be a [member of a
    /// quorum](LockBackend::member).
    fn member(&self) -> Option<&dyn Member>
    where
        Self: Sized,
    {
        self.inner().member().map(|_| self as _)
    }

    /// Drops all connections of the inner backend.
    fn disconnect(&self) {
        self.inner().disconnect();
    }

    /// Closes all connections of the inner backend.
    async fn close(&self) {
        self.inner().close().await;
    }
}

/// Returns the outcome of each renewal. If the request for all leases failed, each renewal fails.
pub(crate) fn renewals_of(
    reply: Result<Reply, Error>,
    leases: &[Lease],
) -> Vec<Result<Renewal, Error>> {
    let error = match reply.and_then(Reply::read::<Vec<_>>) {
        Ok(renewals) if renewals.len() == leases.len() => return renewals,
        Ok(_) => Error::new(ErrorKind::Unexpected, "a layer returned the wrong number of renewals"),
        Err(error) => error,
    };
    leases.iter().map(|lease| Err(error.repeated().of_key(lease.key()))).collect()
}

/// Sends each operation through [`Layer::request`].
#[async_trait]
impl<L: Layer> LockBackend for L {
    fn capabilities(&self) -> Capabilities {
        Layer::capabilities(self)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.request(Request::Acquire(Cow::Borrowed(claim))).await?.read()
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        self.request(Request::AcquireAll(Cow::Borrowed(claims))).await?.read()
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.request(Request::Renew(Cow::Borrowed(lease))).await?.read()
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let reply = self.request(Request::RenewAll(Cow::Borrowed(leases))).await;
        renewals_of(reply, leases)
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.request(Request::Release(Cow::Borrowed(lease))).await?.read()
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        Layer::watch(self, subject)
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Layer::admin(self)
    }

    fn member(&self) -> Option<&dyn Member> {
        Layer::member(self)
    }

    async fn ping(&self) -> Result<(), Error> {
        self.request(Request::Ping).await?.read()
    }

    fn disconnect(&self) {
        Layer::disconnect(self);
    }

    async fn close(&self) {
        Layer::close(self).await;
    }
}

/// Sends each operation through [`Layer::request`].
#[async_trait]
impl<L: Layer> StoreAdmin for L {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.request(Request::Inspect(Cow::Borrowed(key))).await?.read()
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let (prefix, after) = (Cow::Borrowed(prefix), after.map(Cow::Borrowed));
        self.request(Request::List { prefix, after }).await?.read()
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.request(Request::ForceRelease(Cow::Borrowed(key), only)).await?.read()
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.request(Request::RequestRevocation(Cow::Borrowed(key), only)).await?.read()
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        self.request(Request::Diagnose).await?.read()
    }
}

/// Sends each operation through [`Layer::request`].
#[async_trait]
impl<L: Layer> Member for L {
    async fn status(&self, fresh: StoreId) -> Result<MemberStatus, Error> {
        self.request(Request::Status(fresh)).await?.read()
    }

    async fn join(&self, request: &JoinRequest) -> Result<MemberStatus, Error> {
        self.request(Request::Join(Cow::Borrowed(request))).await?.read()
    }

    async fn vote(&self, vote: &Vote) -> Result<Attempt, Error> {
        self.request(Request::Vote(Cow::Borrowed(vote))).await?.read()
    }

    async fn raise(&self, lease: &Lease, min_token: u64) -> Result<Renewal, Error> {
        self.request(Request::Raise(Cow::Borrowed(lease), min_token)).await?.read()
    }
}
