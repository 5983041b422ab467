//! Watches of keys. A notification is a hint to try again, not a fact about the holder.

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::hub::{Hub, Watched};
use crate::contract::backend::{LeaseId, WokenBy};
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

/// Reports that something about a key may have changed since the watch started or last fired.
///
/// If a change occurs between two calls of [`KeyWatch::changed`], the next call reports the change.
/// A watch may fire without a change, and the store may fail to report a change. Every waiter
/// therefore also polls.
///
/// See [`KeyWatches`](crate::backend::KeyWatches) for an example that creates a watch and fires it.
pub struct KeyWatch(Sources);

/// Wakers that a poll has replaced.
pub(crate) type Replaced = Vec<Waker>;

/// The sources of the changes that a watch reports.
enum Sources {
    Silent,
    One(Subscription),
    /// Several watches, some of which may be muted, and a value that is dropped together with the
    /// watches.
    Several {
        watches: Box<[KeyWatch]>,
        selection: Option<WatchSelection>,
        _attached: Option<Box<dyn Send + Sync>>,
    },
}

/// The numbers of the watches that may fire, if a watch consists of [several](KeyWatch::selected).
/// Until the set is replaced, all watches may fire. Clones share the same set.
///
/// ```
/// use std::collections::BTreeSet;
///
/// use leasehold_core::backend::{KeyWatch, WatchSelection};
///
/// let selection = WatchSelection::default();
/// let watch = KeyWatch::selected([KeyWatch::silent(), KeyWatch::silent()], selection.clone());
/// selection.set(BTreeSet::from([1]));
/// # drop(watch);
/// ```
#[derive(Clone, Debug, Default)]
pub struct WatchSelection(Arc<Mutex<Option<BTreeSet<usize>>>>);

struct Subscription {
    hub: Arc<Hub>,
    interest: Interest,
    place: Place,
}

/// The events that a subscription is interested in.
struct Interest {
    key: LockKey,
    /// The number of the claim that can be notified individually, if there is one. The number is
    /// stored instead of the lease id to save memory, because there are many watches.
    claim: Option<(u64, WokenBy)>,
}

/// Whether a subscription is in the maps of its hub.
enum Place {
    /// The subscription is not in the maps yet, because it has not been polled. The value is the
    /// number of [events](super::tally::Tally) before the subscription was created.
    Aside(u32),
    Listed(Listed),
}

/// A subscription that is in the maps of its hub.
struct Listed {
    id: u32,
    seen: u32,
    /// Whether the hub stores the watch's waker for changes of the key. A change removes the waker.
    waits: bool,
    /// Whether an event, possibly for another key, occurred before the subscription was added to
    /// the maps.
    missed: bool,
    /// The number of events at the last check without a change. The hub counts each change twice:
    /// before and after it records the change in the maps.
    quiet_at: u32,
}

impl KeyWatch {
    /// Creates a watch that never fires, for a store without notifications.
    pub const fn silent() -> Self {
        Self(Sources::Silent)
    }

    /// Creates a watch of `key`. The watch also receives the individual notifications of `claim`,
    /// unless another watch receives them.
    pub(super) fn subscribed(hub: &Arc<Hub>, key: &LockKey, claim: Option<LeaseId>) -> Self {
        Self(Sources::One(Subscription::begin(hub, key, claim)))
    }

    /// Creates a watch that fires when any of `watches` fires, for example for a key that is kept
    /// in several stores.
    pub fn any(watches: impl IntoIterator<Item = Self>) -> Self {
        let heard = watches.into_iter().filter(|watch| !watch.is_silent());
        let watches: Box<[Self]> = heard.collect();
        if watches.is_empty() {
            return Self::silent();
        }
        Self(Sources::Several { watches, selection: None, _attached: None })
    }

    /// Creates a watch that fires when one of `watches` fires, provided that its number is in
    /// `selection` at the time of the poll.
    pub fn selected(watches: impl IntoIterator<Item = Self>, selection: WatchSelection) -> Self {
        let watches = watches.into_iter().collect();
        Self(Sources::Several { watches, selection: Some(selection), _attached: None })
    }

    /// Drops `attached` together with the watch. A backend can stop observing the key in its store
    /// when `attached` is dropped.
    #[must_use]
    pub fn with_attached(self, attached: impl Send + Sync + 'static) -> Self {
        let attached: Box<dyn Send + Sync> = Box::new(attached);
        let watches = Box::new([self]);
        Self(Sources::Several { watches, selection: None, _attached: Some(attached) })
    }

