//! Many servers, each with a part of the keys.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::{Error, ErrorKind};
use tokio::time::{Instant, timeout};

use super::{Ask, Plainly, SLOW, only_asked, replaced};
use crate::address::Address;
use crate::batch::Form;
use crate::call::Call;
use crate::client::{Access, Client, Received};
use crate::error::{Redirection, ServerError};
use crate::reply::Reply;
use crate::server::Server;
use crate::shared::Shared;
use crate::slot;

/// How often one call may be sent on. Each time the server has refused it as a whole.
pub(super) const MAX_REDIRECTIONS: usize = 5;

/// How many servers are asked at a time who has what.
const ASKED_TOGETHER: usize = 3;

/// The servers of a cluster.
///
/// The map of who has what is asked for when a server fails, is slow or says that it is out of date, of servers other than
/// that one. A redirection is followed at once.
pub(crate) struct Cluster<C: Client> {
    seeds: Vec<Address>,
    access: Access,
    shared: Arc<Shared<C>>,
    /// Whether the map is to be asked for before the next call.
    stale: AtomicBool,
    /// Whoever asks for the map holds it; the others wait for the outcome.
    asking: tokio::sync::Mutex<()>,
    state: Mutex<State<C>>,
}

struct State<C: Client> {
    /// Who has what: by the first slot of each range, in order.
    ranges: Vec<Range<C>>,
    /// When the map was asked for that this is.
    asked_at: Option<Instant>,
    /// All that were ever named and are in use.
    servers: HashMap<Address, Arc<Server<C>>>,
}

/// Slots that one server has.
struct Range<C: Client> {
    first: u16,
    last: u16,
    owner: Arc<Server<C>>,
}

impl<C: Client> PartialEq for Range<C> {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last)
            && Arc::ptr_eq(&self.owner, &other.owner)
    }
}

/// A map that is out of date.
struct OutOfDate<C: Client> {
    /// From the new one.
    is_different: bool,
    _ranges: Vec<Range<C>>,
    /// Those that have nothing any more.
    _servers: Vec<Arc<Server<C>>>,
}

