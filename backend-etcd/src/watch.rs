//! Notifies watches of changes in the cluster. All watched keys share one stream.
//!
//! A waiter watches its own entry and the entry before it. A holder watches its own entry, but only
//! after it has held the lock for some time. An observer watches all keys of a lock. When the
//! server confirms that a watch is in force, the caller reads the keys again, so that no change is
//! missed. Watches start at the current revision, because a watch with a past revision can be
//! delayed by up to 100 ms.

mod stream;
mod watches;

pub(crate) use watches::{Events, Target};

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, KeyWatch, KeyWatches, Lease, LeaseId, unpoisoned};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::stream::{Order, Receivers};
use self::watches::{EntryWatches, Listener, OwnWatch, Watch, Watches};
use crate::connection::Connection;
use crate::layout::Layout;
use crate::place::Place;

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
    watches: Arc<Mutex<Watches>>,
    next_id: AtomicI64,
    watch_task: Mutex<Option<WatchTask>>,
}

/// The stream's task.
#[derive(Debug)]
struct WatchTask {
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
            watches: Arc::default(),
            next_id: AtomicI64::new(1),
            watch_task: Mutex::default(),
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

    fn watch_entry(self: &Arc<Self>, receivers: &KeyWatches, lease: &Lease) -> KeyWatch {
        let key = {
            let mut watches = unpoisoned(&self.watches);
            let entry =
                watches.entries.entry(lease.id()).or_insert_with(|| EntryWatches::new(lease));
            entry.receivers += 1;
            entry.tag.clone()
        };
        let of = Of::Entry(lease.id());
        let subscription = Subscription { news: Arc::downgrade(self), of };
        receivers.watch(&key).with_attached(subscription)
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
            let mut watches = unpoisoned(&self.watches);
            let Watches { entries, in_force, .. } = &mut *watches;
            let Some(entry) = entries.get_mut(&lease.id()) else {
                // The claim has no watch that could be notified.
                return;
            };
            if entry.created() != Some(place.own.created) {
                orders.extend(entry.own.take().and_then(OwnWatch::begun).map(Order::End));
            }
            let mut begin = |target: Target| {
                let (id, tell) = (self.draw_id(), Listener::Waiter(entry.tag.clone()));
                orders.push(Order::Begin(id, Watch { target, start: 0, tell }));
                id
            };
            if entry.own.is_none() {
                let key = place.own.key.clone();
                entry.own =
                    Some(OwnWatch::Begun(begin(Target { key, end: None, events: Events::Ends })));
            }
            if entry.before.as_ref().is_none_or(|(target, _)| *target != before) {
                let id = begin(before.clone());
                let old = entry.before.replace((before, id));
                orders.extend(old.map(|(_, old)| Order::End(old)));
            }
            entry.place = Some(place);
            for id in entry.of_queued().into_iter().flatten() {
                in_force.entry(id).and_modify(|quiet| *quiet = true);
            }
        }
        orders.into_iter().for_each(|order| self.order(connection, order));
    }

    /// Returns the revision at which the entry of a queued claim was created, if it is known.
    pub(crate) fn queues_since(&self, lease: &Lease) -> Option<i64> {
        unpoisoned(&self.watches).entries.get(&lease.id())?.created()
    }

    /// Returns whether the server sends notifications of all changes that the claim waits for,
    /// including the deletion of its queue entry.
    pub(crate) fn tells(&self, lease: &Lease) -> bool {
        let watches = unpoisoned(&self.watches);
        watches
            .watches_of_queued(lease)
            .is_some_and(|ids| ids.iter().all(|id| watches.in_force.contains_key(id)))
    }

    /// Returns the claim's queue entry, if the server sends notifications of all relevant changes
    /// and has not reported a change since the queue was last read.
    pub(crate) fn quiet_place(&self, lease: &Lease) -> Option<Place> {
        let watches = unpoisoned(&self.watches);
        let ids = watches.watches_of_queued(lease)?;
        let is_quiet = ids.iter().all(|id| watches.in_force.get(id) == Some(&true));
        is_quiet.then(|| watches.entries.get(&lease.id())?.place.clone())?
    }

    /// Records that the lease was granted at `revision`, with the entry `key`.
    pub(crate) fn granted(
        &self,
        connection: &Arc<Connection>,
        lease: &Lease,
        key: Vec<u8>,
        revision: i64,
    ) {
        let mut orders = Vec::new();
        {
            let mut watches = unpoisoned(&self.watches);
            let watches = &mut *watches;
            let Some(entry) = watches.entries.get_mut(&lease.id()) else {
                return;
            };
            entry.place = None;
            orders.extend(entry.before.take().map(|(_, id)| Order::End(id)));
            let id = self.draw_id();
            let target = Target { key, end: None, events: Events::All };
            let watch =
                Watch { target, start: revision + 1, tell: Listener::Holder(entry.tag.clone()) };
            let waited = entry.own.replace(OwnWatch::Later(id, watch));
            orders.extend(waited.and_then(OwnWatch::begun).map(Order::End));
            let at = Instant::now() + WATCH_HELD_AFTER;
            watches.later.push_back((at, lease.id(), id));
            if !std::mem::replace(&mut watches.wakes, true) || !self.keeps_watch() {
                orders.push(Order::WakeAt(at));
            }
        }
        orders.into_iter().for_each(|order| self.order(connection, order));
    }

    fn forget(&self, of: &Of) {
        let ids = match of {
            Of::Observed(id) => vec![*id],
            Of::Entry(lease) => {
                let entries = &mut unpoisoned(&self.watches).entries;
                let Some(entry) = entries.get_mut(lease) else {
                    return;
                };
                entry.receivers -= 1;
                if entry.receivers > 0 {
                    return;
                }
                let entry = entries.remove(lease).expect("it was there just now");
                let own = entry.own.and_then(OwnWatch::begun);
                own.into_iter().chain(entry.before.map(|(_, id)| id)).collect()
            }
        };
        if let Some(watch_task) = &*unpoisoned(&self.watch_task) {
            // An error means that the task has ended, and its watches have ended with it.
            ids.into_iter().for_each(|id| drop(watch_task.orders.send(Order::End(id))));
        }
    }

    /// Returns whether the stream's task is running. The task ends with its runtime.
    fn keeps_watch(&self) -> bool {
        unpoisoned(&self.watch_task)
            .as_ref()
            .is_some_and(|watch_task| !watch_task.task.is_finished())
    }

    /// Sends an order to the stream's task, and starts the task if necessary. Without a runtime,
    /// waiters poll.
    fn order(&self, connection: &Arc<Connection>, order: Order) {
        let mut watch_task = unpoisoned(&self.watch_task);
        if watch_task.as_ref().is_none_or(|watch_task| watch_task.task.is_finished()) {
            let Ok(runtime) = Handle::try_current() else {
                return;
            };
            let (orders, received) = mpsc::unbounded_channel();
            let task = runtime.spawn(self.task(connection, received));
            *watch_task = Some(WatchTask { orders, task });
        }
        let watch_task = watch_task.as_ref().expect("it was started just now");
        // An error means that the task's runtime is shutting down, in which case waiters poll.
        drop(watch_task.orders.send(order));
    }

    fn task(
        &self,
        connection: &Arc<Connection>,
        orders: UnboundedReceiver<Order>,
    ) -> impl Future<Output = ()> + use<> {
        let told = Receivers {
            observers: self.observers.clone(),
            waiters: self.waiters.clone(),
            holders: self.holders.clone(),
        };
        stream::run(Arc::clone(connection), orders, told, Arc::clone(&self.watches))
    }

    fn draw_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
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
        if let Some(watch_task) = &*unpoisoned(&self.watch_task) {
            watch_task.task.abort();
        }
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News")
            .field("entries", &unpoisoned(&self.watches).entries.len())
            .finish_non_exhaustive()
    }
}