    /// Waits until something about the key may have changed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the next call reports the change.
    pub async fn changed(&mut self) {
        poll_fn(|cx| self.poll_changed(cx)).await;
    }

    /// Returns whether the watch can never fire.
    pub(crate) fn is_silent(&self) -> bool {
        match &self.0 {
            Sources::Silent => true,
            Sources::One(_) => false,
            Sources::Several { watches, .. } => watches.iter().all(Self::is_silent),
        }
    }

    /// Returns whether there is a change to report, without consuming the change.
    pub(crate) fn has_changed(&mut self) -> bool {
        match &mut self.0 {
            Sources::Silent => false,
            Sources::One(subscription) => subscription.has_changed(),
            Sources::Several { watches, selection, .. } => {
                audible(watches, selection.as_ref()).any(Self::has_changed)
            }
        }
    }

    /// Discards all changes so far.
    pub(crate) fn skip(&mut self) {
        match &mut self.0 {
            Sources::Silent => {}
            Sources::One(subscription) => subscription.skip(),
            Sources::Several { watches, .. } => watches.iter_mut().for_each(Self::skip),
        }
    }

    /// Sets which notifications the watch reports after this call.
    pub(crate) fn set_woken_by(&mut self, woken_by: WokenBy) {
        match &mut self.0 {
            Sources::Silent => {}
            Sources::One(subscription) => subscription.set_woken_by(woken_by),
            Sources::Several { watches, .. } => {
                watches.iter_mut().for_each(|watch| watch.set_woken_by(woken_by));
            }
        }
    }

    /// Polls for a change. If there is no change, registers the waker for the next change.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_under_lock(cx).0
    }

    /// Polls for a change on behalf of a caller that holds a mutex. The caller drops the replaced
    /// wakers after unlocking the mutex.
    pub(crate) fn poll_under_lock(&mut self, cx: &mut Context<'_>) -> (Poll<()>, Replaced) {
        match &mut self.0 {
            Sources::Silent => (Poll::Pending, Replaced::new()),
            Sources::One(subscription) => subscription.poll_changed(cx),
            Sources::Several { watches, selection, .. } => {
                poll_each(audible(watches, selection.as_ref()), cx)
            }
        }
    }
}

impl fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Sources::Silent => f.write_str("KeyWatch(silent)"),
            Sources::One(subscription) => write!(f, "KeyWatch({})", subscription.interest.key),
            Sources::Several { watches, .. } => f.debug_tuple("KeyWatch").field(watches).finish(),
        }
    }
}

impl WatchSelection {
    /// Sets which watches may fire after this call.
    pub fn set(&self, numbers: BTreeSet<usize>) {
        *lock(&self.0) = Some(numbers);
    }

    fn contains(&self, number: usize) -> bool {
        lock(&self.0).as_ref().is_none_or(|numbers| numbers.contains(&number))
    }
}

/// Returns the watches that are not muted.
fn audible<'a>(
    watches: &'a mut [KeyWatch],
    selection: Option<&'a WatchSelection>,
) -> impl Iterator<Item = &'a mut KeyWatch> {
    let is_selected = move |number: usize| selection.is_none_or(|it| it.contains(number));
    watches.iter_mut().enumerate().filter(move |(number, _)| is_selected(*number)).map(|(_, it)| it)
}

/// Polls all watches. A change that several watches report is reported only once.
fn poll_each<'a>(
    watches: impl Iterator<Item = &'a mut KeyWatch>,
    cx: &mut Context<'_>,
) -> (Poll<()>, Replaced) {
    let (mut changed, mut replaced) = (Poll::Pending, Replaced::new());
    for watch in watches {
        let (polled, of_watch) = watch.poll_under_lock(cx);
        replaced.extend(of_watch);
        if polled.is_ready() {
            changed = polled;
        }
    }
    (changed, replaced)
}

impl Subscription {
    fn begin(hub: &Arc<Hub>, key: &LockKey, claim: Option<LeaseId>) -> Self {
        let claim = claim.map(|id| (id.number(), WokenBy::Key));
        let interest = Interest { key: key.clone(), claim };
        let place = Place::Aside(interest.events(hub));
        Self { hub: Arc::clone(hub), interest, place }
    }

