//! The map of a Redis cluster, which contains the owner of each hash slot.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Arc;

use super::survey::Map;
use crate::address::Address;
use crate::driver::Driver;
use crate::node::Node;

/// The known servers of a cluster.
pub(super) struct State<D: Driver> {
    /// The owners of slots, sorted by the first slot of each range.
    ranges: Vec<Range<D>>,
    /// The addresses of the servers without slots when the map was created.
    pub(super) replicas: Vec<Address>,
    /// The IDs of all servers when the map was created.
    pub(super) members: HashSet<String>,
    /// All servers that have been reported and are still in use.
    pub(super) servers: HashMap<Address, Arc<Node<D>>>,
}

/// A range of slots with the same owner.
struct Range<D: Driver> {
    first: u16,
    last: u16,
    owner: Arc<Node<D>>,
}

impl<D: Driver> PartialEq for Range<D> {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last)
            && Arc::ptr_eq(&self.owner, &other.owner)
    }
}

/// A map that was replaced.
pub(super) struct OutOfDate<D: Driver> {
    /// Whether the new map is different.
    pub(super) is_different: bool,
    _ranges: Vec<Range<D>>,
    /// The servers that no longer have slots.
    _servers: Vec<Arc<Node<D>>>,
}

impl<D: Driver> Default for State<D> {
    fn default() -> Self {
        let (replicas, members, servers) = (Vec::new(), HashSet::new(), HashMap::new());
        Self { ranges: Vec::new(), replicas, members, servers }
    }
}

impl<D: Driver> State<D> {
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node<D>>> {
        let after = self.ranges.partition_point(|range| range.first <= slot);
        let range = self.ranges[..after].last()?;
        (slot <= range.last).then(|| Arc::clone(&range.owner))
    }

    /// Returns all servers that have slots.
    pub(super) fn owners(&self) -> Vec<Arc<Node<D>>> {
        let mut owners: Vec<Arc<Node<D>>> = Vec::new();
        for range in &self.ranges {
            if owners.iter().all(|owner| !Arc::ptr_eq(owner, &range.owner)) {
                owners.push(Arc::clone(&range.owner));
            }
        }
        owners
    }

    /// Returns a value that changes when the owner of any slot changes.
    pub(super) fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for Range { first, last, owner } in &self.ranges {
            (first, last, owner.address()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Changes the owner of one slot. The former owner must be dropped after the mutex is unlocked.
    pub(super) fn set_owner(&mut self, slot: u16, owner: &Arc<Node<D>>) -> Option<Arc<Node<D>>> {
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

    /// Replaces the map. The former map must be dropped after the mutex is unlocked.
    pub(super) fn adopt(
        &mut self,
        map: Map,
        mut server_at: impl FnMut(&mut Self, &Address) -> Arc<Node<D>>,
    ) -> OutOfDate<D> {
        let mut ranges = Vec::with_capacity(map.slots.len());
        for slots in map.slots {
            let owner = server_at(self, &slots.owner.address);
            ranges.push(Range { first: slots.first, last: slots.last, owner });
        }
        (self.replicas, self.members) = (map.replicas, map.members);
        let is_different = self.ranges != ranges;
        let ranges = mem::replace(&mut self.ranges, ranges);
        // Servers without slots are disconnected when calls no longer wait for them.
        let is_unused = |server: &Arc<Node<D>>| {
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
