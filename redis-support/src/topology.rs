//! Which server is asked: the only one, the one that sentinels name, or the one that has the key.

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

use crate::call::Call;
use crate::config::{Endpoints, Replicas};
use crate::context::Context;
use crate::driver::{Access, Driver, Received};
use crate::layout::Layout;
use crate::node::Node;
use crate::pipeline::{Outcome, Wanted};
use crate::process::Process;
use crate::reply::Reply;

use cluster::Cluster;
use sentinel::Sentinel;

/// No failover is faster: a server that takes longer to reply may have been replaced meanwhile and not know it yet, so the reply is believed
/// only after others were asked again.
const SLOW: Duration = Duration::from_millis(200);

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

    /// Whether there is one server, and never another.
    pub(crate) fn is_the_only_one(&self) -> bool {
        matches!(self, Self::Single(_))
    }

    /// Whether all keys are on one server.
    pub(crate) fn has_all_keys_together(&self) -> bool {
        !matches!(self, Self::Cluster(_))
    }

    /// Finds out whether they are there and let us in.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        match self {
            Self::Single(server) => server.connect().await,
            Self::Sentinel(sentinel) => sentinel.connect().await,
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// The servers on which all keys are, in the order of their addresses.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<Node<D>>>, Error> {
        Ok(match self {
            Self::Single(server) => vec![Arc::clone(server)],
            Self::Sentinel(sentinel) => vec![sentinel.primary().await?],
            Self::Cluster(cluster) => {
                let mut owners = cluster.owners().await?;
                owners.sort_by_key(|owner| owner.address().to_string());
                owners
            }
        })
    }

    pub(crate) fn disconnect(&self) {
        match self {
            Self::Single(server) => server.disconnect(),
            Self::Sentinel(sentinel) => sentinel.disconnect(),
            Self::Cluster(cluster) => cluster.disconnect(),
        }
    }

    /// Runs one script.
    pub(crate) async fn call(&self, call: &Call) -> Result<Received, Error> {
        self.ask(call, &Plainly).await
    }

    /// Runs one script and waits until as many replicas as are `wanted` have acknowledged it, for a `time`.
    pub(crate) async fn call_and_wait(
        &self,
        call: &Call,
        wanted: Replicas,
        time: Duration,
    ) -> Result<Acknowledged, Error> {
        let enough = match (wanted, self) {
            (Replicas::None, _) => {
                let received = self.call(call).await?;
                return Ok(Acknowledged { received, replicas: Ok(0), enough: 0 });
            }
            (Replicas::AtLeast(count), _) => u32::from(count),
            (Replicas::Majority, Self::Single(_)) => unreachable!("the configuration refuses it"),
            (Replicas::Majority, Self::Sentinel(sentinel)) => majority(sentinel.replicas().await?),
            (Replicas::Majority, Self::Cluster(cluster)) => majority(cluster.replicas(call).await?),
        };
        let waiting = AndWait { replicas: enough.to_string(), time };
        let (received, waited) = self.ask(call, &waiting).await?;
        let replicas = match waited {
            Ok(Reply::Int(count)) => Ok(u32::try_from(count).unwrap_or_default()),
            Ok(_) => Ok(0),
            Err(refusal) => Err(refusal.into_error()),
        };
        Ok(Acknowledged { received, replicas, enough })
    }

    async fn ask<A: Ask>(&self, call: &Call, ask: &A) -> Result<A::Answer, Error> {
        match self {
            Self::Single(server) => ask.server(server, call).await,
            Self::Sentinel(sentinel) => sentinel.ask(call, ask).await,
            Self::Cluster(cluster) => cluster.ask(call, ask).await,
        }
    }

    /// Asks the only server, which has `key`, which process it is.
    pub(crate) async fn process(&self, key: &str) -> Result<Process, Error> {
        let Self::Single(server) = self else {
            let message =
                "only a single server can be a member of a quorum: a failover loses grants";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let process = Process::ask(key, async |questions| server.exchange(questions).await).await;
        process.map_err(|error| only_asked(error, "the server did not say which process it is"))
    }

    /// Acquires or releases a mutex together with others, unless it is faster alone.
    pub(crate) async fn join(&self, wanted: Wanted, lease: &Lease) -> Result<Outcome, Error> {
        match self {
            Self::Single(server) => match server.join(wanted, lease) {
                Some(joined) => joined.await,
                None => Ok(Outcome::LeftAlone),
            },
            Self::Sentinel(sentinel) => Box::pin(sentinel.join(wanted, lease)).await,
            Self::Cluster(cluster) => Box::pin(cluster.join(wanted, lease)).await,
        }
    }

    /// Renews many mutexes, and tells of each whether it was renewed; the others take scripts of their own.
    pub(crate) async fn renew_all(
        &self,
        layout: &Layout,
        leases: &[&Lease],
    ) -> Result<Vec<bool>, Error> {
        match self {
            Self::Single(server) => server.renew_all(layout, leases).await,
            Self::Sentinel(sentinel) => sentinel.renew_all(layout, leases).await,
            // A script takes keys of one hash slot, and most locks have one of their own.
            Self::Cluster(_) => Ok(vec![false; leases.len()]),
        }
    }

    /// Runs many scripts, in as few round trips as can be.
    pub(crate) async fn call_all(&self, calls: &[Call]) -> Vec<Result<Received, Error>> {
        if calls.is_empty() {
            return Vec::new();
        }
        match self {
            Self::Single(server) => {
                each(server.call_all(&calls.iter().collect::<Vec<_>>()).await, calls.len())
            }
            Self::Sentinel(sentinel) => each(sentinel.call_all(calls).await, calls.len()),
            Self::Cluster(cluster) => cluster.call_all(calls).await,
        }
    }
}

