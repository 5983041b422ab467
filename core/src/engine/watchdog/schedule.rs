//! When the watchdog looks at which lease.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::engine::hold::{Due, Hold, Place};

/// The watchdog takes charge of a lease up to so much early, so that it looks through the young ones no more often.
const EARLY: Duration = Duration::from_millis(10);

/// All leases in force, by when they are due: for renewal, or at their deadline.
///
/// Renewals fall due at [common points](crate::engine::deadline::renewal_due), so a bucket for each moment has many leases, and a lease
/// knows its index there.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Leases that have no more than a place here, since most end before they are [of age](Hold::of_age).
    young: Bucket,
    /// No young lease is of age before.
    next_of_age: Instant,
    due: BTreeMap<Instant, Bucket>,
    /// When all with a TTL fall due for renewal, however far apart they would, where one renewal serves them all: if the store has
    /// sessions.
    rounds: Option<HashMap<Duration, Instant>>,
    /// When a task looks again by itself: no task without a call looks later, except one without room for more renewals.
    wakes_at: Instant,
}

type Bucket = Vec<Arc<Hold>>;

impl Schedule {
    pub(super) fn new(has_sessions: bool) -> Self {
        Self {
            young: Bucket::new(),
            next_of_age: Instant::FAR_FUTURE,
            due: BTreeMap::new(),
            rounds: has_sessions.then(HashMap::new),
            wakes_at: Instant::FAR_FUTURE,
        }
    }

    /// Whether the store keeps leases alive together.
    pub(super) fn has_sessions(&self) -> bool {
        self.rounds.is_some()
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.young.iter().chain(self.due.values().flatten())
    }

    /// Adds a lease to the young ones; `true` if a task has to be woken for it.
    pub(super) fn add(&mut self, hold: &Arc<Hold>) -> bool {
        put(&mut self.young, hold, Place::Young);
        self.next_of_age = self.next_of_age.min(hold.of_age());
        self.next_of_age < self.wakes_at
    }

    /// Files `hold` where it belongs now, unless it is over; `true` if a task has to be woken for it. A young one stays where it is.
    pub(super) fn file(&mut self, hold: &Arc<Hold>, now: Instant) -> bool {
        if !matches!(hold.place(), Some(Place::Young(_))) {
            return self.file_by_due_time(hold, now);
        }
        self.next_of_age = self.next_of_age.min(hold.of_age());
        self.next_of_age < self.wakes_at
    }

    /// The same for one that is young no more.
    pub(super) fn file_by_due_time(&mut self, hold: &Arc<Hold>, now: Instant) -> bool {
        let Some(due) = hold.due() else {
            // The store keeps it alive together with others: the watchdog, which looks now, has it released.
            let is_owed = self.has_sessions() && hold.may_outlast_its_loss(now);
            let is_filed = self.remove(hold);
            if is_owed && is_filed {
                put(self.due.entry(now).or_default(), hold, |index| Place::Due(now, index));
            }
            return is_owed && is_filed;
        };
        let at = self.round(due, now);
        let is_there = matches!(hold.place(), Some(Place::Due(before, _)) if before == at);
        if !is_there {
            self.remove(hold);
            put(self.due.entry(at).or_default(), hold, |index| Place::Due(at, index));
        }
        at < self.wakes_at
    }

    /// Takes `hold` out; `false` if that was done before.
    pub(super) fn remove(&mut self, hold: &Hold) -> bool {
        match hold.file(None) {
            None => return false,
            Some(Place::Young(index)) => take_out(&mut self.young, index, Place::Young),
            Some(Place::Due(at, index)) => {
                if let Entry::Occupied(mut bucket) = self.due.entry(at) {
                    take_out(bucket.get_mut(), index, |index| Place::Due(at, index));
                    if bucket.get().is_empty() {
                        bucket.remove();
                    }
                }
            }
        }
        true
    }

    /// The young leases that are of age. They stay where they are until they are filed, so that a shutdown misses none.
    pub(super) fn of_age(&mut self, now: Instant) -> Vec<Arc<Hold>> {
        if now < self.next_of_age {
            return Vec::new();
        }
        self.next_of_age = Instant::FAR_FUTURE;
        let mut grown = Vec::new();
        for hold in &self.young {
            let of_age = hold.of_age();
            if of_age <= now + EARLY {
                grown.push(Arc::clone(hold));
            } else {
                self.next_of_age = self.next_of_age.min(of_age);
            }
        }
        grown
    }

    /// Up to `count` of those that are due, the earliest first. They stay where they are until they are filed anew, as the young ones.
    pub(super) fn due(&self, now: Instant, count: usize) -> Vec<Arc<Hold>> {
        // From the end of a bucket, a lease is taken out without a move of another.
        let due = self.due.range(..=now).flat_map(|(_, bucket)| bucket.iter().rev());
        due.take(count).cloned().collect()
    }

    /// When a task looks next: when the next lease is due, unless there is no room to renew it, or a young one is of age.
    pub(super) fn next_look(&mut self, has_room: bool) -> Instant {
        let next_due = self.due.keys().next().filter(|_| has_room).copied();
        self.wakes_at = next_due.unwrap_or(Instant::FAR_FUTURE).min(self.next_of_age);
        self.wakes_at
    }

    /// When a lease is looked at that is due then: earlier than it need be, if others are renewed anyway.
    fn round(&mut self, due: Due, now: Instant) -> Instant {
        let (Some(rounds), Some(ttl)) = (&mut self.rounds, due.renews_with) else { return due.at };
        rounds.retain(|_, round| now < *round);
        let round = rounds.entry(ttl).or_insert(due.at);
        *round = due.at.min(*round);
        *round
    }
}

fn put(bucket: &mut Bucket, hold: &Arc<Hold>, place: impl Fn(u32) -> Place) {
    hold.file(Some(place(index(bucket.len()))));
    bucket.push(Arc::clone(hold));
}

/// Takes the lease at `at` out, and moves the last one to its place.
fn take_out(bucket: &mut Bucket, at: u32, place: impl Fn(u32) -> Place) {
    let at_index = usize::try_from(at).expect("it was an index");
    bucket.swap_remove(at_index);
    if let Some(moved) = bucket.get(at_index) {
        moved.file(Some(place(at)));
    }
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a process has fewer than 4 billion leases")
}
