//! Chooses the server for a request: the only server, the primary that sentinels report, or the
//! owner of the key's hash slot.

mod cluster;
mod failover;
mod sentinel;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Lease;
use leasehold_core::{Error, ErrorKind};

use crate::address::Endpoints;
use crate::call::Call;
use crate::config::Replicas;
use crate::context::Context;
use crate::driver::{Access, Driver};
use crate::error::only_asked;
use crate::layout::Layout;
use crate::listing::Primaries;
use crate::node::{Answer, Node, Wait};
use crate::pipeline::{Change, Outcome};
use crate::process::Process;
use crate::reply::Received;

use cluster::Cluster;
use sentinel::Sentinel;

/// The servers of a backend.
pub(crate) enum Topology<D: Driver> {
    Single(Arc<Node<D>>),
    Sentinel(Arc<Sentinel<D>>),
    Cluster(Arc<Cluster<D>>),
}

impl<D: Driver> Topology<D> {
    pub(crate) fn new(
        topology: Endpoints,
        access: Access,
        sentinel_access: &Access,
        layout: &Layout,
        context: &Arc<Context<D>>,
    ) -> Self {
        match topology {
            Endpoints::Single(address) => Self::Single(Node::new(address, access, layout, context)),
            Endpoints::Sentinel { sentinels, master } => {
                let access = (access, sentinel_access.clone());
                Self::Sentinel(Sentinel::new(&sentinels, master, access, layout, context))
            }
            Endpoints::Cluster { seeds } => {
                Self::Cluster(Cluster::new(seeds, access, layout, context))
            }
        }
    }

    /// Returns whether there is a single server that never changes.
    pub(crate) fn is_the_only_one(&self) -> bool {
        matches!(self, Self::Single(_))
    }

    /// Returns whether all keys are on one server.
    pub(crate) fn has_all_keys_together(&self) -> bool {
        !matches!(self, Self::Cluster(_))
    }

    /// Checks whether the servers can be reached and accept the credentials.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        match self {
            Self::Single(node) => node.connect().await,
            Self::Sentinel(sentinel) => sentinel.connect().await,
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Returns the servers that together have all keys, sorted by address.
    pub(crate) async fn primaries(&self) -> Result<Primaries<D>, Error> {
        // If a single server has all keys, its address is sufficient.
        let only = |node| Primaries { servers: vec![node], mark: 0 };
        match self {
            Self::Single(node) => Ok(only(Arc::clone(node))),
            Self::Sentinel(sentinel) => Ok(only(sentinel.primary().await?.node)),
            Self::Cluster(cluster) => cluster.primaries().await,
        }
    }

    pub(crate) fn disconnect(&self) {
        match self {
            Self::Single(node) => node.disconnect(),
            Self::Sentinel(sentinel) => sentinel.disconnect(),
            Self::Cluster(cluster) => cluster.disconnect(),
        }
    }

    /// Returns the number of replicas that must acknowledge `call`, and the time limit `time`.
    pub(crate) async fn wait(
        &self,
        wanted: Replicas,
        time: Duration,
        call: &Call,
    ) -> Result<Option<Wait>, Error> {
        let replicas = match (wanted, self) {
            (Replicas::None, _) => return Ok(None),
            (Replicas::AtLeast(count), _) => u32::from(count),
            (Replicas::Majority, Self::Single(_)) => unreachable!("the configuration refuses it"),
            (Replicas::Majority, Self::Sentinel(sentinel)) => majority(sentinel.replicas().await?),
            (Replicas::Majority, Self::Cluster(cluster)) => majority(cluster.replicas(call).await?),
        };
        Ok(Some(Wait { replicas, time }))
    }

    /// Runs a script, and waits for replicas if `wait` is given.
    pub(crate) async fn run(&self, call: &Call, wait: Option<&Wait>) -> Result<Answer, Error> {
        match self {
            Self::Single(node) => node.run(call, wait).await,
            Self::Sentinel(sentinel) => sentinel.run(call, wait).await,
            Self::Cluster(cluster) => cluster.run(call, wait).await,
        }
    }

    /// Runs many scripts in as few round trips as possible.
    pub(crate) async fn run_all(&self, calls: &[Call]) -> Vec<Result<Received, Error>> {
        if calls.is_empty() {
            return Vec::new();
        }
        match self {
            Self::Single(node) => node.run_all(&calls.iter().collect::<Vec<_>>()).await,
            Self::Sentinel(sentinel) => sentinel.run_all(calls).await,
            Self::Cluster(cluster) => cluster.run_all(calls).await,
        }
    }

    /// Acquires or releases a mutex as part of a batch. If there is no batch, the mutex is skipped.
    pub(crate) async fn change(&self, change: Change, lease: &Lease) -> Result<Outcome, Error> {
        match self {
            Self::Single(node) => node.change(change, lease).await,
            Self::Sentinel(sentinel) => Box::pin(sentinel.change(change, lease)).await,
            Self::Cluster(cluster) => Box::pin(cluster.change(change, lease)).await,
        }
    }

    /// Renews many mutexes. Returns whether each mutex was renewed. Each lease that was not renewed
    /// needs a separate script.
    pub(crate) async fn renew_all(
        &self,
        layout: &Layout,
        leases: &[&Lease],
    ) -> Result<Vec<bool>, Error> {
        match self {
            Self::Single(node) => node.renew_all(layout, leases).await,
            Self::Sentinel(sentinel) => sentinel.renew_all(layout, leases).await,
            // The script for many locks declares its keys, which must be in one hash slot.
            Self::Cluster(_) => Ok(vec![false; leases.len()]),
        }
    }

    pub(crate) async fn process(&self, key: &str) -> Result<Process, Error> {
        let Self::Single(node) = self else {
            let message = "only a single server can be a member of a quorum, because a failover can lose locks";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let process = Process::ask(key, async |questions| node.ask(questions).await).await;
        process.map_err(|error| only_asked(error, "the server did not return its process ID"))
    }
}

impl<D: Driver> fmt::Debug for Topology<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(node) => node.fmt(f),
            Self::Sentinel(sentinel) => sentinel.fmt(f),
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}

/// Returns the number of replicas that form a majority together with their primary.
fn majority(replicas: u32) -> u32 {
    replicas.div_ceil(2)
}
