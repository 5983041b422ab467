//! The watchdog's schedule, which records when each lease must be checked.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::engine::record::{Due, LeaseRecord, Place};

/// The watchdog may start handling a new lease this much early, so that it scans the list of new
/// leases less often.
const EARLY: Duration = Duration::from_millis(10);

/// All leases in force, sorted by the time of their next renewal or by their deadline.
///
/// Renewals are due at [common points](crate::engine::deadline::renewal_due), so each bucket
/// contains many leases. A lease stores its index in the bucket.
#[derive(Debug)]
pub(super) struct Schedule {
    /// New leases, unsorted, because most of them are released before they are [old
    /// enough](LeaseRecord::settled_at).
    fresh: Bucket,
    /// No new lease is old enough before this time.
    next_settled: Instant,
    due: BTreeMap<Instant, Bucket>,
    /// For each TTL, the time when leases with this TTL are due for renewal. Set if the store has
    /// sessions, because one renewal then keeps all leases of the session alive.
    rounds: Option<HashMap<Duration, Instant>>,
    /// When a task wakes up on its own. No task wakes up later, except a task without
    /// capacity for more renewals.
    wakes_at: Instant,
}

type Bucket = Vec<Arc<LeaseRecord>>;

impl Schedule {
    pub(super) fn new(has_sessions: bool) -> Self {
        Self {
            fresh: Bucket::new(),
            next_settled: Instant::FAR_FUTURE,
            due: BTreeMap::new(),
            rounds: has_sessions.then(HashMap::new),
            wakes_at: Instant::FAR_FUTURE,
        }
    }

    /// Returns whether one renewal keeps several leases alive in the store.
    pub(super) fn has_sessions(&self) -> bool {
        self.rounds.is_some()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Arc<LeaseRecord>> {
        self.fresh.iter().chain(self.due.values().flatten())
    }

    /// Adds a new lease. Returns `true` if a task must be woken for the lease.
    pub(super) fn add(&mut self, record: &Arc<LeaseRecord>) -> bool {
        put(&mut self.fresh, record, Place::Fresh);
        self.next_settled = self.next_settled.min(record.settled_at());
        self.next_settled < self.wakes_at
    }

    /// Adds `record` to the schedule by its current state, unless it is over. Returns `true` if a
    /// task must be woken for the lease. A new lease stays in the list of new leases.
    pub(super) fn file(&mut self, record: &Arc<LeaseRecord>, now: Instant) -> bool {
        if !matches!(record.place(), Some(Place::Fresh(_))) {
            return self.file_by_due_time(record, now);
        }
        self.next_settled = self.next_settled.min(record.settled_at());
        self.next_settled < self.wakes_at
    }

    /// Adds a lease to the schedule by its due time, even if it is a new lease. Returns `true` if a
    /// task must be woken for the lease.
    pub(super) fn file_by_due_time(&mut self, record: &Arc<LeaseRecord>, now: Instant) -> bool {
        let Some(due) = record.due() else {
            // The session keeps the lost lease in force in the store. Schedule the lease for now,
            // so that the watchdog queues its release.
            let is_owed = self.has_sessions() && record.may_outlast_its_loss(now);
            let is_filed = self.remove(record);
            if is_owed && is_filed {
                put(self.due.entry(now).or_default(), record, |index| Place::Due(now, index));
            }
            return is_owed && is_filed;
        };
        let at = self.round(due, now);
        let is_there = matches!(record.place(), Some(Place::Due(before, _)) if before == at);
        if !is_there {
            self.remove(record);
            put(self.due.entry(at).or_default(), record, |index| Place::Due(at, index));
        }
        at < self.wakes_at
    }

    /// Removes `record`. Returns `false` if `record` was already removed.
    pub(super) fn remove(&mut self, record: &LeaseRecord) -> bool {
        match record.file(None) {
            None => return false,
            Some(Place::Fresh(index)) => take_out(&mut self.fresh, index, Place::Fresh),
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

    /// Returns the new leases that are old enough. The leases stay in the list until they are added
    /// to the schedule, so that a shutdown does not miss them.
    pub(super) fn old_enough(&mut self, now: Instant) -> Vec<Arc<LeaseRecord>> {
        if now < self.next_settled {
            return Vec::new();
        }
        self.next_settled = Instant::FAR_FUTURE;
        let mut settled = Vec::new();
        for record in &self.fresh {
            let settled_at = record.settled_at();
            if settled_at <= now + EARLY {
                settled.push(Arc::clone(record));
            } else {
                self.next_settled = self.next_settled.min(settled_at);
            }
        }
        settled
    }

    /// Returns up to `count` leases that are due, in the order of their due times. The leases stay
    /// in their buckets until they are scheduled again.
    pub(super) fn due(&self, now: Instant, count: usize) -> Vec<Arc<LeaseRecord>> {
        // Iterate in reverse, because removing the last entry of a bucket does not move any other
        // entry.
        let due = self.due.range(..=now).flat_map(|(_, bucket)| bucket.iter().rev());
        due.take(count).cloned().collect()
    }

    /// Returns when a task must run next: when a new lease is old enough or, if there is capacity
    /// for renewals, when the next lease is due.
    pub(super) fn next_look(&mut self, has_room: bool) -> Instant {
        let next_due = self.due.keys().next().filter(|_| has_room).copied();
        self.wakes_at = next_due.unwrap_or(Instant::FAR_FUTURE).min(self.next_settled);
        self.wakes_at
    }

    /// Returns when to check a lease with this due time. If leases with the same TTL are renewed
    /// earlier anyway, the lease is also checked earlier.
    fn round(&mut self, due: Due, now: Instant) -> Instant {
        let (Some(rounds), Some(ttl)) = (&mut self.rounds, due.renews_with) else { return due.at };
        rounds.retain(|_, round| now < *round);
        let round = rounds.entry(ttl).or_insert(due.at);
        *round = due.at.min(*round);
        *round
    }
}

fn put(bucket: &mut Bucket, record: &Arc<LeaseRecord>, place: impl Fn(u32) -> Place) {
    record.file(Some(place(index(bucket.len()))));
    bucket.push(Arc::clone(record));
}

/// Removes the lease at index `at` and moves the last lease to this index.
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
