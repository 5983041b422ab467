//! The watches that have been polled, indexed by key and by claim.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::AtomicU32;
use std::task::Waker;

use super::tally::Tally;
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(super) struct Hub {
    /// Counts all events, including events without a matching watch in the maps.
    pub(super) tally: Tally,
    pub(super) watched: Mutex<Watched>,
    pub(super) next_id: AtomicU32,
}

#[derive(Default)]
pub(super) struct Watched {
    pub(super) keys: HashMap<LockKey, WatchedKey>,
    /// The claims that can be notified individually, by the numbers of their ids.
    pub(super) claims: HashMap<u64, WatchedClaim>,
}

#[derive(Default)]
pub(super) struct WatchedKey {
    pub(super) version: u32,
    watches: u32,
    /// The wakers that the next change wakes.
    wakers: Wakers,
}

/// The wakers of the watches of a key, by the ids of the watches. A single waker does not need an
/// allocation, because most keys have only one watch while their lease is held.
#[derive(Default)]
pub(super) enum Wakers {
    #[default]
    None,
    One(u32, Waker),
    #[expect(clippy::box_collection, reason = "an unboxed list would make every variant larger")]
    Several(Box<Vec<(u32, Waker)>>),
}

/// Whether a claim was notified since its watch last fired, and the waker of the watch.
#[derive(Default)]
pub(super) struct WatchedClaim {
    pub(super) is_notified: bool,
    pub(super) waker: Option<Waker>,
}

impl Watched {
    /// Adds a watch of `key`. Returns the current version of the key.
    pub(super) fn add(&mut self, key: &LockKey) -> u32 {
        let key = self.keys.entry(key.clone()).or_default();
        key.watches += 1;
        key.version
    }

    /// Adds a claim that can be notified individually, by the number of its id. Returns `false` if
    /// the claim was already added.
    pub(super) fn add_claim(&mut self, number: u64) -> bool {
        let is_new = !self.claims.contains_key(&number);
        if is_new {
            self.claims.insert(number, WatchedClaim::default());
        }
        is_new
    }

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
    /// Adds the waker of the watch `id` for the next change. The key must not already have a waker
    /// of this watch.
    pub(super) fn wake_next_time(&mut self, id: u32, waker: &Waker) {
        let waker = waker.clone();
        self.wakers = match mem::take(&mut self.wakers) {
            Wakers::None => Wakers::One(id, waker),
            Wakers::One(first, its) => Wakers::Several(Box::new(vec![(first, its), (id, waker)])),
            Wakers::Several(mut wakers) => {
                wakers.push((id, waker));
                Wakers::Several(wakers)
            }
        };
    }

    /// Removes and returns the waker of the watch `id`, if it has one.
    #[must_use]
    pub(super) fn forget(&mut self, id: u32) -> Option<Waker> {
        match mem::take(&mut self.wakers) {
            Wakers::One(of, waker) if of == id => Some(waker),
            Wakers::Several(mut wakers) => {
                let place = wakers.iter().position(|(of, _)| *of == id);
                let waker = place.map(|place| wakers.swap_remove(place).1);
                self.wakers = Wakers::Several(wakers);
                waker
            }
            others => {
                self.wakers = others;
                None
            }
        }
    }

    /// Records a change. The caller wakes the returned wakers after unlocking the map.
    pub(super) fn change(&mut self) -> Wakers {
        self.version = self.version.wrapping_add(1);
        mem::take(&mut self.wakers)
    }
}

impl Wakers {
    pub(super) fn wake(self) {
        match self {
            Self::None => {}
            Self::One(_, waker) => waker.wake(),
            Self::Several(wakers) => wakers.into_iter().for_each(|(_, waker)| waker.wake()),
        }
    }
}

impl WatchedClaim {
    /// Records a notification. The caller wakes the returned waker after unlocking the map.
    pub(super) fn notify(&mut self) -> Option<Waker> {
        self.is_notified = true;
        self.waker.take()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("watched_keys", &lock(&self.watched).keys.len()).finish()
    }
}
