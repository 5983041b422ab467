//! The watches of a backend.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;

use crate::contract::backend::{Claim, KeyWatch, LeaseId, Patience};
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

/// Where a backend takes its [`KeyWatch`]es from, and passes on the news of its store.
///
/// It keeps nothing for a key without a watch. Clones share one set of watches.
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
    /// One watch per claim is called by name; to further ones all news of the key are reported.
    pub fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let waits = claim.patience() != Patience::Leaves;
        KeyWatch::subscribed(&self.0, claim.key(), waits.then(|| claim.id()))
    }

    /// Passes on that something about the key with this [encoded name](LockKey::as_str) may have changed.
    pub fn notify(&self, key: &str) {
        let woken = lock(&self.0.watched).keys.get_mut(key).map(WatchedKey::change);
        woken.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// Passes on that the claim with this [id](LeaseId::secret) is to be asked for again.
    ///
    /// Nothing happens if it has no watch here.
    pub fn call(&self, id: &str) {
        let Some(id) = LeaseId::from_secret(id) else { return };
        let woken = lock(&self.0.watched).claims.get_mut(&id).and_then(CalledClaim::call);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Passes on that anything may have changed, as after a lost connection.
    pub fn notify_all(&self) {
        let mut watched = lock(&self.0.watched);
        let keys = watched.keys.values_mut().flat_map(WatchedKey::change);
        let mut woken: Vec<Waker> = keys.map(|(_, waker)| waker).collect();
        woken.extend(watched.claims.values_mut().filter_map(CalledClaim::call));
        drop(watched);
        woken.into_iter().for_each(Waker::wake);
    }

    /// How many keys are being watched.
    pub fn watched_keys(&self) -> usize {
        lock(&self.0.watched).keys.len()
    }
}

#[derive(Default)]
pub(super) struct Hub {
    pub(super) watched: Mutex<Watched>,
    pub(super) next_id: AtomicU64,
}

#[derive(Default)]
pub(super) struct Watched {
    pub(super) keys: HashMap<LockKey, WatchedKey>,
    /// The claims that may be called by name.
    pub(super) claims: HashMap<LeaseId, CalledClaim>,
}

#[derive(Default)]
pub(super) struct WatchedKey {
    pub(super) version: u32,
    pub(super) watches: u32,
    /// The wakers for the next change: a list, since most keys have one watch.
    wakers: Vec<(u64, Waker)>,
}

/// Whether a claim was called since its watch fired last, and its waker.
#[derive(Default)]
pub(super) struct CalledClaim {
    pub(super) is_called: bool,
    pub(super) waker: Option<Waker>,
}

impl WatchedKey {
    /// Has the watch `id`, which has no waker here, woken by the next change.
    pub(super) fn wake_next_time(&mut self, id: u64, waker: &Waker) {
        if self.wakers.is_empty() {
            // Not four at once: it stays like this for as long as a lease is held.
            self.wakers.reserve_exact(1);
        }
        self.wakers.push((id, waker.clone()));
    }

    /// Takes out the waker of the watch `id`, if it has one.
    #[must_use]
    pub(super) fn forget(&mut self, id: u64) -> Option<Waker> {
        let place = self.wakers.iter().position(|(of, _)| *of == id)?;
        Some(self.wakers.swap_remove(place).1)
    }

    /// Marks a change. The wakers are for the caller to wake once the map is unlocked.
    fn change(&mut self) -> Vec<(u64, Waker)> {
        self.version = self.version.wrapping_add(1);
        mem::take(&mut self.wakers)
    }
}

impl CalledClaim {
    /// Marks a call. The waker is for the caller to wake once the map is unlocked.
    fn call(&mut self) -> Option<Waker> {
        self.is_called = true;
        self.waker.take()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("watched_keys", &lock(&self.watched).keys.len()).finish()
    }
}
