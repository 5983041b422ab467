//! The watches that were polled, by key and by claim.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::AtomicU64;
use std::task::Waker;

use super::tally::Tally;
use crate::contract::backend::LeaseId;
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(super) struct Hub {
    /// Counts all events, also those that no watch was in the maps for.
    pub(super) tally: Tally,
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
    watches: u32,
    /// The wakers for the next change: a list, since most keys have one watch.
    wakers: Vec<(u64, Waker)>,
}

/// Whether a claim was called since its watch fired last, and its waker.
#[derive(Default)]
pub(super) struct CalledClaim {
    pub(super) is_called: bool,
    pub(super) waker: Option<Waker>,
}

impl Watched {
    /// Adds a watch of `key`, and tells the version that it begins with.
    pub(super) fn add(&mut self, key: &LockKey) -> u32 {
        let key = self.keys.entry(key.clone()).or_default();
        key.watches += 1;
        key.version
    }

    /// Has `claim` called by name; `false` if it is already.
    pub(super) fn add_claim(&mut self, claim: LeaseId) -> bool {
        let is_new = !self.claims.contains_key(&claim);
        if is_new {
            self.claims.insert(claim, CalledClaim::default());
        }
        is_new
    }

    /// Takes a watch of `key` away.
    pub(super) fn remove(&mut self, key: &LockKey) {
        let watched = self.key(key);
        watched.watches -= 1;
        if watched.watches == 0 {
            self.keys.remove(key);
        }
    }

    pub(super) fn key(&mut self, key: &LockKey) -> &mut WatchedKey {
        self.keys.get_mut(key).expect("an entry lives as long as its watches")
    }
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
    pub(super) fn change(&mut self) -> Vec<(u64, Waker)> {
        self.version = self.version.wrapping_add(1);
        mem::take(&mut self.wakers)
    }
}

impl CalledClaim {
    /// Marks a call. The waker is for the caller to wake once the map is unlocked.
    pub(super) fn call(&mut self) -> Option<Waker> {
        self.is_called = true;
        self.waker.take()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("watched_keys", &lock(&self.watched).keys.len()).finish()
    }
}
