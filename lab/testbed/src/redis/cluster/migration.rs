//! How a slot moves from one node to another.

use super::RedisCluster;
use crate::until::until;

/// More keys than a test has in one slot.
const ALL_KEYS: &str = "10000";

/// The time that a node has to take over keys. Both nodes are on the same machine.
const MOVE_MILLIS: &str = "5000";

impl RedisCluster {
    /// Moves a slot with its keys from one primary to another.
    ///
    /// # Panics
    ///
    /// If a node refuses: the slot is not that of the first, or the second is not a primary.
    pub async fn migrate_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_migration(slot, from, to).await;
        self.move_keys(slot, from, to).await;
        self.end_migration(slot, from, to).await;
    }

    /// Prepares both nodes for the slot's move.
    ///
    /// From now on, the old node answers `ASK` for keys that it does not have, and `TRYAGAIN` to a command with several
    /// keys of which it has some.
    ///
    /// # Panics
    ///
    /// As [`migrate_slot`](Self::migrate_slot).
    pub async fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        let slot = &*slot.to_string();
        let (old, new) = (&*self.members[from].id, &*self.members[to].id);
        self.demand(to, &["CLUSTER", "SETSLOT", slot, "IMPORTING", old]).await;
        self.demand(from, &["CLUSTER", "SETSLOT", slot, "MIGRATING", new]).await;
    }

    /// Moves all keys of a slot whose move has begun.
    ///
    /// # Panics
    ///
    /// If the new node does not take them.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let command = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), ALL_KEYS];
        let reply = self.command(from, &command).await;
        // The reply tells how many keys there are, then the length of each before it.
        let keys: Vec<_> = reply.lines().skip(2).step_by(2).collect();
        if !keys.is_empty() {
            self.hand_over(&keys, from, to).await;
        }
    }

    /// Moves one key of a slot whose move has begun.
    ///
    /// # Panics
    ///
    /// If there is no such key, or the new node does not take it.
    pub async fn move_key(&self, key: &str, from: usize, to: usize) {
        self.hand_over(&[key], from, to).await;
    }

    /// Tells all primaries that run that the slot is the new node's.
    ///
    /// # Panics
    ///
    /// If a node refuses, as the old one does while it has keys of the slot.
    pub async fn end_migration(&self, slot: u16, from: usize, to: usize) {
        let slot = &*slot.to_string();
        let new = &*self.members[to].id;
        let others = self.primaries().await.into_iter().filter(|i| ![from, to].contains(i));
        // The new node takes the epoch after the largest that it knows. Right after another move that may be the old node's, which then takes a
        // larger one, and the slot back, while it is told that the slot is gone: for ever after, each says that the other has it.
        until("the new node knows the epochs of all", async || self.knows_epochs(to).await).await;
        // If the old owner were told first, no node would have the slot for a moment.
        for i in [to, from].into_iter().chain(others) {
            self.demand(i, &["CLUSTER", "SETSLOT", slot, "NODE", new]).await;
        }
    }

    /// Whether a node knows the epoch of each node that runs.
    async fn knows_epochs(&self, i: usize) -> bool {
        let views = self.views().await;
        let Some((_, known)) = views.iter().find(|(of, _)| *of == i) else { return false };
        views.iter().all(|(_, view)| {
            let known = known.nodes.get(&view.myself).map(|node| node.epoch);
            known.is_some() && known == view.own().map(|own| own.epoch)
        })
    }

    async fn hand_over(&self, keys: &[&str], from: usize, to: usize) {
        let port = &*self.members[to].node.port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", port, "", "0", MOVE_MILLIS];
        if let Some([user, password]) = &self.login {
            command.extend(["AUTH2", user, password]);
        }
        command.push("KEYS");
        command.extend(keys);
        self.demand(from, &command).await;
    }
}
