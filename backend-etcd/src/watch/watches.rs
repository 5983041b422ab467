//! The watches that the cluster keeps for waiters and holders.

use std::collections::{HashMap, VecDeque};

use leasehold_core::LockKey;
use leasehold_core::backend::{Lease, LeaseId};
use tokio::time::Instant;

use crate::layout::tag;
use crate::place::Place;

/// The watches that the cluster keeps for each watched entry.
#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) entries: HashMap<LeaseId, EntryWatches>,
    /// Entries that will be watched once they have been held for long enough, sorted by the time
    /// when their watches start. `wakes` states whether the stream's task wakes for the first
    /// entry, because locks that are held only briefly should not wake the task.
    pub(super) later: VecDeque<(Instant, LeaseId, i64)>,
    pub(super) wakes: bool,
    /// The watches on the current stream. The value is `true` if the watch has not reported an
    /// event since the queue was last read.
    pub(super) in_force: HashMap<i64, bool>,
}

impl Watches {
    /// Returns the watches of a queued claim.
    pub(super) fn watches_of_queued(&self, lease: &Lease) -> Option<[i64; 2]> {
        self.entries.get(&lease.id())?.of_queued()
    }

    /// Starts the watches that are due, and returns the time when the next watch is due.
    pub(super) fn begin_due(&mut self, now: Instant) -> (Vec<(i64, Watch)>, Option<Instant>) {
        let mut begun = Vec::new();
        while self.later.front().is_some_and(|(at, _, _)| *at <= now) {
            let (_, lease, id) = self.later.pop_front().expect("it was there just now");
            let own = self.entries.get_mut(&lease).and_then(|entry| entry.own.as_mut());
            if let Some(own) = own
                && matches!(own, OwnWatch::Later(later, _) if *later == id)
                && let OwnWatch::Later(id, watch) = std::mem::replace(own, OwnWatch::Begun(id))
            {
                begun.push((id, watch));
            }
        }
        let next = self.later.front().map(|(at, _, _)| *at);
        self.wakes = next.is_some();
        (begun, next)
    }
}

/// The watches that the cluster keeps for one entry.
#[derive(Debug)]
pub(super) struct EntryWatches {
    /// The tag that identifies the watches of this entry.
    pub(super) tag: LockKey,
    /// The number of `KeyWatch`es.
    pub(super) receivers: usize,
    /// The watch of the entry itself.
    pub(super) own: Option<OwnWatch>,
    /// The watch of the entry before it.
    pub(super) before: Option<(Target, i64)>,
    /// The last known queue entry.
    pub(super) place: Option<Place>,
}

impl EntryWatches {
    pub(super) fn new(lease: &Lease) -> Self {
        let tag = LockKey::new(tag(lease)).expect("a tag is a good key");
        Self { tag, receivers: 0, own: None, before: None, place: None }
    }

    pub(super) fn created(&self) -> Option<i64> {
        self.place.as_ref().map(|place| place.own.created)
    }

    /// Returns the two watches of a queued claim.
    pub(super) fn of_queued(&self) -> Option<[i64; 2]> {
        match (&self.own, &self.before) {
            (Some(OwnWatch::Begun(own)), Some((_, before))) => Some([*own, *before]),
            _ => None,
        }
    }
}

/// The watch of an entry itself.
#[derive(Debug)]
pub(super) enum OwnWatch {
    Begun(i64),
    /// The watch starts later, if it is still needed then.
    Later(i64, Watch),
}

impl OwnWatch {
    /// Returns the ID of the watch if the cluster must end it.
    pub(super) fn begun(self) -> Option<i64> {
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
pub(super) struct Watch {
    pub(super) target: Target,
    /// The revision from which events are reported, or 0 for the current revision.
    pub(super) start: i64,
    pub(super) tell: Listener,
}

/// The receiver of a notification.
#[derive(Clone, Debug)]
pub(super) enum Listener {
    Holder(LockKey),
    Observer(LockKey),
    Waiter(LockKey),
}
