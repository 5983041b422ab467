//! The server's news: client-side caching's invalidation messages.
//!
//! Every script reads the lock's key last, so the server remembers that this connection knows the
//! key, and tells it once when anybody else changes or deletes it, or when it expires. So a refused
//! attempt and a renewal arm their own wake-up in the same round trip, and nothing is left behind
//! per key.

use leasehold_core::{KeyWatch, KeyWatches, LockKey};
use leasehold_redis_support::Layout;
use redis::Value;

/// Passes on what the server tells to those who watch.
#[derive(Debug)]
pub(crate) struct News {
    layout: Layout,
    watches: KeyWatches,
}

impl News {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, watches: KeyWatches::default() }
    }

    pub(crate) fn watch(&self, key: &LockKey) -> KeyWatch {
        self.watches.watch(key)
    }

    /// We changed the key ourselves. The server tells that to all connections but ours.
    pub(crate) fn changed(&self, key: &LockKey) {
        self.watches.notify(key.as_str());
    }

    /// The server says that keys have changed: those named, or all.
    pub(crate) fn invalidated(&self, message: &[Value]) {
        for value in message {
            match value {
                Value::Array(keys) => keys.iter().for_each(|key| self.invalidated_key(key)),
                // After a FLUSHALL.
                Value::Nil => self.watches.notify_all(),
                _ => {}
            }
        }
    }

    /// News may have been missed.
    pub(crate) fn interrupted(&self) {
        self.watches.notify_all();
    }

    fn invalidated_key(&self, key: &Value) {
        if let Value::BulkString(key) = key
            && let Some(name) = self.layout.name(key)
        {
            self.watches.notify(name);
        }
    }
}