    /// The caller must drop the replaced wakers after the map is unlocked, because dropping a waker
    /// may drop a watch, which locks the map.
    fn poll_changed(&mut self, cx: &mut Context<'_>) -> (Poll<()>, Replaced) {
        let Self { hub, interest, place } = self;
        let mut watched = lock(&hub.watched);
        let listed = place.list(hub, interest, &mut watched);
        let mut replaced = Replaced::new();
        if mem::take(&mut listed.missed) {
            return (Poll::Ready(()), replaced);
        }
        if let Some(watched_claim) =
            interest.claim.and_then(|(claim, _)| watched.claims.get_mut(&claim))
        {
            if mem::take(&mut watched_claim.is_notified) {
                return (Poll::Ready(()), replaced);
            }
            replaced.extend(watched_claim.waker.replace(cx.waker().clone()));
        }
        let key = watched.key(&interest.key);
        if interest.is_of_key() && key.version != listed.seen {
            listed.seen = key.version;
            listed.waits = false;
            return (Poll::Ready(()), replaced);
        }
        if listed.waits {
            replaced.extend(key.forget(listed.id));
        }
        listed.waits = interest.is_of_key();
        if listed.waits {
            key.wake_next_time(listed.id, cx.waker());
        }
        (Poll::Pending, replaced)
    }

    /// If no event occurred since the last call, this method does not lock the maps, because every
    /// hand-off within the process calls the method.
    fn has_changed(&mut self) -> bool {
        let Self { hub, interest, place } = self;
        let events = interest.events(hub);
        if let Place::Listed(listed) = place
            && listed.quiet_at == events
        {
            return listed.missed;
        }
        let mut watched = lock(&hub.watched);
        let listed = place.list(hub, interest, &mut watched);
        let watched_claim = interest.claim.and_then(|(claim, _)| watched.claims.get(&claim));
        let has_changed = watched_claim.is_some_and(|watched_claim| watched_claim.is_notified)
            || watched.key(&interest.key).version != listed.seen;
        if !has_changed {
            listed.quiet_at = events;
        }
        listed.missed || has_changed
    }

    fn skip(&mut self) {
        let Self { hub, interest, place } = self;
        let Place::Listed(listed) = place else {
            *place = Place::Aside(interest.events(hub));
            return;
        };
        let mut watched = lock(&hub.watched);
        listed.missed = false;
        listed.seen = watched.key(&interest.key).version;
        if let Some(watched_claim) =
            interest.claim.and_then(|(claim, _)| watched.claims.get_mut(&claim))
        {
            watched_claim.is_notified = false;
        }
    }

    fn set_woken_by(&mut self, woken_by: WokenBy) {
        if let Some((_, before)) = &mut self.interest.claim {
            *before = woken_by;
        }
    }
}

impl Interest {
    /// Returns whether all changes of the key are of interest, and not only individual
    /// notifications of the claim.
    fn is_of_key(&self) -> bool {
        self.claim.is_none_or(|(_, woken_by)| woken_by == WokenBy::Key)
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        iter::once(self.key.hash()).chain(self.claim.map(|(claim, _)| claim))
    }

    /// Returns the number of events that may concern the subscription.
    fn events(&self, hub: &Hub) -> u32 {
        self.hashes().map(|hash| hub.tally.events(hash)).fold(0, u32::wrapping_add)
    }
}

