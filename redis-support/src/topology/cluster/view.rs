//! The owners of hash slots, as reported by the servers of a Redis cluster.

use std::collections::{BTreeSet, HashMap};

use crate::address::Address;
use crate::reply::Reply;
use crate::slot::SLOTS;

/// Slots and their owner, as reported by one or more servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Slots {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Member,
}

/// A server of a cluster.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) address: Address,
}

/// The reply of one server.
#[derive(Debug)]
pub(super) struct View {
    /// The ID of the server that replied.
    pub(super) by: String,
    pub(super) replicas: BTreeSet<Member>,
    slots: Vec<Slots>,
    /// The epochs of all servers that this server knows, by their IDs. If two servers claim a slot,
    /// the claim with the larger epoch is newer.
    epochs: HashMap<String, u64>,
}

impl View {
    /// Reads the replies to `CLUSTER SLOTS` and `CLUSTER NODES`.
    pub(super) fn read(slots: &Reply, nodes: &Reply, asked: &Address) -> Option<Self> {
        let Reply::Bytes(nodes) = nodes else { return None };
        let nodes = str::from_utf8(nodes).ok()?;
        let (mut by, mut epochs) = (None, HashMap::new());
        for line in nodes.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [id, _address, flags, _primary, _ping, _pong, epoch, ..] = fields[..] else {
                return None;
            };
            if flags.split(',').any(|flag| flag == "myself") {
                by = Some(id.to_owned());
            }
            epochs.insert(id.to_owned(), epoch.parse().ok()?);
        }
        let (slots, replicas) = read_slots(slots, asked)?;
        Some(Self { by: by?, replicas, slots, epochs })
    }

    /// Returns the IDs of all servers that this server knows.
    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.epochs.keys().map(String::as_str)
    }

    /// Returns the servers that have slots.
    pub(super) fn owners(&self) -> BTreeSet<&Member> {
        self.slots.iter().map(|slots| &slots.owner).collect()
    }

    fn epoch_of(&self, owner: &Member) -> u64 {
        self.epochs.get(&owner.id).copied().unwrap_or_default()
    }
}

/// Merges the replies of several servers. The owner of a slot is the server with the largest epoch,
/// as in the cluster's own protocol.
pub(super) fn merge<'a>(views: impl IntoIterator<Item = &'a View>) -> Vec<Slots> {
    let mut owners: Vec<Option<(u64, &Member)>> = vec![None; usize::from(SLOTS)];
    for view in views {
        for Slots { first, last, owner } in &view.slots {
            let epoch = view.epoch_of(owner);
            for known in &mut owners[usize::from(*first)..=usize::from(*last)] {
                if known.is_none_or(|(newest, _)| epoch > newest) {
                    *known = Some((epoch, owner));
                }
            }
        }
    }
    let mut map: Vec<Slots> = Vec::new();
    for (slot, owner) in (0..SLOTS).zip(owners) {
        let Some((_epoch, owner)) = owner else { continue };
        match map.last_mut().filter(|range| range.last + 1 == slot && range.owner == *owner) {
            Some(range) => range.last = slot,
            None => map.push(Slots { first: slot, last: slot, owner: owner.clone() }),
        }
    }
    map
}

/// Reads the reply to `CLUSTER SLOTS`, which contains the owner and the replicas of each range.
fn read_slots(reply: &Reply, asked: &Address) -> Option<(Vec<Slots>, BTreeSet<Member>)> {
    let Reply::Array(ranges) = reply else { return None };
    let (mut slots, mut replicas) = (Vec::new(), BTreeSet::new());
    for range in ranges {
        let Reply::Array(parts) = range else { return None };
        let [Reply::Int(first), Reply::Int(last), owner, others @ ..] = parts.as_slice() else {
            return None;
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        slots.push(Slots { first, last, owner: read_node(owner, asked)? });
        replicas.extend(others.iter().filter_map(|node| read_node(node, asked)));
    }
    Some((slots, replicas))
}

fn read_node(reply: &Reply, asked: &Address) -> Option<Member> {
    let Reply::Array(parts) = reply else { return None };
    let [host, Reply::Int(port), Reply::Bytes(id), ..] = parts.as_slice() else { return None };
    let host = match host {
        Reply::Bytes(host) => str::from_utf8(host).ok()?,
        // The server does not know its own host.
        _ => "",
    };
    let address = Address::of(host, u16::try_from(*port).ok()?, asked)?;
    Some(Member { id: String::from_utf8(id.clone()).ok()?, address })
}

/// Reads the reply to `CLUSTER NODES`. Returns the number of replicas of the server that replied,
/// or of its primary.
pub(super) fn replicas_of_myself(nodes: &str) -> Option<u32> {
    let lines: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
    let flags = |line: &[&str], flag: &str| {
        line.get(2).is_some_and(|flags| flags.split(',').any(|known| known == flag))
    };
    let myself = lines.iter().find(|line| flags(line, "myself"))?;
    let primary = if flags(myself, "master") { myself.first()? } else { myself.get(3)? };
    let replicas = lines.iter().filter(|line| line.get(3) == Some(primary)).count();
    u32::try_from(replicas).ok()
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
