//! The cluster's news: watches of few keys, all on one stream.
//!
//! A waiter watches the entry before it, and its own; a holder of more than a moment watches its own entry; an observer
//! watches all keys of a lock. The server confirms a watch that begins "now" once it is in force, and its caller looks
//! once more then: so no change is missed or late. (A watch that begins at a past revision has to wait for the server's
//! next round of catching up, up to 100 ms.)

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

/// How long a lock must be held to be watched: locks that are held for a moment only are spared the request.
const WATCH_HELD_AFTER: Duration = Duration::from_millis(100);

/// Passes on the cluster's news to watches.
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
    /// Entries that are to be watched once they have held for long enough, in that order, and whether the stream's task
    /// wakes up for the first of them: locks that are held for a moment only are not to wake it each time.
    later: VecDeque<(Instant, LeaseId, i64)>,
    wakes: bool,
    /// The watches that the server keeps on the present stream, and whether it has told nothing of them since the last look.
    in_force: HashMap<i64, bool>,
}

/// The watches that the cluster keeps for the sake of an entry.
#[derive(Debug)]
struct Asked {
    /// The tag by which its watches are known.
    tag: LockKey,
    /// How many `KeyWatch`es there are.
    watches: usize,
    /// The entry itself.
    own: Option<Own>,
    /// The entry before it.
    before: Option<(Target, i64)>,
    /// Where it stands in line, as far as is known.
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

    /// The watches of a claim that stands in line.
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
    /// It will be, if it is still wanted then.
    Later(i64, Watch),
}

impl Own {
    /// The watch that the cluster must be told to end.
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
    /// For a range of keys.
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) events: Events,
}

/// Which events of a key are news.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Events {
    /// That it goes.
    Ends,
    /// That it goes or is changed. That it comes is none.
    Changes,
    All,
}

/// A watch that the cluster is asked for.
#[derive(Clone, Debug)]
struct Watch {
    target: Target,
    /// The revision from which on to tell; "now" if 0.
    start: i64,
    tell: Listener,
}

/// The receiver of news.
#[derive(Clone, Debug)]
enum Listener {
    Holder(LockKey),
    Observer(LockKey),
    Waiter(LockKey),
}

/// An order to the stream's task.
#[derive(Debug)]
enum Order {
    Begin(i64, Watch),
    End(i64),
    /// To look by then for entries that are to be watched later.
    WakeAt(Instant),
}

/// The stream's task.
#[derive(Debug)]
struct Tower {
    orders: UnboundedSender<Order>,
    task: JoinHandle<()>,
}

/// Ends a watch of the cluster, when the `KeyWatch` that it is attached to is dropped.
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

    /// For an observer of a lock.
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

    /// For a claim that may wait. The cluster receives no request until it does.
    pub(crate) fn watch_claim(self: &Arc<Self>, claim: &Claim) -> KeyWatch {
        self.watch_entry(&self.waiters, claim.lease())
    }

    /// For a lease that may be held for long. The cluster receives no request until it has been held for a moment.
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

    /// The claim stands in line at `place`, and waits for news of `before`.
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
                // The claim has no watch to be told by.
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

    /// When the entry of a claim that queues was created, if we know.
    pub(crate) fn queues_since(&self, lease: &Lease) -> Option<i64> {
        locked(&self.asking).entries.get(&lease.id())?.created()
    }

    /// Whether the server tells of all that the claim waits for, and of the end of its place.
    pub(crate) fn tells(&self, lease: &Lease) -> bool {
        let asking = locked(&self.asking);
        asking
            .watches_in_line(lease)
            .is_some_and(|ids| ids.iter().all(|id| asking.in_force.contains_key(id)))
    }

    /// The claim's place in line, if the server tells of all that it waits for and has told nothing since the last look.
    pub(crate) fn quiet_place(&self, lease: &Lease) -> Option<Place> {
        let asking = locked(&self.asking);
        let ids = asking.watches_in_line(lease)?;
        let is_quiet = ids.iter().all(|id| asking.in_force.get(id) == Some(&true));
        is_quiet.then(|| asking.entries.get(&lease.id())?.place.clone())?
    }

    /// The lease was granted at `revision`.
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
            // An error means that the task has ended, and with it all watches.
            ids.into_iter().for_each(|id| drop(tower.orders.send(Order::End(id))));
        }
    }

    /// Whether the stream's task runs: it ends with its runtime.
    fn keeps_watch(&self) -> bool {
        locked(&self.tower).as_ref().is_some_and(|tower| !tower.task.is_finished())
    }

    /// Gives an order to the stream's task, which is started if there is none. Without a runtime, waiters poll.
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
        // An error means that the task's runtime ends: waiters poll.
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
    /// The watches of a claim that stands in line.
    fn watches_in_line(&self, lease: &Lease) -> Option<[i64; 2]> {
        self.entries.get(&lease.id())?.in_line()
    }

    /// Begins the watches for which it is time, and tells when to look again.
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

/// The receivers of news, as the stream's task sees them.
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
