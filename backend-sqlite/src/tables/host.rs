//! Creates the tables, and records the machine on which the file can be used.

use rusqlite::params;

use super::{Stop, Tables, emptied};

/// The statements that create the tables. [`LAYOUT`] is the number of this layout.
const CREATE: &str = "
CREATE TABLE {stripe} (stripe INTEGER PRIMARY KEY, token INTEGER NOT NULL) STRICT;
INSERT INTO {stripe} WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 255) SELECT n, 0 FROM n;
CREATE TABLE {lease} (
  key TEXT NOT NULL,
  tag TEXT NOT NULL,
  place INTEGER,
  whole INTEGER NOT NULL,
  units INTEGER NOT NULL,
  capacity INTEGER NOT NULL,
  patience INTEGER,
  ends INTEGER NOT NULL,
  asked INTEGER NOT NULL,
  token INTEGER,
  fingerprint TEXT NOT NULL,
  description TEXT,
  PRIMARY KEY (key, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX {=lease_ends} ON {lease} (ends);
CREATE TABLE {host} (
  layout INTEGER NOT NULL,
  machine TEXT NOT NULL,
  boot TEXT NOT NULL,
  ceiling INTEGER NOT NULL,
  alarms INTEGER NOT NULL
) STRICT;
INSERT INTO {host} VALUES (1, '', '', 0, 0);
";

/// The number of the layout that [`CREATE`] creates.
pub(crate) const LAYOUT: i64 = 1;

/// The machine on which the file can be used, as recorded in the file.
#[derive(Debug)]
pub(crate) struct HostRow {
    pub(crate) layout: i64,
    pub(crate) machine: String,
    pub(crate) boot: String,
}

/// Two counters, at least one of which changes whenever holders must check their leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarms {
    /// The number of forced releases and revocation requests.
    count: i64,
    /// The largest token of all keys.
    token: i64,
}

impl Alarms {
    /// Returns whether no event since `before` requires holders to check their leases. Holders must
    /// check their leases after a forced release, a revocation request, or the restoration of an
    /// older file.
    pub(crate) fn is_calm_after(&self, before: &Self) -> bool {
        self.count == before.count && self.token >= before.token
    }
}

impl Tables<'_> {
    pub(crate) fn exist(&self) -> rusqlite::Result<bool> {
        let name = format!("{}stripe", self.layout.prefix());
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
        self.connection.execute_batch(&self.layout.fill(CREATE, '"'))
    }

    /// Deletes all leases and queue entries, raises all tokens above every token that may have been
    /// granted, and records the machine.
    pub(crate) fn settle(&self, machine: &str, boot: &str) -> rusqlite::Result<()> {
        self.execute("DELETE FROM {lease}", [])?;
        self.execute("UPDATE {stripe} SET token = max(token, (SELECT ceiling FROM {host}))", [])?;
        self.execute("UPDATE {host} SET machine = ?1, boot = ?2", params![machine, boot])?;
        Ok(())
    }

    pub(crate) fn raise_ceiling(&self, ceiling: i64) -> rusqlite::Result<()> {
        self.execute("UPDATE {host} SET ceiling = max(ceiling, ?1)", params![ceiling])
    }

    /// Returns the ceiling. All granted tokens are below the ceiling, including tokens that a power
    /// failure has removed from the tables.
    pub(crate) fn ceiling(&self) -> Result<i64, Stop> {
        let ceiling = self.first("SELECT ceiling FROM {host}", [], |row| row.get(0))?;
        ceiling.ok_or_else(|| emptied("host"))
    }

    /// Makes the holders in all processes check their leases.
    pub(crate) fn alarm(&self) -> rusqlite::Result<()> {
        self.execute("UPDATE {host} SET alarms = alarms + 1", [])
    }

    pub(crate) fn alarms(&self) -> Result<Alarms, Stop> {
        let text = "SELECT alarms, (SELECT max(token) FROM {stripe}) FROM {host}";
        let alarms = self.first(text, [], |row| {
            Ok(Alarms {
                count: row.get(0)?,
                token: row.get::<_, Option<_>>(1)?.unwrap_or_default(),
            })
        })?;
        alarms.ok_or_else(|| emptied("host"))
    }
}
