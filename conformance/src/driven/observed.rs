//! A backend that reports its calls to the suite.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, Finding, Fingerprint, KeyPage, KeyWatch,
    Lease, LockBackend, Release, Renewal, Standing, StoreId,
};
use leasehold_core::{Error, LockKey};

use super::Calls;
use crate::silences::Silences;

/// The backend of a [`Scene`](crate::Scene)'s clients. The wrapper contains the harness's backend,
/// and records whether a call is in progress and whether the store replies.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Arc<dyn LockBackend>,
    calls: Calls,
    silences: Silences,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn LockBackend>, calls: Calls, silences: Silences) -> Self {
        Self { inner, calls, silences }
    }

    async fn ask<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _call = self.calls.begin().await;
        let asked = self.silences.ask();
        let answer = call.await;
        asked.ends(answer.as_ref().err());
        answer
    }
}

#[async_trait]
impl LockBackend for Observed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.ask(self.inner.try_acquire(claim)).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        self.ask(self.inner.try_acquire_all(claims)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.ask(self.inner.renew(lease)).await
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let _call = self.calls.begin().await;
        let asked = self.silences.ask();
        let renewals = self.inner.renew_all(leases).await;
        asked.ends(renewals.iter().find_map(|renewal| renewal.as_ref().err()));
        renewals
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.ask(self.inner.release(lease)).await
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
        self.ask(self.inner.inspect(key)).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.ask(self.inner.list(prefix, after)).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.ask(self.inner.force_release(key, only)).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.ask(self.inner.request_revocation(key, only)).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.ask(self.inner.standing(fresh)).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.ask(self.inner.enlist(enlistment)).await
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
        let _call = self.calls.begin().await;
        self.inner.close().await;
    }
}
