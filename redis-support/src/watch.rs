//! The servers' news: client-side caching's invalidation messages.
//!
//! Every script ends with a read of the key whose changes its caller wants to hear of: the lock's key or, if a change of that key would
//! not do, a key made for news. So the server remembers that this connection knows that key, and tells it once when another client
//! changes or deletes it, or when it expires. A refused attempt and a renewal arm their own wake-up in the same round trip, and nothing
//! is left behind per key.
//!
//! Tracking takes the server time, so the script that acquires many locks leaves it out: the first renewal of each lock enables it.
//!
//! A claim in a queue has a key for its own news, which the script that calls it up deletes. A release that keeps a mutex for the first
//! claim in the queue publishes the claim's id on the channel of that client's backend. The reply to `PUBLISH` says whether any connection listens.

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, KeyWatch, KeyWatches, Lease};

use crate::layout::{Concerns, Layout};

/// Passes the servers' news on to watches.
#[derive(Debug)]
pub(crate) struct News {
    layout: Layout,
    waiters: KeyWatches,
    holders: KeyWatches,
}

impl News {
    pub(crate) fn new(layout: Layout) -> Self {
        let (waiters, holders) = (KeyWatches::default(), KeyWatches::default());
        Self { layout, waiters, holders }
    }

    /// For a claim that may wait.
    pub(crate) fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.waiters.watch_claim(claim)
    }

    /// For a waiter or an observer.
    pub(crate) fn watch(&self, key: &LockKey) -> KeyWatch {
        self.waiters.watch(key)
    }

    /// For a holder.
    pub(crate) fn watch_lease(&self, key: &LockKey) -> KeyWatch {
        self.holders.watch(key)
    }

    /// We changed the key ourselves. The server tells that to all connections but ours.
    pub(crate) fn changed(&self, key: &LockKey, concerns: Concerns<'_>) {
        self.notify(key.as_str(), concerns);
    }

    /// The server says that these have changed.
    pub(crate) fn invalidated(&self, keys: &[Vec<u8>]) {
        for key in keys {
            if let Some((name, concerns)) = self.layout.news(key) {
                self.notify(name, concerns);
            }
        }
    }

    /// A channel of this backend alone.
    pub(crate) fn channel(&self) -> String {
        self.layout.channel()
    }

    /// A key that nothing is ever stored under.
    pub(crate) fn nothing(&self) -> String {
        self.layout.nothing()
    }

    /// The server keeps a key for the claim with this id.
    pub(crate) fn reserved(&self, id: &[u8]) {
        match str::from_utf8(id) {
            Ok(id) => self.waiters.call(id),
            // The message is not ours, so all waiters ask.
            Err(_) => self.interrupted(),
        }
    }

    /// A script called up these claims, except that of its own caller: the server does not tell a connection of its own changes.
    pub(crate) fn called_up(&self, ids: &[String], lease: &Lease) {
        if ids.is_empty() {
            return;
        }
        let own = lease.id().secret();
        ids.iter().filter(|id| **id != own).for_each(|id| self.waiters.call(id));
    }

    /// News may have been missed.
    pub(crate) fn interrupted(&self) {
        self.waiters.notify_all();
        self.holders.notify_all();
    }

    fn notify(&self, name: &str, concerns: Concerns<'_>) {
        if let Concerns::Claim(id) = concerns {
            return self.waiters.call(id);
        }
        if concerns != Concerns::Holders {
            self.waiters.notify(name);
        }
        if concerns != Concerns::Waiters {
            self.holders.notify(name);
        }
    }
}