impl Place {
    /// Adds the subscription to the maps, unless it is already there.
    fn list(&mut self, hub: &Hub, interest: &mut Interest, watched: &mut Watched) -> &mut Listed {
        if let Self::Aside(known) = *self {
            let seen = watched.add(&interest.key);
            let events = interest.hashes().map(|hash| hub.tally.listen(hash));
            // An event after this point has to wait until the maps are unlocked, and then finds
            // this subscription in the maps.
            let missed = events.fold(0, u32::wrapping_add) != known;
            if let Some((claim, _)) = interest.claim
                && !watched.add_claim(claim)
            {
                hub.tally.leave(claim);
                interest.claim = None;
            }
            let id = hub.next_id.fetch_add(1, Ordering::Relaxed);
            let quiet_at = interest.events(hub);
            *self = Self::Listed(Listed { id, seen, waits: false, missed, quiet_at });
        }
        match self {
            Self::Listed(listed) => listed,
            Self::Aside(_) => unreachable!("it was listed just now"),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Self { hub, interest, place: Place::Listed(listed) } = self else { return };
        let mut watched = lock(&hub.watched);
        interest.hashes().for_each(|hash| hub.tally.leave(hash));
        let watched_claim = interest.claim.and_then(|(claim, _)| watched.claims.remove(&claim));
        let needless =
            if listed.waits { watched.key(&interest.key).forget(listed.id) } else { None };
        watched.remove(&interest.key);
        drop(watched);
        drop((watched_claim, needless));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;
    use crate::contract::backend::{Claim, KeyWatches, Lease, Patience};

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
    fn a_change_before_the_first_poll_is_reported_once() {
        let watches = KeyWatches::default();
        let (mut late, mut skipped) = (watches.watch(&key()), watches.watch(&key()));

        watches.notify("k");
        skipped.skip();

        assert!(is_ready(&mut late));
        assert!(!is_ready(&mut late));
        assert!(!is_ready(&mut skipped));
    }

    #[test]
    fn a_notification_wakes_only_the_watches_of_its_key() {
        let watches = KeyWatches::default();
        let mut watch = watches.watch(&key());

        watches.notify("other");
        assert!(!is_ready(&mut watch));

        watches.notify_all();
        assert!(is_ready(&mut watch));
    }

    #[test]
    fn a_change_wakes_the_last_poller_of_each_watch() {
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
    fn a_skipped_notification_of_a_claim_is_not_reported() {
        let (watches, lease) = (KeyWatches::default(), Lease::new(&key(), Duration::from_secs(1)));
        let claim = Claim::new(lease).with_patience(Patience::Waits);
        let mut watch = watches.watch_claim(&claim);
        watches.notify_claim(&claim.id().secret());

        watch.skip();

        assert!(!is_ready(&mut watch));
    }

    #[test]
    fn an_individually_notified_claim_ignores_other_notifications() {
        let (watches, lease) = (KeyWatches::default(), Lease::new(&key(), Duration::from_secs(1)));
        let claim = Claim::new(lease).with_patience(Patience::Waits);
        let mut watch = watches.watch_claim(&claim);
        watch.set_woken_by(WokenBy::Claim);
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(watch.poll_changed(&mut Context::from_waker(&waker)).is_pending());

        watches.notify("k");
        watches.notify_claim(&LeaseId::new().secret());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        assert!(!is_ready(&mut watch));

        watches.notify_claim(&claim.id().secret());
        assert!(is_ready(&mut watch));
        assert!(!is_ready(&mut watch));
    }

    #[test]
    fn an_earlier_notification_of_a_claim_is_kept() {
        let (watches, lease) = (KeyWatches::default(), Lease::new(&key(), Duration::from_secs(1)));
        let claim = Claim::new(lease).with_patience(Patience::Waits);
        let mut watch = watches.watch_claim(&claim);

        watches.notify_claim(&claim.id().secret());
        watch.set_woken_by(WokenBy::Claim);
        assert!(is_ready(&mut watch));

        watches.notify_all();
        assert!(is_ready(&mut watch));
    }

    #[test]
    fn watch_of_several_stores_reports_each_change_once() {
        let stores = [KeyWatches::default(), KeyWatches::default()];
        let mut watch = KeyWatch::any(stores.iter().map(|store| store.watch(&key())));
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        assert!(watch.poll_changed(&mut Context::from_waker(&waker)).is_pending());

        stores.iter().for_each(|store| store.notify("k"));
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        assert!(is_ready(&mut watch));
        assert!(!is_ready(&mut watch));

        stores[1].notify("k");
        assert!(is_ready(&mut watch));
        drop(watch);
        assert_eq!(stores.map(|store| store.watched_keys()), [0, 0]);
    }

    #[test]
    fn watch_of_silent_stores_is_silent() {
        assert!(KeyWatch::any([KeyWatch::silent(), KeyWatch::silent()]).is_silent());
    }

    #[test]
    fn nothing_is_kept_for_unwatched_keys() {
        let watches = KeyWatches::default();
        let (mut first, mut second) = (watches.watch(&key()), watches.watch(&key()));
        assert_eq!(watches.watched_keys(), 0);
        assert!(!is_ready(&mut first) && !is_ready(&mut second));

        drop(first);
        assert_eq!(watches.watched_keys(), 1);
        drop(second);
        assert_eq!(watches.watched_keys(), 0);
    }
}
