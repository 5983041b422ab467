//! Polls the file on behalf of watches, to find expired leases and changes by other processes.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use leasehold_core::backend::entry::Entry;
use leasehold_core::{Error, LockKey};
use leasehold_entry::{Document, Tag};
use leasehold_sql_support::rows::Clock;
use leasehold_sql_support::{Concerns, News};

use crate::store::Store;
use crate::tables::{Alarms, Stop, Tables};

/// The minimum polling interval while a claim waits. The actual interval is random and up to twice
/// as long, so that processes do not poll in lockstep.
const WHILE_WAITING: Duration = Duration::from_millis(5);

/// The minimum polling interval while no claim waits. Polling is still necessary, because an
/// operator may revoke leases or request revocations.
const WHILE_HOLDING: Duration = Duration::from_millis(100);

/// The interval at which an idle process checks whether its files still exist. While an idle
/// process has deleted files open, no process can create new files.
const WHILE_IDLE: Duration = Duration::from_secs(1);

/// The minimum polling interval after a poll that has failed.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// The pause after a poll, for each key that was read. The pause is four times the typical time to
/// read a key. The actual time is not measured, because a poll may also be slow because other
/// processes use the CPU.
const PAUSE_PER_KEY: Duration = Duration::from_micros(40);

/// Polls the file and records the state of the keys.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    news: News,
    last: Option<Last>,
    version: Option<(i64, u64)>,
    alarms: Option<Alarms>,
    /// The last known state of the keys with waiters or observers.
    seen: HashMap<LockKey, Seen>,
}

/// The last poll.
#[derive(Debug)]
struct Last {
    ended: Instant,
    /// The minimum time until the next poll.
    pause: Duration,
    /// The random factor by which the next poll is delayed.
    stretch: f64,
}

/// The state of a key when it was last read.
#[derive(Debug)]
struct Seen {
    /// A hash of the holders.
    holders: u64,
    /// The time when the first lease or queue entry of the key expires, on the file's clock.
    ends: i64,
    /// The result of [`entries_ahead`].
    ahead: usize,
}

/// Returns the maximum polling interval while there are watches of this type.
pub(crate) fn longest_interval(concerns: Concerns) -> Duration {
    2 * interval(concerns)
}

/// Returns the minimum polling interval while there are watches of this type.
fn interval(concerns: Concerns) -> Duration {
    match concerns {
        Concerns::Waiters => WHILE_WAITING,
        Concerns::Holders => WHILE_HOLDING,
    }
}

impl Poller {
    pub(crate) fn new(news: News) -> Self {
        Self { news, ..Self::default() }
    }

    pub(crate) fn news(&self) -> &News {
        &self.news
    }

    /// Returns when to poll next. Returns `None` if there is neither a watch nor an open file.
    pub(crate) fn due(&self) -> Option<Instant> {
        let Some(last) = &self.last else { return (!self.is_idle()).then(Instant::now) };
        let watched = [Concerns::Waiters, Concerns::Holders];
        let watched = watched.into_iter().find(|concerns| self.news.has_watches(*concerns));
        let interval = watched.map_or(WHILE_IDLE, interval);
        Some(last.ended + interval.max(last.pause).mul_f64(last.stretch))
    }

    /// Returns whether this process has neither waiters nor holders.
    pub(crate) fn is_idle(&self) -> bool {
        [Concerns::Waiters, Concerns::Holders].iter().all(|it| !self.news.has_watches(*it))
    }

    /// Starts the next interval.
    pub(crate) fn rest(&mut self) {
        if self.last.is_some() {
            self.pause(Duration::ZERO);
        }
    }

    /// Waits at least `pause` until the next poll.
    fn pause(&mut self, pause: Duration) {
        let stretch = 1.0 + fastrand::f64();
        self.last = Some(Last { ended: Instant::now(), pause, stretch });
    }

    /// Handles a file that cannot be read. Polling slows down, and waiters retry on their own.
    pub(crate) fn failed(&mut self) {
        self.forget();
        self.pause(AFTER_A_FAILURE);
    }