impl<D: Driver> fmt::Debug for Topology<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(server) => server.fmt(f),
            Self::Sentinel(sentinel) => sentinel.fmt(f),
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}

/// A reply, and the number of replicas that acknowledged the write.
pub(crate) struct Acknowledged {
    pub(crate) received: Received,
    pub(crate) replicas: Result<u32, Error>,
    pub(crate) enough: u32,
}

/// So many replicas that they and their primary are more than half of all.
fn majority(replicas: u32) -> u32 {
    replicas.div_ceil(2)
}

/// A way of asking one server.
trait Ask: Sync {
    type Answer: Send;

    /// Asks `server`.
    fn server<D: Driver>(
        &self,
        server: &Arc<Node<D>>,
        call: &Call,
    ) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    /// The reply that tells whether the server is the right one.
    fn reply(answer: &Self::Answer) -> &Received;

    /// Makes a reply an answer, where a key is on its way to another server.
    fn plain(reply: Received) -> Self::Answer;
}

struct Plainly;

impl Ask for Plainly {
    type Answer = Received;

    async fn server<D: Driver>(
        &self,
        server: &Arc<Node<D>>,
        call: &Call,
    ) -> Result<Received, Error> {
        server.call(call).await
    }

    fn reply(answer: &Received) -> &Received {
        answer
    }

    fn plain(reply: Received) -> Received {
        reply
    }
}

struct AndWait {
    replicas: String,
    time: Duration,
}

impl Ask for AndWait {
    type Answer = (Received, Received);

    async fn server<D: Driver>(
        &self,
        server: &Arc<Node<D>>,
        call: &Call,
    ) -> Result<(Received, Received), Error> {
        let millis = self.time.as_millis().to_string();
        let wait = ["WAIT", &self.replicas, &millis];
        server.call_and_wait(call, &wait, self.time).await
    }

    fn reply(answer: &(Received, Received)) -> &Received {
        &answer.0
    }

    fn plain(reply: Received) -> (Received, Received) {
        // Where keys are moved about, nothing was waited for.
        (reply, Ok(Reply::Int(0)))
    }
}

/// An error of all calls is one of each of them.
fn each<T>(results: Result<Vec<Result<T, Error>>, Error>, count: usize) -> Vec<Result<T, Error>> {
    results.unwrap_or_else(|error| (0..count).map(|_| Err(error.repeated())).collect())
}

/// The error for a question that changes nothing: it does not matter whether it arrived.
pub(crate) fn only_asked(error: Error, message: &'static str) -> Error {
    match error.kind() {
        ErrorKind::Indeterminate => Error::new(ErrorKind::Unavailable, message).with_source(error),
        _ => error,
    }
}

/// The error for the reply of a server that was, or may have been, replaced while it answered: its work is lost, or was done nowhere.
fn replaced() -> Error {
    let message = "the server may have been replaced while it answered, outcome unknown";
    Error::new(ErrorKind::Indeterminate, message)
}
