//! Notifies watches of changes in the cluster. All watched keys share one stream.
//!
//! A waiter watches its own entry and the entry before it. A holder watches its own entry, but only
//! after it has held the lock for some time. An observer watches all keys of a lock. When the
//! server confirms that a watch is in force, the caller reads the keys again, so that no change is
//! missed. Watches start at the current revision, because a watch with a past revision can be
//! delayed by up to 100 ms.

mod stream;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, KeyWatch, KeyWatches, Lease, LeaseId};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::layout::{Layout, tag};
use crate::place::Place;
use crate::sync::locked;

/// How long a lock must be held before its entry is watched. The delay avoids the request for locks
/// that are held only briefly.
const WATCH_HELD_AFTER: Duration = Duration::from_millis(100);

/// Notifies watches of changes in the cluster.
pub(crate) struct News {
    /// The watches of observers of a lock.
    observers: KeyWatches,
    /// The watches of waiters, by the tags of their leases.
    waiters: KeyWatches,
    /// The watches of holders, by the tags of their leases.
    holders: KeyWatches,
    asking: Arc<Mutex<Asking>>,
    next_id: AtomicI64,
    tower: Mutex<Option<Tower>>,
}

/// The watches that the cluster keeps for each watched entry.
#[derive(Debug, Default)]
struct Asking {
    entries: HashMap<LeaseId, Asked>,
    /// Entries that will be watched once they have been held for long enough, sorted by the time
    /// when their watches start. `wakes` states whether the stream's task wakes for the first
    /// entry, because locks that are held only briefly should not wake the task.
    later: VecDeque<(Instant, LeaseId, i64)>,
    wakes: bool,
    /// The watches on the current stream. The value is `true` if the watch has not reported an
    /// event since the queue was last read.
    in_force: HashMap<i64, bool>,
}

/// The watches that the cluster keeps for one entry.
#[derive(Debug)]
struct Asked {
    /// The tag that identifies the watches of this entry.
    tag: LockKey,
    /// The number of `KeyWatch`es.
    watches: usize,
    /// The watch of the entry itself.
    own: Option<Own>,
    /// The watch of the entry before it.
    before: Option<(Target, i64)>,
    /// The last known queue entry.
    place: Option<Place>,
}

impl Asked {
    fn new(lease: &Lease) -> Self {
        let tag = LockKey::new(tag(lease)).expect("a tag is a good key");
        Self { tag, watches: 0, own: None, before: None, place: None }
    }

    fn created(&self) -> Option<i64> {
        self.place.as_ref().map(|place| place.own.created)
    }

    /// Returns the two watches of a queued claim.
    fn in_line(&self) -> Option<[i64; 2]> {
        match (&self.own, &self.before) {
            (Some(Own::Begun(own)), Some((_, before))) => Some([*own, *before]),
            _ => None,
        }
    }
}

/// The watch of an entry itself.
#[derive(Debug)]
enum Own {
    Begun(i64),
    /// The watch starts later, if it is still needed then.
    Later(i64, Watch),
}

impl Own {
    /// Returns the ID of the watch if the cluster must end it.
    fn begun(self) -> Option<i64> {
        match self {
            Self::Begun(id) => Some(id),
            Self::Later(..) => None,
        }
    }
}

/// The target of a watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    pub(crate) key: Vec<u8>,
    /// The end of the range, for a range of keys.
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) events: Events,
}

/// The events of a key that cause a notification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Events {
    /// The key is deleted.
    Ends,
    /// The key is deleted or changed. The creation of the key is not included.
    Changes,
    All,
}

/// A watch that is requested from the cluster.
#[derive(Clone, Debug)]
struct Watch {
    target: Target,
    /// The revision from which events are reported, or 0 for the current revision.
    start: i64,
    tell: Listener,
}

/// The receiver of a notification.
#[derive(Clone, Debug)]
enum Listener {
    Holder(LockKey),
    Observer(LockKey),
    Waiter(LockKey),
}

/// An order for the stream's task.
#[derive(Debug)]
enum Order {
    Begin(i64, Watch),
    End(i64),
    /// Wake at this time to start watches that are due.
    WakeAt(Instant),
}

/// The stream's task.
#[derive(Debug)]
struct Tower {
    orders: UnboundedSender<Order>,
    task: JoinHandle<()>,
}

/// Ends a watch in the cluster when the `KeyWatch` that owns this value is dropped.
struct Subscription {
    news: Weak<News>,
    of: Of,
}

enum Of {
    Entry(LeaseId),
    Observed(i64),
}

impl News {
    pub(crate) fn new() -> Self {
        Self {
            observers: KeyWatches::default(),
            waiters: KeyWatches::default(),
            holders: KeyWatches::default(),
            asking: Arc::default(),
            next_id: AtomicI64::new(1),
            tower: Mutex::default(),
        }
    }

