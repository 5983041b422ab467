//! News of a key: a hint to look again, never a fact about who holds it.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use crate::backend::Offer;
use crate::key::LockKey;
use crate::lease::LeaseId;
use crate::sync::{Mutex, lock};

/// Fires when something about a key may have changed since the watch began or fired last.
///
/// It is level-triggered: a change between two calls of [`KeyWatch::changed`] is not missed. It may
/// fire for nothing, and it may miss a change, so whoever waits also polls.
pub struct KeyWatch {
    subscription: Option<Subscription>,
    /// What lives as long as the watch.
    attached: Option<Box<dyn Send + Sync>>,
}

struct Subscription {
    hub: Arc<Hub>,
    key: LockKey,
    id: u64,
    seen: u32,
    /// The hub has a waker of it, unless there was a change since.
    waits: bool,
}

impl KeyWatch {
    /// Creates a watch that never fires, for a store without news.
    pub const fn silent() -> Self {
        Self { subscription: None, attached: None }
    }

    /// Keeps `attached` for as long as the watch: what ends the backend's own watching when it is dropped.
    #[must_use]
    pub fn with_attached(mut self, attached: impl Send + Sync + 'static) -> Self {
        self.attached = Some(Box::new(attached));
        self
    }

    /// Waits until something may have changed.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: a change is reported to whoever asks next.
    pub async fn changed(&mut self) {
        poll_fn(|cx| self.poll_changed(cx)).await;
    }

    /// Whether it may ever fire.
    pub(crate) fn is_silent(&self) -> bool {
        self.subscription.is_none()
    }

    /// Whether there is a change to report. It is still reported then.
    pub(crate) fn has_changed(&self) -> bool {
        self.subscription.as_ref().is_some_and(Subscription::has_changed)
    }

    /// Does not report what has changed up to now.
    pub(crate) fn skip(&mut self) {
        if let Some(subscription) = &mut self.subscription {
            subscription.skip();
        }
    }

    /// Takes the lease that was offered to the claim with this id, if there is one.
    pub(crate) fn take_offer(&self, id: LeaseId) -> Option<Offer> {
        let subscription = self.subscription.as_ref()?;
        let mut keys = lock(&subscription.hub.keys);
        let offered = &mut keys.get_mut(&subscription.key)?.offered;
        let offered = offered.take_if(|offered| offered.id == id.secret())?;
        Some(offered.offer)
    }

    /// Polls for a change; the waker of the last call is woken by the next one.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_under_lock(cx).0
    }

    /// The same for a caller that has locked a mutex: the waker of the last call is for it to drop once that is unlocked.
    pub(crate) fn poll_under_lock(&mut self, cx: &mut Context<'_>) -> (Poll<()>, Option<Waker>) {
        match &mut self.subscription {
            Some(subscription) => subscription.poll_changed(cx),
            None => (Poll::Pending, None),
        }
    }
}

impl fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subscription {
            Some(subscription) => write!(f, "KeyWatch({})", subscription.key),
            None => f.write_str("KeyWatch(silent)"),
        }
    }
}

impl Subscription {
    /// A waker may own the owner of a watch, so the caller drops the one that is replaced, with the map unlocked.
    fn poll_changed(&mut self, cx: &mut Context<'_>) -> (Poll<()>, Option<Waker>) {
        let mut keys = lock(&self.hub.keys);
        let watched = keys.get_mut(&self.key).expect("an entry lives as long as its watches");
        if watched.version != self.seen {
            self.seen = watched.version;
            self.waits = false;
            return (Poll::Ready(()), None);
        }
        let replaced = if self.waits { watched.forget(self.id) } else { None };
        watched.wake_next_time(self.id, cx.waker());
        self.waits = true;
        (Poll::Pending, replaced)
    }

    fn has_changed(&self) -> bool {
        lock(&self.hub.keys).get(&self.key).is_some_and(|watched| watched.version != self.seen)
    }

