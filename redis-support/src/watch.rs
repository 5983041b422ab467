//! Notifies watches of changes on the server, based on the invalidation messages of client-side
//! caching.
//!
//! The last step of every script reads the key whose changes the caller needs to know about. This
//! key is the lock's key, or a separate notification key if the lock's key is not sufficient. The
//! server then remembers that this connection has read the key. The server sends one message when a
//! different client changes or deletes the key, or when the key expires. A failed attempt and a
//! renewal therefore enable notifications without a separate request, and Leasehold stores no
//! additional data per key.
//!
//! Tracking keys costs the server CPU time, so the script that acquires many locks does not enable
//! tracking. Instead, the first renewal of each lock enables tracking.
//!
//! A queued claim has a separate notification key, which the script that wakes the claim deletes. A
//! release that reserves a mutex for the first waiter publishes a message on the channel of the
//! waiter's backend. The reply to the publish command shows the script whether any connection
//! listens to the channel.

use leasehold_core::LockKey;
use leasehold_core::backend::{KeyWatch, KeyWatches, Lease, Subject};

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

    pub(crate) fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Claim(claim) => self.waiters.watch_claim(claim),
            Subject::Lease(lease) => self.holders.watch(lease.key()),
            _ => self.waiters.watch(subject.key()),
        }
    }

    /// Reports a change by this client. The server reports such a change only to connections other
    /// than this client's.
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

    /// Returns a new channel, which only this backend uses.
    pub(crate) fn channel(&self) -> String {
        self.layout.channel()
    }

    /// Returns a key that never exists.
    pub(crate) fn nothing(&self) -> String {
        self.layout.nothing()
    }

    /// Handles the message that the server has reserved a key for the claim with this ID.
    pub(crate) fn reserved(&self, id: &[u8]) {
        match str::from_utf8(id) {
            Ok(id) => self.waiters.notify_claim(id),
            // The message does not come from Leasehold, so all waiters must check their keys.
            Err(_) => self.interrupted(),
        }
    }

    /// Notifies the claims that a script has woken, except for the caller's own claim. The server
    /// does not notify a connection of changes that the connection itself made.
    pub(crate) fn notify_claims(&self, ids: &[String], lease: &Lease) {
        if ids.is_empty() {
            return;
        }
        let own = lease.id().secret();
        ids.iter().filter(|id| **id != own).for_each(|id| self.waiters.notify_claim(id));
    }

    /// Notifies all watches, because notifications may have been missed.
    pub(crate) fn interrupted(&self) {
        self.waiters.notify_all();
        self.holders.notify_all();
    }

    fn notify(&self, name: &str, concerns: Concerns<'_>) {
        if let Concerns::Claim(id) = concerns {
            return self.waiters.notify_claim(id);
        }
        if concerns != Concerns::Holders {
            self.waiters.notify(name);
        }
        if concerns != Concerns::Waiters {
            self.holders.notify(name);
        }
    }
}
