//! Failover and moving slots in a cluster: which server is to be asked instead, and whether a slow one still owned the slot.

use std::sync::Arc;

use leasehold_core::Error;
use leasehold_core::clock::Instant;

use super::super::failover::{SLOW, replaced};
use super::Cluster;
use crate::driver::{Driver, Received};
use crate::error::Redirection;
use crate::node::Node;

/// The consequence of a reply.
pub(super) enum Routing<D: Driver> {
    /// The answer stands, be it a result or a refusal.
    Answered,
    Moved(Arc<Node<D>>),
    Ask(Arc<Node<D>>),
}

impl<D: Driver> Cluster<D> {
    /// Whether a server has answered, or another one is to be asked.
    pub(super) fn route(&self, server: &Arc<Node<D>>, slot: u16, reply: &Received) -> Routing<D> {
        let Err(refusal) = reply else {
            return Routing::Answered;
        };
        match refusal.redirection(server.address()) {
            Some(Redirection::Moved(address)) => {
                // Other slots may have moved as well.
                self.context.suspect();
                let owner = self.server_at(&address);
                let before = self.state().set_owner(slot, &owner);
                drop(before);
                Routing::Moved(owner)
            }
            Some(Redirection::Ask(address)) => Routing::Ask(self.server_at(&address)),
            None => {
                if refusal.is_of_a_cluster_in_motion() {
                    self.context.suspect();
                }
                Routing::Answered
            }
        }
    }

    /// Makes sure that a server that has taken long to answer still owned the slot.
    pub(super) async fn verify_slow(
        self: &Arc<Self>,
        slot: u16,
        node: &Arc<Node<D>>,
        asked_at: Instant,
    ) -> Result<(), Error> {
        if self.context.now().since(asked_at) < SLOW {
            return Ok(());
        }
        self.context.suspect();
        let owner = self.owner(slot).await.map_err(|_unknown| replaced())?;
        if Arc::ptr_eq(&owner, node) { Ok(()) } else { Err(replaced()) }
    }
}
