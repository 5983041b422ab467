//! The servers' news: client-side caching's invalidation messages.
//!
//! Every script reads last what those who wait or hold want to hear of: the lock's key, or for what has
//! no such key one that is made for news. So the server remembers that this connection knows that key,
//! and tells it once when anybody else changes or deletes it, or when it expires. A refused attempt and
//! a renewal arm their own wake-up in the same round trip, and nothing is left behind per key.
//!
//! That takes the server time, so scripts for many callers forgo it where they can: of what they granted, the first renewal asks.
//!
//! Who waits for a mutex may be made the holder by the release of another. What it has to know then comes on a channel of its
//! connection.

use leasehold_core::{KeyWatch, KeyWatches, LockKey};

use crate::layout::{Concerns, Layout};
use crate::reply::decode_offer;

/// Passes on what servers tell to those who watch.
#[derive(Debug)]
pub(crate) struct News {
    layout: Layout,
    waiters: KeyWatches,
    holders: KeyWatches,
}

impl News {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, waiters: KeyWatches::default(), holders: KeyWatches::default() }
    }

    /// For one who waits, or observes.
    pub(crate) fn watch(&self, key: &LockKey) -> KeyWatch {
        self.waiters.watch(key)
    }

    /// For one who holds.
    pub(crate) fn watch_lease(&self, key: &LockKey) -> KeyWatch {
        self.holders.watch(key)
    }

    /// We changed the key ourselves. The server tells that to all connections but ours.
    pub(crate) fn changed(&self, key: &LockKey, concerns: Concerns) {
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

    /// A channel that nobody else has.
    pub(crate) fn channel(&self) -> String {
        self.layout.channel()
    }

    /// The server has made one of ours who wait the holder.
    pub(crate) fn offered(&self, message: &[u8]) {
        let offered = decode_offer(message).and_then(|(key, id, offer)| {
            let (name, _concerns) = self.layout.news(key.as_bytes())?;
            Some((name, id, offer))
        });
        match offered {
            Some((name, id, offer)) => self.waiters.offer(name, id, offer),
            // Whatever it was: they ask.
            None => self.interrupted(),
        }
    }

    /// News may have been missed.
    pub(crate) fn interrupted(&self) {
        self.waiters.notify_all();
        self.holders.notify_all();
    }

    fn notify(&self, name: &str, concerns: Concerns) {
        if concerns != Concerns::Holders {
            self.waiters.notify(name);
        }
        if concerns != Concerns::Waiters {
            self.holders.notify(name);
        }
    }
}
