//! Implements the operations for operators.

use async_trait::async_trait;
use leasehold_core::backend::{
    Finding, Fingerprint, ForcedRelease, Inspection, KeyPage, Operation, Revocation, StoreAdmin,
};
use leasehold_core::{Error, LockKey};

use super::{EtcdBackend, context};
use crate::error::BACKEND;

#[async_trait]
impl StoreAdmin for EtcdBackend {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.describe(key).await.map_err(|failure| context(failure, Operation::Inspect, key))
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.names(prefix, after).await.map_err(|failure| {
            failure.into_error().with_operation(Operation::List).with_backend(BACKEND)
        })
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let ended = self.end_forcibly(key, only).await;
        ended.map_err(|failure| context(failure, Operation::ForceRelease, key))
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.write_revocation_request(key, only)
            .await
            .map_err(|failure| context(failure, Operation::RequestRevocation, key))
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(self.connection.diagnose().await)
    }
}