impl<C: Client> Cluster<C> {
    pub(super) fn new(seeds: Vec<Address>, access: Access, shared: &Arc<Shared<C>>) -> Self {
        Self {
            seeds,
            access,
            shared: Arc::clone(shared),
            stale: AtomicBool::new(true),
            asking: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                ranges: Vec::new(),
                asked_at: None,
                servers: HashMap::new(),
            }),
        }
    }

    /// Asks who has what, and connects to all of them.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.ensure_map(None).await?;
        let owners = self.owners();
        let connected = join_all(owners.iter().map(|owner| owner.connect())).await;
        // One that is down is no reason not to use the others.
        let mut failure = None;
        for connected in connected {
            match connected {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    pub(super) fn disconnect(&self) {
        let servers: Vec<_> = self.state().servers.values().cloned().collect();
        servers.iter().for_each(|server| server.disconnect());
    }

    /// How many replicas the server with the key of `call` has, up or down.
    pub(super) async fn replicas(&self, call: &Call) -> Result<u32, Error> {
        let owner = self.owner(slot_of(call)).await?;
        let nodes = match owner.command(&["CLUSTER", "NODES"]).await {
            Ok(Ok(Reply::Bytes(nodes))) => nodes,
            Ok(Err(refusal)) => return Err(refusal.into_error()),
            Ok(Ok(_)) => return Err(senseless()),
            Err(error) => {
                self.distrust();
                return Err(only_asked(error, "a server of the cluster does not answer"));
            }
        };
        replicas_of_myself(&String::from_utf8_lossy(&nodes)).ok_or_else(senseless)
    }

    pub(super) async fn ask<A: Ask>(&self, call: &Call, ask: &A) -> Result<A::Answer, Error> {
        let (slot, mut call) = (slot_of(call), Cow::Borrowed(call));
        let mut server = self.owner(slot).await?;
        for _ in 0..MAX_REDIRECTIONS {
            let asked_at = Instant::now();
            let answer = ask.server(&server, &call).await;
            let answer = answer.inspect_err(|_error| self.distrust())?;
            if let Some(less) = half_moved(&call, A::reply(&answer)) {
                call = Cow::Owned(less);
                continue;
            }
            match self.judge(&server, slot, A::reply(&answer)) {
                Verdict::Answered if asked_at.elapsed() < SLOW => return Ok(answer),
                Verdict::Answered => {
                    self.verify(slot, &server).await?;
                    return Ok(answer);
                }
                Verdict::Moved(owner) => server = owner,
                Verdict::Ask(importing) => {
                    let asked = importing.call_asking(&call).await;
                    let asked = asked.inspect_err(|_error| self.distrust())?;
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
        let message = "the servers of the cluster do not agree who has the key";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Each server gets its part, and none waits for another.
    pub(super) async fn call_all(&self, calls: &[Call]) -> Vec<Result<Received, Error>> {
        let mut by_owner: HashMap<Address, (Arc<Server<C>>, Vec<usize>)> = HashMap::new();
        let mut results: Vec<Option<Result<Received, Error>>> = Vec::new();
        results.resize_with(calls.len(), || None);
        if let Err(error) = self.ensure_trusted_map(None).await {
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
        &self,
        owner: &Arc<Server<C>>,
        calls: &[&Call],
    ) -> Vec<Result<Received, Error>> {
        let asked_at = Instant::now();
        let replies = match owner.call_all(calls).await {
            Ok(replies) => replies,
            Err(error) => {
                self.distrust();
                return calls.iter().map(|_call| Err(error.repeated())).collect();
            }
        };
        let slow = asked_at.elapsed() >= SLOW;
        let believed = calls.iter().zip(replies).map(async |(call, reply)| {
            let reply = reply.inspect_err(|_error| self.distrust())?;
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
                // There may be more that has moved.
                self.distrust();
                let owner = self.server_at(&address);
                let before = self.state().set_owner(slot, &owner);
                drop(before);
                Verdict::Moved(owner)
            }
            Some(Redirection::Ask(address)) => Verdict::Ask(self.server_at(&address)),
            None => {
                if refusal.is_of_a_cluster_in_motion() {
                    self.distrust();
                }
                Verdict::Answered
            }
        }
    }

    /// The map may be out of date.
    fn distrust(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    async fn owner(&self, slot: u16) -> Result<Arc<Server<C>>, Error> {
        let known = self.state().owner(slot);
        self.ensure_trusted_map(known.as_ref()).await?;
        self.state().owner(slot).ok_or_else(|| self.unowned())
    }

    fn unowned(&self) -> Error {
        self.distrust();
        let message = "no server of the cluster has the key's slot at the moment";
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Asks who has what, if there is reason to.
    async fn ensure_trusted_map(&self, suspect: Option<&Arc<Server<C>>>) -> Result<(), Error> {
        self.shared.ensure_open()?;
        if self.stale.load(Ordering::Relaxed) { self.ensure_map(suspect).await } else { Ok(()) }
    }

    /// Makes sure that what a server has said so late it said as the owner of the slot.
    async fn verify(&self, slot: u16, server: &Arc<Server<C>>) -> Result<(), Error> {
        self.distrust();
        self.ensure_map(Some(server)).await.map_err(|_unknown| replaced())?;
        let owner = self.state().owner(slot);
        match owner {
            Some(owner) if Arc::ptr_eq(&owner, server) => Ok(()),
            _ => Err(replaced()),
        }
    }

    /// Asks who has what, of others than `suspect` if there are any that answer.
    async fn ensure_map(&self, suspect: Option<&Arc<Server<C>>>) -> Result<(), Error> {
        let since = Instant::now();
        let turn = timeout(self.shared.timeout, self.asking.lock()).await;
        let _turn = turn.map_err(|_elapsed| unreachable())?;
        // One that another call has asked for meanwhile will do.
        if self.state().asked_at.is_some_and(|asked_at| asked_at > since) {
            return Ok(());
        }
        self.stale.store(false, Ordering::Relaxed);
        let asked_at = Instant::now();
        match self.ask_for_map(suspect).await {
            Ok(owners) => {
                let before = self.state().adopt(owners, asked_at);
                if before.is_different {
                    // On servers that have got something, nobody who waits is known.
                    self.shared.news.interrupted();
                }
                Ok(())
            }
            Err(error) => {
                self.distrust();
                Err(error)
            }
        }
    }

    async fn ask_for_map(&self, suspect: Option<&Arc<Server<C>>>) -> Result<Vec<Range<C>>, Error> {
        let mut failure = None;
        let (last, others): (Vec<_>, Vec<_>) = self.candidates().into_iter().partition(|server| {
            suspect.is_some_and(|suspect| suspect.address() == server.address())
        });
        for some in others.chunks(ASKED_TOGETHER).chain(last.chunks(ASKED_TOGETHER)) {
            let mut maps: FuturesUnordered<_> =
                some.iter().map(|server| self.map_of(server)).collect();
            while let Some(map) = maps.next().await {
                match map {
                    Ok(map) => return Ok(map),
                    Err(error) => failure = Some(error),
                }
            }
        }
        Err(failure.unwrap_or_else(unreachable))
    }

    /// Whom to ask: those that are known, and then those that were named at first.
    fn candidates(&self) -> Vec<Arc<Server<C>>> {
        let mut known = self.owners();
        fastrand::shuffle(&mut known);
        let seeds = self.seeds.iter().map(|seed| self.server_at(seed));
        known.extend(seeds);
        let mut candidates: Vec<Arc<Server<C>>> = Vec::new();
        for server in known {
            let is_new = |other: &Arc<Server<C>>| other.address() != server.address();
            if candidates.iter().all(is_new) {
                candidates.push(server);
            }
        }
        candidates
    }

    async fn map_of(&self, server: &Arc<Server<C>>) -> Result<Vec<Range<C>>, Error> {
        let reply = server.command(&["CLUSTER", "SLOTS"]).await;
        let reply = reply.map_err(|error| only_asked(error, "no server of the cluster answers"))?;
        let reply = reply.map_err(ServerError::into_error)?;
        let ranges = read_slots(&reply, server.address()).ok_or_else(senseless)?;
        if ranges.is_empty() {
            let message = "the server has no part in a cluster yet";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let range = |(first, last, address)| Range { first, last, owner: self.server_at(&address) };
        Ok(ranges.into_iter().map(range).collect())
    }

    fn server_at(&self, address: &Address) -> Arc<Server<C>> {
        let mut state = self.state();
        if let Some(server) = state.servers.get(address) {
            return Arc::clone(server);
        }
        let server = Server::new(address.clone(), self.access.clone(), Form::ALONE, &self.shared);
        state.servers.insert(address.clone(), Arc::clone(&server));
        server
    }

    /// All that have something.
    fn owners(&self) -> Vec<Arc<Server<C>>> {
        let state = self.state();
        let mut owners: Vec<Arc<Server<C>>> = Vec::new();
        for range in &state.ranges {
            if owners.iter().all(|owner| !Arc::ptr_eq(owner, &range.owner)) {
                owners.push(Arc::clone(&range.owner));
            }
        }
        owners
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Verdict<C: Client> {
    /// Whatever it is that it has answered.
    Answered,
    Moved(Arc<Server<C>>),
    Ask(Arc<Server<C>>),
}

impl<C: Client> State<C> {
    fn owner(&self, slot: u16) -> Option<Arc<Server<C>>> {
        let after = self.ranges.partition_point(|range| range.first <= slot);
        let range = self.ranges[..after].last()?;
        (slot <= range.last).then(|| Arc::clone(&range.owner))
    }

    /// One slot has another owner than the map says. The one that it had is to be dropped with nothing locked.
    fn set_owner(&mut self, slot: u16, owner: &Arc<Server<C>>) -> Option<Arc<Server<C>>> {
        let after = self.ranges.partition_point(|range| range.first <= slot);
        let own = Range { first: slot, last: slot, owner: Arc::clone(owner) };
        let Some(index) = after.checked_sub(1).filter(|index| slot <= self.ranges[*index].last)
        else {
            self.ranges.insert(after, own);
            return None;
        };
        let Range { first, last, owner: before } = self.ranges.remove(index);
        let part = |first, last| Range { first, last, owner: Arc::clone(&before) };
        let left = (first < slot).then(|| part(first, slot - 1));
        let right = (slot < last).then(|| part(slot + 1, last));
        let parts = left.into_iter().chain([own]).chain(right);
        self.ranges.splice(index..index, parts);
        Some(before)
    }

    /// Takes a new map, and returns what is to be dropped with nothing locked.
    fn adopt(&mut self, mut ranges: Vec<Range<C>>, asked_at: Instant) -> OutOfDate<C> {
        ranges.sort_by_key(|range| range.first);
        let is_different = self.ranges != ranges;
        let ranges = mem::replace(&mut self.ranges, ranges);
        self.asked_at = Some(asked_at);
        // Those that have nothing any more are disconnected once nobody waits for them.
        let is_unused = |server: &Arc<Server<C>>| {
            self.ranges.iter().all(|range| !Arc::ptr_eq(&range.owner, server))
        };
        let unused = self.servers.extract_if(|_, server| is_unused(server));
        OutOfDate {
            is_different,
            _ranges: ranges,
            _servers: unused.map(|(_, server)| server).collect(),
        }
    }
}

/// What may be asked for instead, if a server has refused because not all keys are on its side.
fn half_moved(call: &Call, reply: &Received) -> Option<Call> {
    let refused = reply.as_ref().is_err_and(ServerError::is_half_moved);
    refused.then(|| call.with_essential_keys()).flatten()
}

fn slot_of(call: &Call) -> u16 {
    slot::of(call.keys().next().expect("each call is for a key").as_bytes())
}

/// Reads the reply to `CLUSTER SLOTS`: who has the slots from here to there.
fn read_slots(reply: &Reply, asked: &Address) -> Option<Vec<(u16, u16, Address)>> {
    let Reply::Array(ranges) = reply else {
        return None;
    };
    let range = |range: &Reply| {
        let Reply::Array(parts) = range else {
            return None;
        };
        let [Reply::Int(first), Reply::Int(last), Reply::Array(owner), ..] = parts.as_slice()
        else {
            return None;
        };
        let [host, Reply::Int(port), ..] = owner.as_slice() else {
            return None;
        };
        let host = match host {
            Reply::Bytes(host) => str::from_utf8(host).ok()?,
            // It does not know.
            _ => "",
        };
        let address = Address::of(host, u16::try_from(*port).ok()?, asked)?;
        Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, address))
    };
    ranges.iter().map(range).collect()
}

/// Reads the reply to `CLUSTER NODES`: how many replicas the server has that replied, or that its primary has.
fn replicas_of_myself(nodes: &str) -> Option<u32> {
    let lines: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
    let flags = |line: &[&str], flag: &str| {
        line.get(2).is_some_and(|flags| flags.split(',').any(|known| known == flag))
    };
    let myself = lines.iter().find(|line| flags(line, "myself"))?;
    let primary = if flags(myself, "master") { myself.first()? } else { myself.get(3)? };
    let replicas = lines.iter().filter(|line| line.get(3) == Some(primary)).count();
    u32::try_from(replicas).ok()
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unavailable, "no server of the cluster can be reached")
}

fn senseless() -> Error {
    let message = "what a server says of its cluster makes no sense";
    Error::new(ErrorKind::Unexpected, message)
}

impl<C: Client> fmt::Debug for Cluster<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.owners();
        f.debug_struct("Cluster").field("servers", &servers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_whether_up_or_down() {
        let nodes = "\
            07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected\n\
            6ec2 127.0.0.1:30002@31002,host2 master - 0 1426238316232 2 connected 5461-10922\n\
            e7d1 127.0.0.1:30001@31001,host1 myself,master - 0 0 1 connected 0-5460 [93-<-6ec2]\n\
            292f 127.0.0.1:30003@31003,host3 slave,fail e7d1 0 1426238318243 3 disconnected\n";

        assert_eq!(replicas_of_myself(nodes), Some(2));
        assert_eq!(replicas_of_myself(&nodes.replace("myself,", "")), None);
        let on_a_replica = nodes.replace("myself,", "").replace("slave e7d1", "myself,slave e7d1");
        assert_eq!(replicas_of_myself(&on_a_replica), Some(2));
    }
}
