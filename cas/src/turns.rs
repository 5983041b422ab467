//! The turns of the steps on a key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::unpoisoned;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::timeout;

/// How long a step waits for its turn. A caller may stop polling its future while it has the turn,
/// and must not delay renewals for long.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// The steps of this process on the same key take turns. Otherwise, one step would cause the write
/// of another step to fail.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<LockKey, Arc<AsyncMutex<()>>>>);

/// The turn of a step, or a wait for it.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    key: &'a LockKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn of a step, for at most 250 ms. The step may begin without its turn,
    /// because turns only avoid conflicts.
    pub(crate) async fn wait<'a>(&'a self, key: &'a LockKey) -> Turn<'a> {
        let mutex = Arc::clone(unpoisoned(&self.0).entry(key.clone()).or_default());
        // If the caller leaves while it waits, the turn is dropped.
        let mut turn = Turn { turns: self, key, guard: None };
        turn.guard = timeout(LONGEST_WAIT, mutex.lock_owned()).await.ok();
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = unpoisoned(&self.turns.0);
        self.guard = None;
        if turns.get(self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            turns.remove(self.key);
        }
    }
}