    /// Forgets the last poll, which may have read a different file.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.seen.clear();
    }

    /// Notifies holders that the files were deleted or replaced. The holders check whether the new
    /// files contain their leases.
    pub(crate) fn notify_replaced(&mut self) {
        self.forget();
        self.last = None;
        self.notify_holders();
    }

    /// Reads all keys that may have changed, and notifies their watches.
    pub(crate) fn poll(&mut self, store: &Store, until: Instant) -> Result<(), Error> {
        // The version is read before the file, so that the next poll notices a change that occurs
        // in between.
        let version = store.version()?;
        let is_changed = self.version.replace(version) != Some(version);
        let keys: HashSet<LockKey> = self.news.watched(Concerns::Waiters).into_iter().collect();
        self.seen.retain(|key, _| keys.contains(key));
        let read = store.read(until, |tables, clock| {
            if is_changed || self.news.has_watches(Concerns::Holders) {
                self.check_alarms(tables)?;
            }
            self.poll_keys(&keys, is_changed, tables, clock)
        })?;
        self.pause(self.pause_in_queues().max(PAUSE_PER_KEY * read));
        Ok(())
    }

    /// Reads the keys that may have changed, and returns their number. If the file `is_changed`, any
    /// key may have changed.
    fn poll_keys(
        &mut self,
        keys: &HashSet<LockKey>,
        is_changed: bool,
        tables: &Tables,
        clock: Clock,
    ) -> Result<u32, Stop> {
        let mut read = 0;
        for key in keys {
            if is_changed || self.seen.get(key).is_none_or(|seen| seen.ends <= clock.now) {
                self.poll_key(key, tables, clock)?;
                read += 1;
            }
        }
        Ok(read)
    }

    /// Returns the pause after a poll, which grows with the number of queue entries ahead of this
    /// process. Otherwise, the polls of many queued processes together would slow down the holder.
    fn pause_in_queues(&self) -> Duration {
        let ahead = self.seen.values().map(|seen| seen.ahead).min().unwrap_or_default();
        WHILE_WAITING.saturating_mul(ahead.try_into().unwrap_or(u32::MAX)).min(WHILE_HOLDING)
    }

    /// Notifies holders to check their leases if an operator has changed something.
    fn check_alarms(&mut self, tables: &Tables) -> Result<(), Stop> {
        let alarms = tables.alarms()?;
        // Before the first poll, no lease can be held.
        if self.alarms.replace(alarms).is_some_and(|before| !alarms.is_calm_after(&before)) {
            self.notify_holders();
        }
        Ok(())
    }

    fn notify_holders(&self) {
        for key in self.news.watched(Concerns::Holders) {
            self.news.notify(key.as_str(), Concerns::Holders);
        }
    }

    /// Notifies the claims that can be granted. Notifies all waiters and observers of the key if its
    /// holders have changed.
    fn poll_key(&mut self, key: &LockKey, tables: &Tables, clock: Clock) -> Result<(), Stop> {
        let mut state = tables.read(key, clock)?;
        state.woken().iter().for_each(|tag| self.news.call(tag));
        let ends = state.row().map_or(i64::MAX, |row| row.ends);
        let Ok(entry) = state.entry() else {
            // This version cannot read the row before the row has expired. Waiters retry on their own.
            self.seen.insert(key.clone(), Seen { holders: 0, ends, ahead: usize::MAX });
            return Ok(());
        };
        // A release may have handed over the key to a claim that still waits.
        entry.holders.iter().for_each(|holding| self.news.call(&holding.name.id));
        let holders = hash(entry);
        let ends = entry.holders.iter().map(|holding| holding.ends);
        let first_end = ends.chain(entry.queue.iter().map(|waiter| waiter.ends)).min();
        let queue: Vec<Tag> = entry.queue.iter().map(|waiter| waiter.name).collect();
        let ahead = entries_ahead(&queue, tables.bound_socket(), |tag| state.socket(&tag.id));
        let seen = Seen { holders, ends: first_end.unwrap_or(i64::MAX), ahead };
        let before = self.seen.insert(key.clone(), seen);
        if before.is_none_or(|before| before.holders != holders) {
            self.news.notify(key.as_str(), Concerns::Waiters);
        }
        Ok(())
    }
}

/// Returns the number of queue entries ahead of the first entry of this process, which a datagram to
/// the socket `own` wakes.
///
/// Without such an entry, only polls notify this process, so the process must poll often. However, if
/// the queue is full and all of its entries have sockets of other processes, this process is not in
/// the queue and first has to wait for space, so all entries are ahead. A process that only observes
/// such a key also polls rarely.
fn entries_ahead(queue: &[Tag], own: Option<u32>, socket: impl Fn(&Tag) -> Option<u32>) -> usize {
    let is_own = |tag: &Tag| own.is_some() && socket(tag) == own;
    queue.iter().position(is_own).unwrap_or_else(|| {
        let is_full = queue.len() >= Document::MAX_QUEUE;
        let is_of_others = is_full && queue.iter().all(|tag| socket(tag).is_some());
        if is_of_others { queue.len() } else { 0 }
    })
}

/// Returns a hash of the holders of a key and of the values that they publish.
fn hash(entry: &Entry<Tag, i64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for holding in &entry.holders {
        (holding.name.id, holding.mode.units(), &holding.description).hash(&mut hasher);
    }
    hasher.finish()
}
