//! The set of watches of a backend.

use std::sync::Arc;
use std::task::Waker;

use super::hub::{Hub, Wakers, WatchedClaim, WatchedKey};
use crate::contract::backend::{Claim, KeyWatch, LeaseId, Patience};
use crate::contract::key::LockKey;
use crate::sync::lock;

/// Creates the [`KeyWatch`]es of a backend, and fires them when the store reports a change.
///
/// Only keys with a watch that has been polled use memory, because most watches are dropped before
/// they are polled. Clones share the same watches.
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
    /// Starts watching `key`. Earlier changes are not reported.
    pub fn watch(&self, key: &LockKey) -> KeyWatch {
        KeyWatch::subscribed(&self.0, key, None)
    }

    /// Starts watching the key of `claim`. If the caller of the claim waits, the watch also fires
    /// when the store sends an [individual notification](Self::notify_claim) for the claim.
    ///
    /// For each claim, only the first watch that is polled receives individual notifications.
    /// Additional watches of the claim fire on every change of the key.
    pub fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let waits = claim.patience() != Patience::Leaves;
        KeyWatch::subscribed(&self.0, claim.key(), waits.then(|| claim.id()))
    }

    /// Reports that something about the key with the [encoded name](LockKey::as_str) `key` may have
    /// changed.
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

    /// Fires the watch that receives the individual notifications for the claim whose [lease
    /// id](LeaseId::secret) is `id`, so that the client retries the claim.
    ///
    /// Does nothing if there is no such watch (see [`watch_claim`](Self::watch_claim)).
    pub fn notify_claim(&self, id: &str) {
        let Some(id) = LeaseId::from_secret(id) else { return };
        if !self.0.tally.count(id.number()) {
            return;
        }
        let mut watched = lock(&self.0.watched);
        let woken = watched.claims.get_mut(&id.number()).and_then(WatchedClaim::notify);
        self.0.tally.count(id.number());
        drop(watched);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Reports that any key may have changed, for example after a connection was lost.
    pub fn notify_all(&self) {
        self.0.tally.count_all();
        let mut watched = lock(&self.0.watched);
        let of_keys: Vec<Wakers> = watched.keys.values_mut().map(WatchedKey::change).collect();
        let of_claims: Vec<Waker> =
            watched.claims.values_mut().filter_map(WatchedClaim::notify).collect();
        self.0.tally.count_all();
        drop(watched);
        of_keys.into_iter().for_each(Wakers::wake);
        of_claims.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of keys with a watch that has been polled.
    pub fn watched_keys(&self) -> usize {
        lock(&self.0.watched).keys.len()
    }
}