    /// Returns a watch for an observer of a lock.
    pub(crate) fn observe(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        layout: &Layout,
        key: &LockKey,
    ) -> KeyWatch {
        let id = self.draw_id();
        let range = layout.range(key);
        let target =
            Target { key: range.start.into(), end: Some(range.end.into()), events: Events::All };
        let watch = self.observers.watch(key);
        let tell = Listener::Observer(key.clone());
        self.order(connection, Order::Begin(id, Watch { target, start: 0, tell }));
        watch.with_attached(Subscription { news: Arc::downgrade(self), of: Of::Observed(id) })
    }

    /// Returns a watch for a claim that may have to wait. No request is sent before the claim is
    /// queued.
    pub(crate) fn watch_claim(self: &Arc<Self>, claim: &Claim) -> KeyWatch {
        self.watch_entry(&self.waiters, claim.lease())
    }

    /// Returns a watch for a lease that may be held for a long time. No request is sent before the
    /// lease has been held for some time.
    pub(crate) fn watch_lease(self: &Arc<Self>, lease: &Lease) -> KeyWatch {
        self.watch_entry(&self.holders, lease)
    }

    fn watch_entry(self: &Arc<Self>, watches: &KeyWatches, lease: &Lease) -> KeyWatch {
        let key = {
            let mut asking = locked(&self.asking);
            let asked = asking.entries.entry(lease.id()).or_insert_with(|| Asked::new(lease));
            asked.watches += 1;
            asked.tag.clone()
        };
        let of = Of::Entry(lease.id());
        let subscription = Subscription { news: Arc::downgrade(self), of };
        watches.watch(&key).with_attached(subscription)
    }

    /// Records that the claim is queued at `place` and waits for a change of `before`.
    pub(crate) fn queues(
        &self,
        connection: &Arc<Connection>,
        lease: &Lease,
        place: Place,
        before: Target,
    ) {
        let mut orders = Vec::new();
        {
            let mut asking = locked(&self.asking);
            let Asking { entries, in_force, .. } = &mut *asking;
            let Some(asked) = entries.get_mut(&lease.id()) else {
                // The claim has no watch that could be notified.
                return;
            };
            if asked.created() != Some(place.own.created) {
                orders.extend(asked.own.take().and_then(Own::begun).map(Order::End));
            }
            let mut begin = |target: Target| {
                let (id, tell) = (self.draw_id(), Listener::Waiter(asked.tag.clone()));
                orders.push(Order::Begin(id, Watch { target, start: 0, tell }));
                id
            };
            if asked.own.is_none() {
                let key = place.own.key.clone();
                asked.own =
                    Some(Own::Begun(begin(Target { key, end: None, events: Events::Ends })));
            }
            if asked.before.as_ref().is_none_or(|(target, _)| *target != before) {
                let id = begin(before.clone());
                let old = asked.before.replace((before, id));
                orders.extend(old.map(|(_, old)| Order::End(old)));
            }
            asked.place = Some(place);
            for id in asked.in_line().into_iter().flatten() {
                in_force.entry(id).and_modify(|quiet| *quiet = true);
            }
        }
        orders.into_iter().for_each(|order| self.order(connection, order));
    }

    /// Returns the revision at which the entry of a queued claim was created, if it is known.
    pub(crate) fn queues_since(&self, lease: &Lease) -> Option<i64> {
        locked(&self.asking).entries.get(&lease.id())?.created()
    }

    /// Returns whether the server sends notifications of all changes that the claim waits for,
    /// including the deletion of its queue entry.
    pub(crate) fn tells(&self, lease: &Lease) -> bool {
        let asking = locked(&self.asking);
        asking
            .watches_in_line(lease)
            .is_some_and(|ids| ids.iter().all(|id| asking.in_force.contains_key(id)))
    }

    /// Returns the claim's queue entry, if the server sends notifications of all relevant changes
    /// and has not reported a change since the queue was last read.
    pub(crate) fn quiet_place(&self, lease: &Lease) -> Option<Place> {
        let asking = locked(&self.asking);
        let ids = asking.watches_in_line(lease)?;
        let is_quiet = ids.iter().all(|id| asking.in_force.get(id) == Some(&true));
        is_quiet.then(|| asking.entries.get(&lease.id())?.place.clone())?
    }

