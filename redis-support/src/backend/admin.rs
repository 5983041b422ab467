//! Implements the operations for operators.

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Finding, Fingerprint, ForcedRelease, Inspection, KeyPage, Operation, Revocation, StoreAdmin,
};
use leasehold_core::{Error, LockKey};

use super::{Backend, in_operation};
use crate::call::Call;
use crate::diagnosis;
use crate::driver::Driver;
use crate::error::only_asked;
use crate::layout::Concerns;
use crate::listing;
use crate::reply::{decode_forced_release, decode_inspection, decode_revocation};

#[async_trait]
impl<D: Driver> StoreAdmin for Backend<D> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let call = Call::inspect(&self.0.layout, key);
        self.call(Operation::Inspect, key, call, decode_inspection).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let page = async {
            let primaries = self.0.topology.primaries().await?;
            listing::page(&primaries, &self.0.layout, prefix, after).await
        };
        let page = page
            .await
            .map_err(|error| only_asked(error, "the server did not return its list of keys"));
        page.map_err(|error| in_operation::<D>(error, Operation::List))
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let call = Call::force_release(&self.0.layout, key, only);
        let forced = self.call(Operation::ForceRelease, key, call, decode_forced_release).await?;
        // A forced release is rare, so all watches of this process are notified, including waiters
        // that are normally notified individually.
        self.0.news.interrupted();
        Ok(forced)
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let call = Call::request_revocation(&self.0.layout, key, only);
        let revocation =
            self.call(Operation::RequestRevocation, key, call, decode_revocation).await?;
        self.0.news.changed(key, Concerns::Holders);
        Ok(revocation)
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let primaries = self
            .0
            .topology
            .primaries()
            .await
            .map_err(|error| in_operation::<D>(error, Operation::Diagnose))?;
        let each = primaries.servers.iter().map(async |server| {
            let findings = diagnosis::of(server).await;
            if self.0.topology.is_the_only_one() {
                return findings;
            }
            let name = server.address().to_string();
            findings.into_iter().map(|it| it.with_server(name.clone())).collect()
        });
        Ok(join_all(each).await.into_iter().flatten().collect())
    }
}
