//! The watches of a backend.

use std::sync::Arc;
use std::task::Waker;

use super::hub::{CalledClaim, Hub, Wakers, WatchedKey};
use crate::contract::backend::{Claim, KeyWatch, LeaseId, Patience};
use crate::contract::key::LockKey;
use crate::sync::lock;

/// Where a backend takes its [`KeyWatch`]es from, and passes on the news of its store.
///
/// It keeps nothing for a key without a watch, nor for a watch that was not polled yet: most end before. Clones share one set of watches.
///
/// ```
/// # futures_util::future::FutureExt::now_or_never(async {
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::KeyWatches;
///
/// let key = LockKey::new("invoice:42")?;
/// let watches = KeyWatches::default();
/// let mut watch = watches.watch(&key);
/// watches.notify("invoice:42");
/// watch.changed().await;
/// # Ok::<(), leasehold_core::Error>(())
/// # }).expect("never waits")?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyWatches(Arc<Hub>);

impl KeyWatches {
    /// Begins to watch `key`. A change that happened before is not reported.
    pub fn watch(&self, key: &LockKey) -> KeyWatch {
        KeyWatch::subscribed(&self.0, key, None)
    }

    /// Begins to watch the key of `claim`, and, if its caller waits, for [calls](Self::call) of the claim by name.
    ///
    /// One watch per claim is called by name, the first that is polled; to further ones all news of the key are reported.
    pub fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let waits = claim.patience() != Patience::Leaves;
        KeyWatch::subscribed(&self.0, claim.key(), waits.then(|| claim.id()))
    }

    /// Passes on that something about the key with this [encoded name](LockKey::as_str) may have changed.
    pub fn notify(&self, key: &str) {
        let hash = LockKey::hash_of(key);
        if !self.0.tally.count(hash) {
            return;
        }
        let mut watched = lock(&self.0.watched);
        let woken = watched.keys.get_mut(key).map(WatchedKey::change);
        self.0.tally.count(hash);
        drop(watched);
        woken.into_iter().for_each(Wakers::wake);
    }

    /// Passes on that the claim with this [id](LeaseId::secret) is to be asked for again.
    ///
    /// Nothing happens if it has no watch here.
    pub fn call(&self, id: &str) {
        let Some(id) = LeaseId::from_secret(id) else { return };
        if !self.0.tally.count(id.number()) {
            return;
        }
        let mut watched = lock(&self.0.watched);
        let woken = watched.claims.get_mut(&id.number()).and_then(CalledClaim::call);
        self.0.tally.count(id.number());
        drop(watched);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Passes on that anything may have changed, as after a lost connection.
    pub fn notify_all(&self) {
        self.0.tally.count_all();
        let mut watched = lock(&self.0.watched);
        let of_keys: Vec<Wakers> = watched.keys.values_mut().map(WatchedKey::change).collect();
        let called: Vec<Waker> =
            watched.claims.values_mut().filter_map(CalledClaim::call).collect();
        self.0.tally.count_all();
        drop(watched);
        of_keys.into_iter().for_each(Wakers::wake);
        called.into_iter().for_each(Waker::wake);
    }

    /// How many keys have watches that were polled.
    pub fn watched_keys(&self) -> usize {
        lock(&self.0.watched).keys.len()
    }
}
