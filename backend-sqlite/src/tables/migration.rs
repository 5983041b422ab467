//! Converts a file in which each lease and each queue entry has a row.
//!
//! One transaction replaces the tables. Processes of the earlier version then find a table missing
//! and refuse the file, so the two versions never grant the same lock.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::backend::Mode;
use leasehold_core::backend::entry::{Entry, Holding, QueueEntry};
use leasehold_core::{Description, LockKey};
use leasehold_entry::Tag;
use leasehold_sql_support::Failure;
use leasehold_sql_support::rows::{Clock, State};
use rusqlite::{Row, params};

use super::host::{CREATE_KEYS, LAYOUT};
use super::{Stop, Tables};

/// The value of `asked` if revocation was requested for one lease only.
const ASKED_ALONE: i64 = i64::MAX;

/// A lease or a queue entry.
struct Lease {
    key: String,
    tag: String,
    fingerprint: String,
    is_queued: bool,
    mode: Mode,
    patience: Option<u64>,
    ends: i64,
    asked: i64,
    token: Option<u64>,
    description: Option<String>,
}

impl Tables {
    /// Replaces the tables of the earlier version. Leases and queue entries in force remain, unless the
    /// machine has restarted.
    pub(crate) fn migrate(&self, clock: Clock, is_of_this_run: bool) -> Result<(), Stop> {
        let text = "SELECT coalesce(max(token), 0) FROM {stripe}";
        let min_token: i64 = self.first(text, [], |row| row.get(0))?.unwrap_or_default();
        let mut entries: BTreeMap<String, Entry<Tag, i64>> = BTreeMap::new();
        let leases = if is_of_this_run { self.leases(clock.now)? } else { Vec::new() };
        for lease in leases {
            let key = lease.key.clone();
            lease
                .add_to(entries.entry(key).or_default())
                .ok_or_else(|| Stop::Failed(Failure::Layout.error(Failure::Layout.message())))?;
        }
        self.execute_batch(
            "DROP TABLE {stripe}; DROP TABLE {lease}; \
             ALTER TABLE {host} ADD COLUMN min_token INTEGER NOT NULL DEFAULT 0;",
        )?;
        self.execute_batch(CREATE_KEYS)?;
        self.execute("UPDATE {host} SET layout = ?1, min_token = ?2", params![LAYOUT, min_token])?;
        for (key, entry) in entries {
            // The key may not be valid, because a different program may have written the row.
            let Ok(key) = LockKey::from_encoded(&key) else { continue };
            let mut state = State::new(key, None, min_token, clock);
            *state.entry()? = entry;
            if let Some(row) = state.written() {
                self.put(state.key(), &row)?;
            }
        }
        Ok(())
    }

    fn leases(&self, now: i64) -> rusqlite::Result<Vec<Lease>> {
        let mut statement = self.prepare(
            "SELECT key, tag, fingerprint, place, whole, units, capacity, patience, ends, asked, \
                 token, description \
             FROM {lease} WHERE ends > ?1 ORDER BY key, place",
        )?;
        statement.query_map(params![now], Lease::read)?.collect()
    }
}

impl Lease {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mode = match row.get(4)? {
            true => Mode::Exclusive,
            false => Mode::Units { units: row.get(5)?, limit: row.get(6)? },
        };
        Ok(Self {
            key: row.get(0)?,
            tag: row.get(1)?,
            fingerprint: row.get(2)?,
            is_queued: row.get::<_, Option<i64>>(3)?.is_some(),
            mode,
            patience: row.get::<_, Option<i64>>(7)?.and_then(|micros| micros.try_into().ok()),
            ends: row.get(8)?,
            asked: row.get(9)?,
            token: row.get::<_, Option<i64>>(10)?.and_then(|token| token.try_into().ok()),
            description: row.get(11)?,
        })
    }

    /// Returns `None` if a value is not valid.
    fn add_to(self, entry: &mut Entry<Tag, i64>) -> Option<()> {
        let name = Tag { id: self.tag.parse().ok()?, fingerprint: self.fingerprint.parse().ok()? };
        let description = self.description.and_then(|text| Description::new(text).ok());
        let Self { mode, ends, .. } = self;
        if self.is_queued {
            let reservation = self.patience.map(Duration::from_micros);
            entry.queue.push(QueueEntry { name, mode, description, ends, reservation });
            return Some(());
        }
        let is_asked = self.asked == ASKED_ALONE;
        if self.asked > 0 && !is_asked {
            entry.asked_until = entry.asked_until.max(Some(self.asked));
        }
        let token = self.token?;
        let granted_at = None;
        entry.holders.push(Holding { name, mode, description, token, granted_at, ends, is_asked });
        Some(())
    }
}
