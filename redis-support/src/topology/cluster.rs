//! A Redis cluster, in which each server stores some of the keys.

mod map;
mod survey;
mod view;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::join_all;
use leasehold_core::backend::{Lease, unpoisoned};
use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};

use super::failover::{Confirmation, SLOW, Witnesses, replaced};
use crate::address::Address;
use crate::call::Call;
use crate::context::Context;
use crate::driver::{Access, Driver, Request};
use crate::error::{Redirection, ServerError, only_asked};
use crate::layout::Layout;
use crate::listing::Primaries;
use crate::node::{Answer, Node, Wait};
use crate::pipeline::{Change, Outcome};
use crate::reply::{Received, Reply};
use crate::slot;

use map::State;
use survey::{Map, Survey, senseless};
use view::replicas_of_myself;

/// The maximum number of redirections of a call. A server that redirects a call has rejected it
/// completely.
pub(super) const MAX_REDIRECTIONS: usize = 5;

/// The servers of a cluster.
///
/// A primary that is cut off from the cluster keeps replying for some time after it was replaced,
/// but its replies are no longer valid. The map of slot owners is therefore valid only if enough
/// owners have confirmed it recently ([`Confirmation`]). The owners are queried again immediately
/// if a server fails, is slow or reports that the map is outdated. Redirections are followed
/// immediately.
pub(crate) struct Cluster<D: Driver> {
    seeds: Vec<Address>,
    access: Access,
    layout: Layout,
    context: Arc<Context<D>>,
    confirmation: Confirmation<D>,
    state: Mutex<State<D>>,
}

/// What to do after a reply.
enum Routing<D: Driver> {
    /// The reply is final, whether it is a result or an error.
    Answered,
    Moved(Arc<Node<D>>),
    Ask(Arc<Node<D>>),
}

impl<D: Driver> Cluster<D> {
    pub(super) fn new(
        seeds: Vec<Address>,
        access: Access,
        layout: &Layout,
        context: &Arc<Context<D>>,
    ) -> Arc<Self> {
        let (confirmation, state, layout) =
            (Confirmation::new(context), Mutex::default(), layout.clone());
        Arc::new(Self { seeds, access, layout, context: Arc::clone(context), confirmation, state })
    }

