//! Polls the file on behalf of watches, to find expired leases and changes by other processes.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use leasehold_core::{Error, LockKey};
use leasehold_sql_support::request::Key;
use leasehold_sql_support::{Concerns, News};

use crate::entry::Entry;
use crate::host::Now;
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

/// The factor by which polling slows down while the file cannot be read.
const AFTER_A_FAILURE: f64 = 20.0;

/// The pause after a poll, for each key that was read. The pause is four times the typical time to
/// read a key. The actual time is not measured, because a poll may also be slow because other
/// processes use the CPU.
const REST_PER_KEY: Duration = Duration::from_micros(40);

/// Polls the file and records the state of the keys.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    news: News,
    last: Option<Last>,
    version: Option<i64>,
    alarms: Option<Alarms>,
    /// The last known state of the keys that claims wait for.
    seen: HashMap<LockKey, Seen>,
}

/// The last poll.
#[derive(Debug)]
struct Last {
    ended: Instant,
    /// The number of keys that were read.
    keys: u32,
    /// The factor by which the next poll is delayed.
    stretch: f64,
}

/// The state of a key when it was last read.
#[derive(Debug)]
struct Seen {
    /// A hash of the holders.
    holders: u64,
    /// The time when the first row of the key expires, on the file's clock.
    ends: i64,
}

impl Looker {
    pub(crate) fn new(news: News) -> Self {
        Self { news, ..Self::default() }
    }

    /// Returns when to poll next. Returns `None` if there is neither a watch nor an open file.
    pub(crate) fn due(&self) -> Option<Instant> {
        let spacing = if self.news.has_watches(Concerns::Waiters) {
            WHILE_WAITING
        } else if self.news.has_watches(Concerns::Holders) {
            WHILE_HOLDING
        } else {
            WHILE_IDLE
        };
        let Some(last) = &self.last else { return (!self.is_idle()).then(Instant::now) };
        Some(last.ended + spacing.mul_f64(last.stretch).max(REST_PER_KEY * last.keys))
    }

    /// Returns whether this process has neither waiters nor holders.
    pub(crate) fn is_idle(&self) -> bool {
        [Concerns::Waiters, Concerns::Holders].iter().all(|it| !self.news.has_watches(*it))
    }

    /// Starts the next interval.
    pub(crate) fn rest(&mut self) {
        if let Some(last) = &mut self.last {
            last.ended = Instant::now();
        }
    }

    /// Handles a file that cannot be read. Polling slows down, and waiters retry on their own.
    pub(crate) fn failed(&mut self) {
        self.forget();
        self.last = Some(Last { ended: Instant::now(), keys: 0, stretch: AFTER_A_FAILURE });
    }

    /// Forgets the last poll, which may have read a different file.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.seen.clear();
    }

    /// Notifies holders that the files were deleted or replaced. The holders check whether the new
    /// files contain their leases.
    pub(crate) fn abandon(&mut self) {
        self.forget();
        self.last = None;
        self.notify_holders();
    }

    /// Reads all keys that may have changed, and notifies their watches.
    pub(crate) fn look(&mut self, store: &Store, until: Instant) -> Result<(), Error> {
        // The version is read before the file, so that the next poll notices a change that occurs
        // in between.
        let version = store.version()?;
        let is_changed = self.version.replace(version) != Some(version);
        let keys: HashSet<LockKey> = self.news.watched(Concerns::Waiters).into_iter().collect();
        self.seen.retain(|key, _| keys.contains(key));
        let keys = store.read(until, |tables, now| {
            if is_changed || self.news.has_watches(Concerns::Holders) {
                self.heed_alarms(tables)?;
            }
            let mut read = 0;
            for key in &keys {
                if is_changed || self.seen.get(key).is_none_or(|seen| seen.ends <= now.us) {
                    self.look_at_key(key, tables, now)?;
                    read += 1;
                }
            }
            Ok(read)
        })?;
        self.last = Some(Last { ended: Instant::now(), keys, stretch: 1.0 + fastrand::f64() });
        Ok(())
    }

    /// Reads the `keys` that claims wait for.
    pub(crate) fn look_at(
        &mut self,
        keys: &[LockKey],
        store: &Store,
        until: Instant,
    ) -> Result<(), Error> {
        let is_watched = |key: &&LockKey| self.news.is_watched(key, Concerns::Waiters);
        let keys: Vec<&LockKey> = keys.iter().filter(is_watched).collect();
        if keys.is_empty() {
            return Ok(());
        }
        store.read(until, |tables, now| {
            keys.iter().try_for_each(|key| self.look_at_key(key, tables, now))
        })
    }

    /// Notifies holders to check their leases if an operator has changed something.
    fn heed_alarms(&mut self, tables: &Tables<'_>) -> Result<(), Stop> {
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

    /// Notifies the claims that can be granted. Notifies all watches of the key if its holders have
    /// changed.
    fn look_at_key(&mut self, key: &LockKey, tables: &Tables<'_>, now: Now) -> Result<(), Stop> {
        let entry = tables.look(key.as_str(), now.us)?;
        entry.called().for_each(|row| self.news.call(&row.tag));
        let holders = hash(&entry, key, tables, now)?;
        let seen = Seen { holders, ends: entry.first_end().unwrap_or(i64::MAX) };
        let before = self.seen.insert(key.clone(), seen);
        if before.is_none_or(|before| before.holders != holders) {
            self.news.notify(key.as_str(), Concerns::Waiters);
        }
        Ok(())
    }
}

/// Returns a hash of the holders of a key and of the first holder's published value.
fn hash(entry: &Entry, key: &LockKey, tables: &Tables<'_>, now: Now) -> Result<u64, Stop> {
    let mut hasher = DefaultHasher::new();
    for row in entry.holders() {
        (row.tag, row.units).hash(&mut hasher);
    }
    if entry.is_held() {
        for holder in tables.holders(&Key::of(key), now.us, 1)? {
            holder.description.hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}