    /// Records that the lease was granted at `revision`.
    pub(crate) fn granted(
        &self,
        connection: &Arc<Connection>,
        lease: &Lease,
        entry: Vec<u8>,
        revision: i64,
    ) {
        let mut orders = Vec::new();
        {
            let mut asking = locked(&self.asking);
            let asking = &mut *asking;
            let Some(asked) = asking.entries.get_mut(&lease.id()) else {
                return;
            };
            asked.place = None;
            orders.extend(asked.before.take().map(|(_, id)| Order::End(id)));
            let id = self.draw_id();
            let target = Target { key: entry, end: None, events: Events::All };
            let watch =
                Watch { target, start: revision + 1, tell: Listener::Holder(asked.tag.clone()) };
            let waited = asked.own.replace(Own::Later(id, watch));
            orders.extend(waited.and_then(Own::begun).map(Order::End));
            let at = Instant::now() + WATCH_HELD_AFTER;
            asking.later.push_back((at, lease.id(), id));
            if !std::mem::replace(&mut asking.wakes, true) || !self.keeps_watch() {
                orders.push(Order::WakeAt(at));
            }
        }
        orders.into_iter().for_each(|order| self.order(connection, order));
    }

    fn forget(&self, of: &Of) {
        let ids = match of {
            Of::Observed(id) => vec![*id],
            Of::Entry(lease) => {
                let entries = &mut locked(&self.asking).entries;
                let Some(entry) = entries.get_mut(lease) else {
                    return;
                };
                entry.watches -= 1;
                if entry.watches > 0 {
                    return;
                }
                let entry = entries.remove(lease).expect("it was there just now");
                let own = entry.own.and_then(Own::begun);
                own.into_iter().chain(entry.before.map(|(_, id)| id)).collect()
            }
        };
        if let Some(tower) = &*locked(&self.tower) {
            // An error means that the task has ended, and its watches have ended with it.
            ids.into_iter().for_each(|id| drop(tower.orders.send(Order::End(id))));
        }
    }

    /// Returns whether the stream's task is running. The task ends with its runtime.
    fn keeps_watch(&self) -> bool {
        locked(&self.tower).as_ref().is_some_and(|tower| !tower.task.is_finished())
    }

    /// Sends an order to the stream's task, and starts the task if necessary. Without a runtime,
    /// waiters poll.
    fn order(&self, connection: &Arc<Connection>, order: Order) {
        let mut tower = locked(&self.tower);
        if tower.as_ref().is_none_or(|tower| tower.task.is_finished()) {
            let Ok(runtime) = Handle::try_current() else {
                return;
            };
            let (orders, received) = mpsc::unbounded_channel();
            let task = runtime.spawn(self.task(connection, received));
            *tower = Some(Tower { orders, task });
        }
        let tower = tower.as_ref().expect("it was started just now");
        // An error means that the task's runtime is shutting down, in which case waiters poll.
        drop(tower.orders.send(order));
    }

    fn task(
        &self,
        connection: &Arc<Connection>,
        orders: UnboundedReceiver<Order>,
    ) -> impl Future<Output = ()> + use<> {
        let told = Told {
            observers: self.observers.clone(),
            waiters: self.waiters.clone(),
            holders: self.holders.clone(),
        };
        stream::run(Arc::clone(connection), orders, told, Arc::clone(&self.asking))
    }

    fn draw_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

impl Asking {
    /// Returns the watches of a queued claim.
    fn watches_in_line(&self, lease: &Lease) -> Option<[i64; 2]> {
        self.entries.get(&lease.id())?.in_line()
    }

    /// Starts the watches that are due, and returns the time when the next watch is due.
    fn begin_due(&mut self, now: Instant) -> (Vec<(i64, Watch)>, Option<Instant>) {
        let mut begun = Vec::new();
        while self.later.front().is_some_and(|(at, _, _)| *at <= now) {
            let (_, lease, id) = self.later.pop_front().expect("it was there just now");
            let own = self.entries.get_mut(&lease).and_then(|entry| entry.own.as_mut());
            if let Some(own) = own
                && matches!(own, Own::Later(later, _) if *later == id)
                && let Own::Later(id, watch) = std::mem::replace(own, Own::Begun(id))
            {
                begun.push((id, watch));
            }
        }
        let next = self.later.front().map(|(at, _, _)| *at);
        self.wakes = next.is_some();
        (begun, next)
    }
}

/// The receivers of notifications, in the form that the stream's task uses.
struct Told {
    observers: KeyWatches,
    waiters: KeyWatches,
    holders: KeyWatches,
}

impl Told {
    fn tell(&self, listener: &Listener) {
        match listener {
            Listener::Holder(tag) => self.holders.notify(tag.as_str()),
            Listener::Observer(key) => self.observers.notify(key.as_str()),
            Listener::Waiter(tag) => self.waiters.notify(tag.as_str()),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(news) = self.news.upgrade() {
            news.forget(&self.of);
        }
    }
}

impl Drop for News {
    fn drop(&mut self) {
        if let Some(tower) = &*locked(&self.tower) {
            tower.task.abort();
        }
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News")
            .field("entries", &locked(&self.asking).entries.len())
            .finish_non_exhaustive()
    }
}
