//! Failover behind sentinels: a reply counts only if its server is still the master.

use std::sync::Arc;

use leasehold_core::Error;
use leasehold_core::clock::Instant;

use super::super::failover::{Confirmation, SLOW, replaced};
use super::Sentinel;
use crate::driver::{Driver, Received};
use crate::error::ServerError;
use crate::node::Node;

/// The master that is asked, and when.
pub(in crate::topology) struct Asked<D: Driver> {
    pub(in crate::topology) node: Arc<Node<D>>,
    at: Instant,
    /// How many suspicions there were before it was confirmed.
    suspicions: u64,
}

impl<D: Driver> Sentinel<D> {
    /// The master that a majority of the sentinels confirmed of late.
    pub(in crate::topology) async fn primary(self: &Arc<Self>) -> Result<Asked<D>, Error> {
        let suspicions = self.context.suspicions();
        Confirmation::ensure(self).await?;
        let node = self.server().ok_or_else(|| self.unknown())?;
        Ok(Asked { node, at: self.context.now(), suspicions })
    }

    /// Believes the answer of a server if it is still the master. A failure, a slow answer and one that `is_suspect` have the sentinels asked
    /// again.
    pub(super) async fn believe<T>(
        self: &Arc<Self>,
        asked: &Asked<D>,
        answer: Result<T, Error>,
        is_suspect: impl FnOnce(&T) -> bool,
    ) -> Result<T, Error> {
        let answer = answer.inspect_err(|_error| self.context.suspect())?;
        if is_suspect(&answer) || self.context.now().since(asked.at) >= SLOW {
            self.context.suspect();
        }
        if self.context.suspicions() != asked.suspicions {
            let now = self.primary().await.map_err(|_unknown| replaced())?;
            if !Arc::ptr_eq(&now.node, &asked.node) {
                return Err(replaced());
            }
        }
        Ok(answer)
    }
}

/// Whether a server refused a script since it is a replica.
pub(super) fn is_of_a_replica(received: &Received) -> bool {
    received.as_ref().is_err_and(ServerError::is_replica)
}
