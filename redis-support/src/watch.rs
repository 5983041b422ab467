//! Notifies watches of changes on the server, by the invalidation messages of client-side caching.
//!
//! Every script ends with a read of the key whose changes its caller needs. This is the lock's key,
//! or a separate notification key if the lock's key is not sufficient. The server then remembers
//! that this connection has read the key. It sends one message when another client changes or
//! deletes the key, or when the key expires. A refused attempt and a renewal therefore enable their
//! notification in the same round trip, and nothing remains on the server per key.
//!
//! Tracking costs the server time, so the script that acquires many locks does not enable it. The
//! first renewal of each lock does.
//!
//! A queued claim has a separate notification key, which the script that wakes the claim deletes. A
//! release that reserves a mutex for the first waiter publishes this on the channel of the waiter's
//! backend. The script thereby finds out whether any connection listens.

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, KeyWatch, KeyWatches, Lease};

use crate::layout::{Concerns, Layout};

/// Notifies watches of changes on the server.
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

    /// Returns a watch for a claim that may have to wait.
    pub(crate) fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.waiters.watch_claim(claim)
    }

    /// Returns a watch for a waiter or an observer.
    pub(crate) fn watch(&self, key: &LockKey) -> KeyWatch {
        self.waiters.watch(key)
    }

    /// Returns a watch for a holder.
    pub(crate) fn watch_lease(&self, key: &LockKey) -> KeyWatch {
        self.holders.watch(key)
    }

    /// Reports a change by this client. The server reports it only to other connections.
    pub(crate) fn changed(&self, key: &LockKey, concerns: Concerns<'_>) {
        self.notify(key.as_str(), concerns);
    }

    /// Reports keys that have changed according to the server.
    pub(crate) fn invalidated(&self, keys: &[Vec<u8>]) {
        for key in keys {
            if let Some((name, concerns)) = self.layout.news(key) {
                self.notify(name, concerns);
            }
        }
    }

    /// Returns a new channel for this backend only.
    pub(crate) fn channel(&self) -> String {
        self.layout.channel()
    }

    /// Returns a key that never exists.
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

    /// Notifies all watches, because changes may have been missed.
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
