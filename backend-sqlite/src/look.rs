//! Looks at the file on behalf of the watches: at changes of other processes, and at leases that have ended.

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

/// How far looks are apart while a claim waits: this, and up to as much again, so that processes do not look in step.
const WHILE_WAITING: Duration = Duration::from_millis(5);

/// How far looks are apart while no claim waits: an operator asks holders to finish, or robs them.
const WHILE_HOLDING: Duration = Duration::from_millis(100);

/// The interval at which an idle process checks whether the files are in place. As long as it has deleted files open, no other process can
/// create new ones.
const WHILE_IDLE: Duration = Duration::from_secs(1);

/// How many times further apart looks are while the file is not to be had.
const AFTER_A_FAILURE: f64 = 20.0;

/// For how long there is no look after one, for each key that was read: four times as long as to read it. Counted and not
/// measured, since a look may also take long because other processes have the processor.
const REST_PER_KEY: Duration = Duration::from_micros(40);

/// Looks, and remembers how it has found the keys.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    news: News,
    last: Option<Last>,
    version: Option<i64>,
    alarms: Option<Alarms>,
    /// The keys that claims wait for, as they were seen.
    seen: HashMap<LockKey, Seen>,
}

/// The last look.
#[derive(Debug)]
struct Last {
    ended: Instant,
    /// How many keys it read.
    keys: u32,
    /// By how much the next one is put off.
    stretch: f64,
}

/// How a key was found.
#[derive(Debug)]
struct Seen {
    /// A hash of its holders.
    holders: u64,
    /// When something of it ends by itself, in the file's time.
    ends: i64,
}

impl Looker {
    pub(crate) fn new(news: News) -> Self {
        Self { news, ..Self::default() }
    }

    /// When to look next; `None` without a watch and without an open file.
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

    /// Whether this process has neither waiters nor holders.
    pub(crate) fn is_idle(&self) -> bool {
        [Concerns::Waiters, Concerns::Holders].iter().all(|it| !self.news.has_watches(*it))
    }

    /// Waits for the next interval.
    pub(crate) fn rest(&mut self) {
        if let Some(last) = &mut self.last {
            last.ended = Instant::now();
        }
    }

    /// The file is not to be had for a look: waiters ask by themselves, now and then.
    pub(crate) fn failed(&mut self) {
        self.forget();
        self.last = Some(Last { ended: Instant::now(), keys: 0, stretch: AFTER_A_FAILURE });
    }

    /// The last look may have been at another file.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.seen.clear();
    }

    /// Notifies holders that the files were deleted or replaced, so that they check whether the next files contain their leases.
    pub(crate) fn abandon(&mut self) {
        self.forget();
        self.last = None;
        self.notify_holders();
    }

    /// Looks at all keys that may have changed, and passes on the changes.
    pub(crate) fn look(&mut self, store: &Store, until: Instant) -> Result<(), Error> {
        // Before the file is read: the next look sees a change between.
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

    /// Looks at the `keys` that claims wait for.
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

    /// Has holders check their leases, if an operator has changed something.
    fn heed_alarms(&mut self, tables: &Tables<'_>) -> Result<(), Stop> {
        let alarms = tables.alarms()?;
        // The first look comes before there is anything to hold.
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

    /// Calls the claims for which there is room, and notifies the watches of the key if it has other holders than before.
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

/// A hash of the holders of a key, and of the proclamation of the first.
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
