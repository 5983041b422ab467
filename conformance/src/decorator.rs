//! Checks that a decorator forwards every method.
//!
//! A *decorator* is a [`LockBackend`] that adds something to another backend, for example a log,
//! and forwards the requests. A decorator that implements [`Layer`] cannot forget a method. But if
//! you implement [`LockBackend`] by hand, the compiler does not report a missing method, because
//! most methods of the trait have a default implementation. Some of these mistakes are silent:
//! without
//! `renew_all`, each renewal becomes a separate request, and without `disconnect` or `close`,
//! connections outlive their runtime. The suite cannot find these mistakes, because the store
//! cannot detect them.
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

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, mem, slice};

use async_trait::async_trait;
use leasehold_core::backend::{
    Claim, JoinRequest, KeyWatch, Layer, Lease, LockBackend, QuorumConfiguration, Reply, Request,
    StoreId, Subject, Vote,
};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, LockKey};

/// A backend in memory that records the calls of its methods. Clones share the record.
///
/// [`assert_forwards_every_method`] passes this backend to the decorator.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    store: MemoryBackend,
    calls: Arc<Mutex<Vec<String>>>,
}

/// Calls each method of a decorator once, including the facets, and checks that the decorator
/// forwards the call once to the same method. `decorate` wraps a backend in the decorator.
///
/// The module's documentation contains an example. Do not use this function for a decorator that
/// deliberately hides a feature or a facet of its backend.
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
    let (store, quorum) = (StoreId::new(), QuorumConfiguration::from_text("conformance"));
    let mut wrong = Vec::new();

    for request in [
        Request::Acquire(Cow::Borrowed(&claim)),
        Request::AcquireAll(Cow::Borrowed(slice::from_ref(&claim))),
        Request::Renew(Cow::Borrowed(&lease)),
        Request::RenewAll(Cow::Borrowed(slice::from_ref(&lease))),
        Request::Release(Cow::Borrowed(&lease)),
        Request::Ping,
        Request::Inspect(Cow::Borrowed(&key)),
        Request::List { prefix: Cow::Borrowed(""), after: None },
        Request::ForceRelease(Cow::Borrowed(&key), None),
        Request::RequestRevocation(Cow::Borrowed(&key), None),
        Request::Diagnose,
        Request::Status(store),
        Request::Join(Cow::Owned(JoinRequest::new(store, quorum.clone()))),
        Request::Vote(Cow::Owned(Vote::new(claim.clone(), quorum))),
        Request::Raise(Cow::Borrowed(&lease), 1),
    ] {
        // The outcome depends on the decorator and does not matter.
        drop(request.send(&decorator).await);
        wrong.extend(recorder.difference(&name(&request)));
    }
    for subject in [Subject::Key(&key), Subject::Claim(&claim), Subject::Lease(&lease)] {
        drop(decorator.watch(subject));
        wrong.extend(recorder.difference(&watch(subject)));
    }
    decorator.disconnect();
    wrong.extend(recorder.difference("disconnect"));
    decorator.close().await;
    wrong.extend(recorder.difference("close"));
    assert!(wrong.is_empty(), "the decorator does not forward each method:\n{}", wrong.join("\n"));
}

/// Returns the name of the variant.
fn name(variant: &impl fmt::Debug) -> String {
    format!("{variant:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

fn watch(subject: Subject<'_>) -> String {
    format!("watch of {}", name(&subject))
}

impl Recorder {
    fn record(&self, call: &str) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.to_owned());
    }

    /// Describes the calls since the last check if they differ from one `call`.
    fn difference(&self, call: &str) -> Option<String> {
        let calls = mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        let found = if calls.is_empty() { "no call".to_owned() } else { calls.join(", ") };
        (calls != [call]).then(|| format!("found {found}, expected one call of {call}"))
    }
}