    /// Requests the map, and connects to all owners.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        Confirmation::ensure(self).await?;
        let owners = self.state().owners();
        let connected = join_all(owners.iter().map(|owner| owner.connect())).await;
        // The remaining servers are usable even if one server is down.
        let mut failure = None;
        for connected in connected {
            match connected {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns all servers that have slots.
    pub(super) async fn primaries(self: &Arc<Self>) -> Result<Primaries<D>, Error> {
        Confirmation::ensure(self).await?;
        let state = self.state();
        let (mut servers, mark) = (state.owners(), state.mark());
        drop(state);
        servers.sort_by_key(|server| server.address().to_string());
        Ok(Primaries { servers, mark })
    }

    pub(super) fn disconnect(&self) {
        let servers: Vec<_> = self.state().servers.values().cloned().collect();
        servers.iter().for_each(|server| server.disconnect());
    }

    /// Returns the number of replicas, running or not, of the server with the key of `call`.
    pub(super) async fn replicas(self: &Arc<Self>, call: &Call) -> Result<u32, Error> {
        let owner = self.owner(slot_of(call)).await?;
        let nodes = match owner.ask([Request::Words(&["CLUSTER", "NODES"])]).await {
            Ok([Ok(Reply::Bytes(nodes))]) => nodes,
            Ok([Err(refusal)]) => return Err(refusal.into_error()),
            Ok([Ok(_)]) => return Err(senseless()),
            Err(error) => {
                self.context.suspect();
                return Err(only_asked(error, "a server of the cluster did not reply"));
            }
        };
        replicas_of_myself(&String::from_utf8_lossy(&nodes)).ok_or_else(senseless)
    }

    pub(super) async fn run(
        self: &Arc<Self>,
        call: &Call,
        wait: Option<&Wait>,
    ) -> Result<Answer, Error> {
        let (slot, mut call) = (slot_of(call), Cow::Borrowed(call));
        let mut node = self.owner(slot).await?;
        for _ in 0..MAX_REDIRECTIONS {
            let asked_at = self.context.now();
            let answer = node.run(&call, wait).await?;
            if let Some(less) = half_moved(&call, &answer.received) {
                call = Cow::Owned(less);
                continue;
            }
            match self.route(&node, slot, &answer.received) {
                Routing::Answered => {
                    self.verify_slow(slot, &node, asked_at).await?;
                    return Ok(answer);
                }
                Routing::Moved(owner) => node = owner,
                Routing::Ask(importing) => {
                    let asked = importing.run_asking(&call).await?;
                    if let Some(less) = half_moved(&call, &asked) {
                        call = Cow::Owned(less);
                        continue;
                    }
                    match self.route(&importing, slot, &asked) {
                        // The server did not wait for replicas, because keys are moving.
                        Routing::Answered => return Ok(Answer::unacknowledged(asked)),
                        // In the meantime, the slot has finished moving or has moved back.
                        Routing::Moved(owner) | Routing::Ask(owner) => node = owner,
                    }
                }
            }
        }
        let message = "the servers of the cluster disagree about which server owns the key";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Acquires or releases a mutex as part of a batch on its server. A mutex whose slot is moving
    /// needs its own script.
    pub(super) async fn change(
        self: &Arc<Self>,
        change: Change,
        lease: &Lease,
    ) -> Result<Outcome, Error> {
        let slot = self.layout.slot(lease.key());
        let (node, asked_at) = (self.owner(slot).await?, self.context.now());
        let outcome = node.change(change, lease).await?;
        self.verify_slow(slot, &node, asked_at).await?;
        Ok(outcome)
    }

    /// Sends each server the calls for its keys. Calls to different servers run concurrently.
    pub(super) async fn run_all(self: &Arc<Self>, calls: &[Call]) -> Vec<Result<Received, Error>> {
        let mut by_owner: HashMap<Address, (Arc<Node<D>>, Vec<usize>)> = HashMap::new();
        let mut results: Vec<Option<Result<Received, Error>>> = Vec::new();
        results.resize_with(calls.len(), || None);
        if let Err(error) = Confirmation::ensure(self).await {
            return calls.iter().map(|_call| Err(error.repeated())).collect();
        }
        for (index, call) in calls.iter().enumerate() {
            match self.state().owner(slot_of(call)) {
                Some(owner) => {
                    let of_owner = by_owner.entry(owner.address().clone());
                    of_owner.or_insert_with(|| (owner, Vec::new())).1.push(index);
                }
                None => results[index] = Some(Err(self.unowned())),
            }
        }
        let parts = by_owner.into_values().map(async |(owner, indices)| {
            let of_owner: Vec<&Call> = indices.iter().map(|index| &calls[*index]).collect();
            let replies = self.run_part(&owner, &of_owner).await;
            (indices, replies)
        });
        for (indices, replies) in join_all(parts).await {
            for (index, reply) in indices.into_iter().zip(replies) {
                results[index] = Some(reply);
            }
        }
        results.into_iter().map(|result| result.expect("each call is in one part")).collect()
    }

    async fn run_part(
        self: &Arc<Self>,
        owner: &Arc<Node<D>>,
        calls: &[&Call],
    ) -> Vec<Result<Received, Error>> {
        let asked_at = self.context.now();
        let replies = owner.run_all(calls).await;
        let believed = calls.iter().zip(replies).map(async |(call, reply)| {
            let reply = reply?;
            let slot = slot_of(call);
            if half_moved(call, &reply).is_none()
                && matches!(self.route(owner, slot, &reply), Routing::Answered)
            {
                self.verify_slow(slot, owner, asked_at).await?;
                return Ok(reply);
            }
            // The call was rejected, so nothing was applied.
            Ok(self.run(call, None).await?.received)
        });
        join_all(believed).await
    }

    /// Decides whether a reply is final or the call must be sent to a different server.
    fn route(&self, server: &Arc<Node<D>>, slot: u16, reply: &Received) -> Routing<D> {
        let Err(refusal) = reply else {
            return Routing::Answered;
        };
        match refusal.redirection(server.address()) {
            Some(Redirection::Moved(address)) => {
                // Further slots may have moved too.
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

    /// If a server's reply was slow, checks that the server still owned the slot.
    async fn verify_slow(
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

    async fn owner(self: &Arc<Self>, slot: u16) -> Result<Arc<Node<D>>, Error> {
        Confirmation::ensure(self).await?;
        let owner = self.state().owner(slot);
        owner.ok_or_else(|| self.unowned())
    }

    fn unowned(&self) -> Error {
        self.context.suspect();
        let message = "no server of the cluster currently owns the key's slot";
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Returns the addresses to query: first the owners, then the replicas that may have replaced
    /// them, and then the configured addresses.
    fn candidates(&self) -> Vec<Address> {
        let (mut owners, mut replicas) = {
            let state = self.state();
            (state.owners(), state.replicas.clone())
        };
        fastrand::shuffle(&mut owners);
        fastrand::shuffle(&mut replicas);
        let mut candidates: Vec<Address> = Vec::new();
        let owners = owners.iter().map(|owner| owner.address().clone());
        for address in owners.chain(replicas).chain(self.seeds.iter().cloned()) {
            if !candidates.contains(&address) {
                candidates.push(address);
            }
        }
        candidates
    }

    fn server_at(&self, address: &Address) -> Arc<Node<D>> {
        self.server_in(&mut self.state(), address)
    }

    fn server_in(&self, state: &mut State<D>, address: &Address) -> Arc<Node<D>> {
        let server = state.servers.entry(address.clone()).or_insert_with(|| {
            Node::new(address.clone(), self.access.clone(), &self.layout, &self.context)
        });
        Arc::clone(server)
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        unpoisoned(&self.state)
    }
}

impl<D: Driver> Witnesses<D> for Cluster<D> {
    type Word = Map;

    fn confirmation(&self) -> &Confirmation<D> {
        &self.confirmation
    }

    async fn ask(&self) -> Result<Map, Error> {
        let members = self.state().members.clone();
        let survey = Survey::new(&members);
        survey.run(self.candidates(), |address| self.server_at(address)).await
    }

    fn adopt(&self, map: Map) {
        let before = self.state().adopt(map, |state, address| self.server_in(state, address));
        if before.is_different {
            // Servers with new slots do not know the waiters yet.
            self.context.news.interrupted();
        }
    }
}

/// If a server has rejected `call` because it has only some of the keys, returns the call with
/// which to replace it.
fn half_moved(call: &Call, reply: &Received) -> Option<Call> {
    let refused = reply.as_ref().is_err_and(ServerError::is_half_moved);
    refused.then(|| call.with_essential_keys()).flatten()
}

fn slot_of(call: &Call) -> u16 {
    slot::of(call.keys().next().expect("each call is for a key").as_bytes())
}

impl<D: Driver> fmt::Debug for Cluster<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.state().owners();
        f.debug_struct("Cluster").field("servers", &servers).finish_non_exhaustive()
    }
}
