//! Many servers, each with a part of the keys.

mod map;
mod survey;
mod view;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use leasehold_core::backend::Lease;
use leasehold_core::{Error, ErrorKind};

use super::trust::{Trust, Witnesses};
use super::{Ask, Plainly, SLOW, only_asked, replaced};
use crate::address::Address;
use crate::call::Call;
use crate::client::{Access, Client, Received};
use crate::error::{Redirection, ServerError};
use crate::layout::Layout;
use crate::pipeline::{Outcome, Wanted};
use crate::reply::Reply;
use crate::server::Server;
use crate::shared::Shared;
use crate::slot;

use map::State;
use survey::{Survey, senseless};
use view::replicas_of_myself;

/// How often one call may be sent on. Each time the server has refused it as a whole.
pub(super) const MAX_REDIRECTIONS: usize = 5;

/// The servers of a cluster.
///
/// A primary that is cut off from the others goes on for a while after it was replaced, and everything it says is lost. So the map of owners
/// is good only as long as enough owners have confirmed it of late ([`Trust`]); they are asked again at once when a server fails, is slow or
/// says that the map is out of date. A redirection is followed at once.
pub(crate) struct Cluster<C: Client> {
    seeds: Vec<Address>,
    access: Access,
    layout: Layout,
    shared: Arc<Shared<C>>,
    trust: Trust<C>,
    state: Mutex<State<C>>,
}

impl<C: Client> Cluster<C> {
    pub(super) fn new(
        seeds: Vec<Address>,
        access: Access,
        layout: &Layout,
        shared: &Arc<Shared<C>>,
    ) -> Arc<Self> {
        let (trust, state, layout) = (Trust::new(shared), Mutex::default(), layout.clone());
        Arc::new(Self { seeds, access, layout, shared: Arc::clone(shared), trust, state })
    }

