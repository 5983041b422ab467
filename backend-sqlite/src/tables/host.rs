//! Creates the tables, and records the machine on which the file can be used.

use rusqlite::params;

use super::{Stop, Tables, emptied};

/// The statements that create the table of keys and the view for operators.
pub(super) const CREATE_KEYS: &str = "
CREATE TABLE {key} (
  key TEXT PRIMARY KEY,
  token INTEGER NOT NULL,
  spare INTEGER NOT NULL,
  tag BLOB,
  ends INTEGER NOT NULL,
  since INTEGER,
  fingerprint TEXT,
  description TEXT,
  document TEXT
) STRICT, WITHOUT ROWID;
CREATE VIEW {locks} AS SELECT key, ends, fingerprint, description, document FROM {key} WHERE ends > 0;
";

/// The statements that create the row of the machine. Its first value is [`LAYOUT`].
const CREATE_HOST: &str = "
CREATE TABLE {host} (
  layout INTEGER NOT NULL,
  machine TEXT NOT NULL,
  boot TEXT NOT NULL,
  ceiling INTEGER NOT NULL,
  alarms INTEGER NOT NULL,
  min_token INTEGER NOT NULL
) STRICT;
INSERT INTO {host} VALUES (2, '', '', 0, 0, 0);
";

/// The number of the layout with one row per key.
pub(crate) const LAYOUT: i64 = 2;

/// The number of the layout with one row per lease, which is converted.
pub(crate) const LAYOUT_BEFORE: i64 = 1;

/// The machine on which the file can be used, as recorded in the file.
#[derive(Debug)]
pub(crate) struct HostRow {
    pub(crate) layout: i64,
    pub(crate) machine: String,
    pub(crate) boot: String,
}

/// The values that show whether holders must check their leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarms {
    /// The number of forced releases and revocation requests.
    count: i64,
    /// Whether the file lacks the last row that this process has written.
    is_older: bool,
}

impl Alarms {
    /// Returns whether no event since `before` requires holders to check their leases. Holders must
    /// check their leases after a forced release, a revocation request, or the restoration of an
    /// older file.
    pub(crate) fn is_calm_after(&self, before: &Self) -> bool {
        self.count == before.count && !self.is_older
    }
}

impl Tables {
    /// Returns whether the table with this name, without the prefix, exists.
    pub(crate) fn exists(&self, name: &str) -> rusqlite::Result<bool> {
        let name = format!("{}{name}", self.texts.layout.prefix());
        let text = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        self.first(text, params![name], |_| Ok(())).map(|found| found.is_some())
    }

    pub(crate) fn host(&self) -> Result<HostRow, Stop> {
        let host = self.first("SELECT layout, machine, boot FROM {host}", [], |row| {
            Ok(HostRow { layout: row.get(0)?, machine: row.get(1)?, boot: row.get(2)? })
        })?;
        host.ok_or_else(|| emptied("host"))
    }

    pub(crate) fn create(&self) -> rusqlite::Result<()> {
        self.execute_batch(CREATE_HOST)?;
        self.execute_batch(CREATE_KEYS)
    }

    /// Deletes all rows, raises the minimum token to at least every token that may have been granted,
    /// and records the machine.
    pub(crate) fn reset(&self, machine: &str, boot: &str) -> rusqlite::Result<()> {
        self.execute(
            "UPDATE {host} SET machine = ?1, boot = ?2, min_token = \
                 max(min_token, ceiling, coalesce((SELECT max(token) FROM {key}), 0))",
            params![machine, boot],
        )?;
        self.execute("DELETE FROM {key}", [])
    }

    /// Raises the ceiling to at least `ceiling`, and returns it.
    pub(crate) fn raise_ceiling(&self, ceiling: i64) -> Result<i64, Stop> {
        let text = "UPDATE {host} SET ceiling = max(ceiling, ?1) RETURNING ceiling";
        let ceiling = self.first(text, params![ceiling], |row| row.get(0))?;
        ceiling.ok_or_else(|| emptied("host"))
    }

    /// Makes the holders in all processes check their leases.
    pub(super) fn alarm(&self) -> rusqlite::Result<()> {
        self.execute("UPDATE {host} SET alarms = alarms + 1", [])
    }

    pub(crate) fn alarms(&self) -> Result<Alarms, Stop> {
        let last = self.last_written.borrow().clone();
        let (key, token) = last.as_ref().map_or(("", 0), |(key, token)| (key.as_str(), *token));
        // A row that was purged has a token up to the minimum token.
        let text = "SELECT ceiling, alarms, max(min_token, coalesce(token, 0)) < ?2 \
                    FROM {host} LEFT JOIN {key} ON key = +?1";
        let found = self.first(text, params![key, token], |row| {
            Ok((row.get(0)?, Alarms { count: row.get(1)?, is_older: row.get(2)? }))
        })?;
        let (ceiling, alarms) = found.ok_or_else(|| emptied("host"))?;
        // If an older file was restored, its ceiling applies.
        self.ceiling.set(ceiling);
        if alarms.is_older {
            // One alarm is enough.
            self.last_written.replace(None);
        }
        Ok(alarms)
    }
}
