//! Checks that a decorator forwards every method.
//!
//! A *decorator* is a [`LockBackend`] that adds something to another backend, for example a log, and
//! forwards the requests. Most methods of the trait have a default implementation, so the compiler
//! does not report a method that the decorator forgets. Some of these mistakes are silent: without
//! `renew_all`, each renewal becomes a separate request, and without `disconnect` or `close`,
//! connections outlive their runtime. No store can detect them, so the suite cannot either.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use leasehold_conformance::decorator;
//! use leasehold_core::fault::FaultBackend;
//!
//! decorator::assert_forwards_every_method(FaultBackend::new).await;
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Charter, Claim, Enlistment, Finding, Fingerprint, KeyPage,
    KeyWatch, Lease, LockBackend, Release, Renewal, Standing, StoreId,
};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, LockKey};

/// A backend in memory that records the calls of its methods. Clones share the record.
///
/// [`assert_forwards_every_method`] passes this backend to the decorator.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    store: MemoryBackend,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

/// Calls each method of a decorator once, and checks that the decorator forwards the call once to
/// the same method. `decorate` wraps a backend in the decorator.
///
/// The module's documentation contains an example. Do not use this function for a decorator that
/// deliberately hides a feature of its backend.
///
/// # Panics
///
/// Panics with a list of all methods that the decorator does not forward.
pub async fn assert_forwards_every_method<D: LockBackend>(decorate: impl FnOnce(Recorder) -> D) {
    let recorder = Recorder::default();
    let decorator = decorate(recorder.clone());
    let key = LockKey::new("conformance/decorator").expect("the key is short and plain");
    let lease = Lease::new(&key, Duration::from_secs(60));
    let claim = Claim::new(lease.clone());
    let store = StoreId::new();
    let enlistment = Enlistment::new(store, Charter::from_text("conformance"));
    let mut wrong = Vec::new();
    macro_rules! check {
        ($($method:ident: $call:expr;)+) => {$(
            recorder.take();
            _ = $call;
            wrong.extend(recorder.difference(stringify!($method)));
        )+};
    }

    check! {
        capabilities: decorator.capabilities();
        try_acquire: decorator.try_acquire(&claim).await;
        try_acquire_all: decorator.try_acquire_all(std::slice::from_ref(&claim)).await;
        renew: decorator.renew(&lease).await;
        renew_all: decorator.renew_all(std::slice::from_ref(&lease)).await;
        release: decorator.release(&lease).await;
        watch: decorator.watch(&key);
        watch_claim: decorator.watch_claim(&claim);
        watch_lease: decorator.watch_lease(&lease);
        inspect: decorator.inspect(&key).await;
        list: decorator.list("", None).await;
        force_release: decorator.force_release(&key, None).await;
        request_revocation: decorator.request_revocation(&key, None).await;
        standing: decorator.standing(store).await;
        enlist: decorator.enlist(&enlistment).await;
        ping: decorator.ping().await;
        diagnose: decorator.diagnose().await;
        disconnect: decorator.disconnect();
        close: decorator.close().await;
    }
    assert!(wrong.is_empty(), "the decorator does not forward each method:\n{}", wrong.join("\n"));
}

impl Recorder {
    fn record(&self, method: &'static str) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(method);
    }

    fn take(&self) -> Vec<&'static str> {
        mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Describes the recorded calls if they differ from one call of `method`. A decorator may query
    /// the capabilities at any time.
    fn difference(&self, method: &str) -> Option<String> {
        let mut calls = self.take();
        if method == "capabilities" {
            calls.dedup();
        } else {
            calls.retain(|call| *call != "capabilities");
        }
        let found = if calls.is_empty() { "no call".to_owned() } else { calls.join(", ") };
        (calls != [method]).then(|| format!("found {found}, expected one call of {method}"))
    }
}

#[async_trait]
impl LockBackend for Recorder {
    fn capabilities(&self) -> Capabilities {
        self.record("capabilities");
        self.store.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.record("try_acquire");
        self.store.try_acquire(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        self.record("try_acquire_all");
        self.store.try_acquire_all(claims).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.record("renew");
        self.store.renew(lease).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.record("renew_all");
        self.store.renew_all(leases).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.record("release");
        self.store.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.record("watch");
        self.store.watch(key)
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.record("watch_claim");
        self.store.watch_claim(claim)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.record("watch_lease");
        self.store.watch_lease(lease)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.record("inspect");
        self.store.inspect(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.record("list");
        self.store.list(prefix, after).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.record("force_release");
        self.store.force_release(key, only).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.record("request_revocation");
        self.store.request_revocation(key, only).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.record("standing");
        self.store.standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.record("enlist");
        self.store.enlist(enlistment).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.record("ping");
        self.store.ping().await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        self.record("diagnose");
        self.store.diagnose().await
    }

    fn disconnect(&self) {
        self.record("disconnect");
        self.store.disconnect();
    }

    async fn close(&self) {
        self.record("close");
        self.store.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;
    use leasehold_core::fault::FaultBackend;

    use super::*;
    use crate::driven::{Calls, Observed};
    use crate::silences::Silences;

    #[tokio::test]
    async fn the_decorators_of_the_project_forward_every_method() {
        assert_forwards_every_method(Arc::new).await;
        assert_forwards_every_method(FaultBackend::new).await;
        assert_forwards_every_method(|inner| {
            Observed::new(Arc::new(inner), Calls::default(), Silences::default())
        })
        .await;
    }

    /// A decorator with the four required methods only.
    #[derive(Debug)]
    struct Forgetful(Recorder);

    #[async_trait]
    impl LockBackend for Forgetful {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            self.0.try_acquire(claim).await
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.0.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.0.release(lease).await
        }
    }

    #[tokio::test]
    async fn each_forgotten_method_is_named() {
        let checks = assert_forwards_every_method(Forgetful);

        let failure = AssertUnwindSafe(checks).catch_unwind().await.unwrap_err();

        let failure = failure.downcast::<String>().unwrap();
        assert!(failure.contains("found renew, expected one call of renew_all"), "{failure}");
        for method in ["watch_lease", "ping", "disconnect", "close"] {
            let line = format!("found no call, expected one call of {method}");
            assert!(failure.contains(&line), "{failure}");
        }
        assert_eq!(failure.lines().count(), 16, "{failure}");
    }
}