    /// Asks for the map, and connects to all owners.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        Trust::ensure(self).await?;
        let owners = self.state().owners();
        let connected = join_all(owners.iter().map(|owner| owner.connect())).await;
        // The others are of use if one is down.
        let mut failure = None;
        for connected in connected {
            match connected {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// All servers that have slots.
    pub(super) async fn owners(self: &Arc<Self>) -> Result<Vec<Arc<Server<C>>>, Error> {
        Trust::ensure(self).await?;
        Ok(self.state().owners())
    }

    pub(super) fn disconnect(&self) {
        let servers: Vec<_> = self.state().servers.values().cloned().collect();
        servers.iter().for_each(|server| server.disconnect());
    }

    /// How many replicas the server with the key of `call` has, up or down.
    pub(super) async fn replicas(self: &Arc<Self>, call: &Call) -> Result<u32, Error> {
        let owner = self.owner(slot_of(call)).await?;
        let nodes = match owner.command(&["CLUSTER", "NODES"]).await {
            Ok(Ok(Reply::Bytes(nodes))) => nodes,
            Ok(Err(refusal)) => return Err(refusal.into_error()),
            Ok(Ok(_)) => return Err(senseless()),
            Err(error) => {
                self.shared.doubt();
                return Err(only_asked(error, "a server of the cluster does not answer"));
            }
        };
        replicas_of_myself(&String::from_utf8_lossy(&nodes)).ok_or_else(senseless)
    }

    pub(super) async fn ask<A: Ask>(
        self: &Arc<Self>,
        call: &Call,
        ask: &A,
    ) -> Result<A::Answer, Error> {
        let (slot, mut call) = (slot_of(call), Cow::Borrowed(call));
        let mut server = self.owner(slot).await?;
        for _ in 0..MAX_REDIRECTIONS {
            let asked_at = self.shared.now();
            let answer = ask.server(&server, &call).await;
            let answer = answer.inspect_err(|_error| self.shared.doubt())?;
            if let Some(less) = half_moved(&call, A::reply(&answer)) {
                call = Cow::Owned(less);
                continue;
            }
            match self.judge(&server, slot, A::reply(&answer)) {
                Verdict::Answered if self.shared.now().since(asked_at) < SLOW => return Ok(answer),
                Verdict::Answered => {
                    self.verify(slot, &server).await?;
                    return Ok(answer);
                }
                Verdict::Moved(owner) => server = owner,
                Verdict::Ask(importing) => {
                    let asked = importing.call_asking(&call).await;
                    let asked = asked.inspect_err(|_error| self.shared.doubt())?;
                    if let Some(less) = half_moved(&call, &asked) {
                        call = Cow::Owned(less);
                        continue;
                    }
                    match self.judge(&importing, slot, &asked) {
                        Verdict::Answered => return Ok(A::plain(asked)),
                        // It has arrived meanwhile, or gone back.
                        Verdict::Moved(owner) | Verdict::Ask(owner) => server = owner,
                    }
                }
            }
        }
        let message = "the servers of the cluster do not agree on the key's owner";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Acquires or releases a mutex together with others on its server. A mutex whose slot moves takes a script of its own.
    pub(super) async fn join(
        self: &Arc<Self>,
        wanted: Wanted,
        lease: &Lease,
    ) -> Result<Outcome, Error> {
        let slot = self.layout.slot(lease.key());
        let (server, asked_at) = (self.owner(slot).await?, self.shared.now());
        let Some(joined) = server.join(wanted, lease) else {
            return Ok(Outcome::LeftAlone);
        };
        let outcome = joined.await.inspect_err(|_error| self.shared.doubt())?;
        if self.shared.now().since(asked_at) >= SLOW {
            self.verify(slot, &server).await?;
        }
        Ok(outcome)
    }

    /// Each server gets its part, and none waits for another.
    pub(super) async fn call_all(self: &Arc<Self>, calls: &[Call]) -> Vec<Result<Received, Error>> {
        let mut by_owner: HashMap<Address, (Arc<Server<C>>, Vec<usize>)> = HashMap::new();
        let mut results: Vec<Option<Result<Received, Error>>> = Vec::new();
        results.resize_with(calls.len(), || None);
        if let Err(error) = Trust::ensure(self).await {
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
            let replies = self.call_part(&owner, &of_owner).await;
            (indices, replies)
        });
        for (indices, replies) in join_all(parts).await {
            for (index, reply) in indices.into_iter().zip(replies) {
                results[index] = Some(reply);
            }
        }
        results.into_iter().map(|result| result.expect("each call is in one part")).collect()
    }

    async fn call_part(
        self: &Arc<Self>,
        owner: &Arc<Server<C>>,
        calls: &[&Call],
    ) -> Vec<Result<Received, Error>> {
        let asked_at = self.shared.now();
        let replies = match owner.call_all(calls).await {
            Ok(replies) => replies,
            Err(error) => {
                self.shared.doubt();
                return calls.iter().map(|_call| Err(error.repeated())).collect();
            }
        };
        let slow = self.shared.now().since(asked_at) >= SLOW;
        let believed = calls.iter().zip(replies).map(async |(call, reply)| {
            let reply = reply.inspect_err(|_error| self.shared.doubt())?;
            if half_moved(call, &reply).is_some() {
                return self.ask(call, &Plainly).await;
            }
            match self.judge(owner, slot_of(call), &reply) {
                Verdict::Answered if !slow => Ok(reply),
                Verdict::Answered => {
                    self.verify(slot_of(call), owner).await?;
                    Ok(reply)
                }
                // It was refused, and nothing applied.
                Verdict::Moved(_) | Verdict::Ask(_) => self.ask(call, &Plainly).await,
            }
        });
        join_all(believed).await
    }

    /// Whether a server has answered, or another one is to be asked.
    fn judge(&self, server: &Arc<Server<C>>, slot: u16, reply: &Received) -> Verdict<C> {
        let Err(refusal) = reply else {
            return Verdict::Answered;
        };
        match refusal.redirection(server.address()) {
            Some(Redirection::Moved(address)) => {
                // Other slots may have moved as well.
                self.shared.doubt();
                let owner = self.server_at(&address);
                let before = self.state().set_owner(slot, &owner);
                drop(before);
                Verdict::Moved(owner)
            }
            Some(Redirection::Ask(address)) => Verdict::Ask(self.server_at(&address)),
            None => {
                if refusal.is_of_a_cluster_in_motion() {
                    self.shared.doubt();
                }
                Verdict::Answered
            }
        }
    }

    async fn owner(self: &Arc<Self>, slot: u16) -> Result<Arc<Server<C>>, Error> {
        Trust::ensure(self).await?;
        let owner = self.state().owner(slot);
        owner.ok_or_else(|| self.unowned())
    }

    fn unowned(&self) -> Error {
        self.shared.doubt();
        let message = "no server of the cluster has the key's slot at the moment";
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Makes sure that a server that has taken so long to answer still owned the slot.
    async fn verify(self: &Arc<Self>, slot: u16, server: &Arc<Server<C>>) -> Result<(), Error> {
        self.shared.doubt();
        let owner = self.owner(slot).await.map_err(|_unknown| replaced())?;
        if Arc::ptr_eq(&owner, server) { Ok(()) } else { Err(replaced()) }
    }

    /// The addresses to ask: those of the owners, then those that may have taken over from them, then those that were named at first.
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

    fn server_at(&self, address: &Address) -> Arc<Server<C>> {
        self.server_in(&mut self.state(), address)
    }

    fn server_in(&self, state: &mut State<C>, address: &Address) -> Arc<Server<C>> {
        let server = state.servers.entry(address.clone()).or_insert_with(|| {
            Server::new(address.clone(), self.access.clone(), &self.layout, &self.shared)
        });
        Arc::clone(server)
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Client> Witnesses<C> for Cluster<C> {
    fn trust(&self) -> &Trust<C> {
        &self.trust
    }

    async fn ask(&self) -> Result<(), Error> {
        let members = self.state().members.clone();
        let survey = Survey::new(&members);
        let map = survey.run(self.candidates(), |address| self.server_at(address)).await?;
        let before = self.state().adopt(map, |state, address| self.server_in(state, address));
        if before.is_different {
            // On servers that have got something, no waiter is known.
            self.shared.news.interrupted();
        }
        Ok(())
    }
}

enum Verdict<C: Client> {
    /// The answer stands, be it a result or a refusal.
    Answered,
    Moved(Arc<Server<C>>),
    Ask(Arc<Server<C>>),
}

/// The call to send instead, if a server has refused because it has only some of the keys.
fn half_moved(call: &Call, reply: &Received) -> Option<Call> {
    let refused = reply.as_ref().is_err_and(ServerError::is_half_moved);
    refused.then(|| call.with_essential_keys()).flatten()
}

fn slot_of(call: &Call) -> u16 {
    slot::of(call.keys().next().expect("each call is for a key").as_bytes())
}

impl<C: Client> fmt::Debug for Cluster<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.state().owners();
        f.debug_struct("Cluster").field("servers", &servers).finish_non_exhaustive()
    }
}