#[async_trait]
impl Layer for Recorder {
    fn inner(&self) -> &dyn LockBackend {
        &self.store
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        self.record(&name(&request));
        request.send(&self.store).await
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.record(&watch(subject));
        self.store.watch(subject)
    }

    fn disconnect(&self) {
        self.record("disconnect");
    }

    async fn close(&self) {
        self.record("close");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;
    use leasehold_core::backend::{Attempt, Capabilities, Release, Renewal, Revocation};
    use leasehold_core::fault::FaultBackend;

    use super::*;
    use crate::driven::{Calls, Observed};
    use crate::silences::Silences;

    fn observed(inner: impl LockBackend) -> Observed {
        Observed::new(Arc::new(inner), Calls::default(), Silences::default())
    }

    #[tokio::test]
    async fn the_decorators_of_the_project_forward_every_method() {
        assert_forwards_every_method(Arc::new).await;
        assert_forwards_every_method(FaultBackend::new).await;
        assert_forwards_every_method(observed).await;
    }

    #[tokio::test]
    async fn three_nested_layers_forward_every_method() {
        assert_forwards_every_method(|recorder| {
            FaultBackend::new(observed(FaultBackend::new(recorder)))
        })
        .await;
    }

    #[tokio::test]
    async fn three_nested_layers_have_the_facets_of_the_innermost_backend() {
        let key = LockKey::new("k").unwrap();
        let lease = Lease::new(&key, Duration::from_secs(60));
        let quorum = QuorumConfiguration::from_text("conformance");
        let store = MemoryBackend::new();
        let nested = FaultBackend::new(observed(FaultBackend::new(store.clone())));
        let layers: Arc<dyn LockBackend> = Arc::new(nested);
        let (admin, member) = (layers.admin().unwrap(), layers.member().unwrap());

        let id = member.status(StoreId::new()).await.unwrap().store();
        member.join(&JoinRequest::new(id, quorum.clone())).await.unwrap();
        let vote = Vote::new(Claim::new(lease.clone()), quorum);
        assert!(matches!(member.vote(&vote).await.unwrap(), Attempt::Granted(_)));
        assert_eq!(member.raise(&lease, 1_000).await.unwrap(), Renewal::Renewed);
        assert!(member.status(id).await.unwrap().min_token() >= 1_000);

        assert_eq!(admin.list("", None).await.unwrap().keys(), slice::from_ref(&key));
        assert_eq!(admin.inspect(&key).await.unwrap().holders().len(), 1);
        let revocation = admin.request_revocation(&key, None).await.unwrap();
        assert_eq!(revocation, Revocation::Requested);
        assert_eq!(store.renew(&lease).await.unwrap(), Renewal::RevocationRequested);
        assert_eq!(admin.force_release(&key, None).await.unwrap().ended().len(), 1);
        assert_eq!(store.renew(&lease).await.unwrap(), Renewal::Vanished);
        assert!(admin.diagnose().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn nested_layers_have_no_facets_that_a_layer_hides() {
        let hidden = FaultBackend::new(MemoryBackend::new()).without_facets();
        let layers: Arc<dyn LockBackend> = Arc::new(FaultBackend::new(observed(hidden)));

        assert!(layers.admin().is_none());
        assert!(layers.member().is_none());
    }

    /// A decorator with the four required methods only.
    #[derive(Debug)]
    struct Forgetful(Recorder);

    #[async_trait]
    impl LockBackend for Forgetful {
        fn capabilities(&self) -> Capabilities {
            LockBackend::capabilities(&self.0)
        }

        async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            self.0.acquire(claim).await
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
        assert!(failure.contains("found Renew, expected one call of RenewAll"), "{failure}");
        for method in ["watch of Lease", "Inspect", "Vote", "Ping", "disconnect", "close"] {
            let line = format!("found no call, expected one call of {method}");
            assert!(failure.contains(&line), "{failure}");
        }
        assert_eq!(failure.lines().count(), 18, "{failure}");
    }
}