    fn skip(&mut self) {
        if let Some(watched) = lock(&self.hub.keys).get(&self.key) {
            self.seen = watched.version;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut keys = lock(&self.hub.keys);
        let Some(watched) = keys.get_mut(&self.key) else {
            return;
        };
        let needless = if self.waits { watched.forget(self.id) } else { None };
        watched.watches -= 1;
        if watched.watches == 0 {
            keys.remove(&self.key);
        }
        drop(keys);
        drop(needless);
    }
}

/// Where a backend takes its [`KeyWatch`]es from, and passes on the news of its store.
///
/// It keeps nothing for a key that nobody watches. Clones share one set of watches.
///
/// ```
/// # futures_util::future::FutureExt::now_or_never(async {
/// use leasehold_core::{KeyWatches, LockKey};
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
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let mut keys = lock(&self.0.keys);
        let watched = keys.entry(key.clone()).or_default();
        watched.watches += 1;
        let seen = watched.version;
        drop(keys);
        let (hub, key) = (Arc::clone(&self.0), key.clone());
        let subscription = Subscription { hub, key, id, seen, waits: false };
        KeyWatch { subscription: Some(subscription), attached: None }
    }

    /// Passes on that something about the key with this [encoded name](LockKey::as_str) may have changed.
    pub fn notify(&self, key: &str) {
        let woken = lock(&self.0.keys).get_mut(key).map(WatchedKey::change);
        woken.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// Passes on that the store has put a lease in force for the claim with this [id](LeaseId::secret) on the key with this
    /// [encoded name](LockKey::as_str), unasked.
    ///
    /// Nothing is lost if nobody takes it: who waits hears that something has changed, asks, and is granted it.
    pub fn offer(&self, key: &str, id: &str, offer: Offer) {
        let woken = lock(&self.0.keys).get_mut(key).map(|watched| {
            watched.offered = Some(Box::new(Offered { id: id.to_owned(), offer }));
            watched.change()
        });
        woken.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// Passes on that anything may have changed, as after a lost connection.
    pub fn notify_all(&self) {
        let woken: Vec<_> = lock(&self.0.keys).values_mut().flat_map(WatchedKey::change).collect();
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// How many keys are being watched.
    pub fn watched_keys(&self) -> usize {
        lock(&self.0.keys).len()
    }
}

#[derive(Default)]
struct Hub {
    keys: Mutex<HashMap<LockKey, WatchedKey>>,
    next_id: AtomicU64,
}

#[derive(Default)]
struct WatchedKey {
    version: u32,
    watches: u32,
    /// Whom to wake at the next change: a list, since most keys have one watch.
    wakers: Vec<(u64, Waker)>,
    /// The last lease that was offered, until it is taken.
    offered: Option<Box<Offered>>,
}

/// A lease, and the id of the claim that it is for.
struct Offered {
    id: String,
    offer: Offer,
}

impl WatchedKey {
    /// Has the watch `id`, which has no waker here, woken by the next change.
    fn wake_next_time(&mut self, id: u64, waker: &Waker) {
        if self.wakers.is_empty() {
            // Not four at once: it stays like this for as long as a lease is held.
            self.wakers.reserve_exact(1);
        }
        self.wakers.push((id, waker.clone()));
    }

    /// Takes out the waker of the watch `id`, if it has one.
    #[must_use]
    fn forget(&mut self, id: u64) -> Option<Waker> {
        let place = self.wakers.iter().position(|(of, _)| *of == id)?;
        Some(self.wakers.swap_remove(place).1)
    }

    /// Marks a change. The wakers are for the caller to wake once the map is unlocked.
    fn change(&mut self) -> Vec<(u64, Waker)> {
        self.version = self.version.wrapping_add(1);
        mem::take(&mut self.wakers)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("watched_keys", &lock(&self.keys).len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    fn key() -> LockKey {
        LockKey::new("k").unwrap()
    }

    fn is_ready(watch: &mut KeyWatch) -> bool {
        watch.poll_changed(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_change_is_reported_once_and_also_late() {
        let watches = KeyWatches::default();
        let mut watch = watches.watch(&key());
        assert!(!is_ready(&mut watch));

        watches.notify("k");
        watches.notify("k");

        assert!(is_ready(&mut watch));
        assert!(!is_ready(&mut watch));
    }

    #[test]
    fn news_of_one_key_leaves_others_alone() {
        let watches = KeyWatches::default();
        let mut watch = watches.watch(&key());

        watches.notify("other");
        assert!(!is_ready(&mut watch));

        watches.notify_all();
        assert!(is_ready(&mut watch));
    }

    #[test]
    fn a_change_wakes_whoever_polled_last_for_each_watch_that_is_left() {
        let watches = KeyWatches::default();
        let mut all: Vec<KeyWatch> = (0..4).map(|_| watches.watch(&key())).collect();
        let wakers: Vec<Arc<Woken>> = (0..5).map(|_| Arc::default()).collect();
        let poll = |watch: &mut KeyWatch, woken: &Arc<Woken>| {
            let waker = Waker::from(Arc::clone(woken));
            assert!(watch.poll_changed(&mut Context::from_waker(&waker)).is_pending());
        };
        all.iter_mut().zip(&wakers).for_each(|(watch, woken)| poll(watch, woken));
        poll(&mut all[1], &wakers[4]);
        drop(all.remove(0));

        watches.notify("k");

        let woken: Vec<usize> =
            wakers.iter().map(|woken| woken.0.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [0, 0, 1, 1, 1]);
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_kept_for_keys_that_nobody_watches() {
        let watches = KeyWatches::default();
        let (first, second) = (watches.watch(&key()), watches.watch(&key()));

        drop(first);
        assert_eq!(watches.watched_keys(), 1);
        drop(second);
        assert_eq!(watches.watched_keys(), 0);
    }
}
