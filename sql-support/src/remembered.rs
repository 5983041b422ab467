//! A bounded memory of keys.

use std::collections::HashMap;
use std::sync::Mutex;

use leasehold_core::backend::unpoisoned;

/// The maximum number of keys. A client that uses more keys sometimes sends a statement that it could
/// have avoided.
const MOST: usize = 65_536;

/// What a client remembers about keys. If there are too many keys, the client forgets all of them.
#[derive(Debug)]
pub(crate) struct Remembered<V>(Mutex<HashMap<String, V>>);

impl<V: Copy> Remembered<V> {
    pub(crate) fn get(&self, key: &str) -> Option<V> {
        unpoisoned(&self.0).get(key).copied()
    }

    /// Remembers the value that `change` returns for the current value of a key. Forgets the key if
    /// `change` returns `None`.
    pub(crate) fn update(&self, key: &str, change: impl FnOnce(Option<V>) -> Option<V>) {
        // Each entry is correct on its own, so a panic cannot corrupt the map.
        let mut values = unpoisoned(&self.0);
        match (change(values.get(key).copied()), values.get_mut(key)) {
            (None, None) => {}
            (None, Some(_)) => drop(values.remove(key)),
            (Some(value), Some(known)) => *known = value,
            (Some(value), None) => {
                if values.len() >= MOST {
                    values.clear();
                }
                values.insert(key.to_owned(), value);
            }
        }
    }
}

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
