//! The tables as a whole, and the row that says which machine they belong to.

use rusqlite::params;

use super::{Stop, Tables, emptied};

/// Creates the tables, whose layout has this number.
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

/// The layout that [`CREATE`] makes.
pub(crate) const LAYOUT: i64 = 1;

/// The machine of the file.
#[derive(Debug)]
pub(crate) struct HostRow {
    pub(crate) layout: i64,
    pub(crate) machine: String,
    pub(crate) boot: String,
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

    /// Ends all leases and gives up all places, moves all tokens past those that it may have given out, and notes the machine.
    pub(crate) fn settle(&self, machine: &str, boot: &str) -> rusqlite::Result<()> {
        self.execute("DELETE FROM {lease}", [])?;
        self.execute("UPDATE {stripe} SET token = max(token, (SELECT ceiling FROM {host}))", [])?;
        self.execute("UPDATE {host} SET machine = ?1, boot = ?2", params![machine, boot])?;
        Ok(())
    }

    pub(crate) fn raise_ceiling(&self, ceiling: i64) -> rusqlite::Result<()> {
        self.execute("UPDATE {host} SET ceiling = max(ceiling, ?1)", params![ceiling])
    }

    /// All tokens that were given out are below it, also those that a loss of power takes from the stripes.
    pub(crate) fn ceiling(&self) -> Result<i64, Stop> {
        let ceiling = self.first("SELECT ceiling FROM {host}", [], |row| row.get(0))?;
        ceiling.ok_or_else(|| emptied("host"))
    }

    /// Has the holders of this and other processes look at their keys.
    pub(crate) fn alarm(&self) -> rusqlite::Result<()> {
        self.execute("UPDATE {host} SET alarms = alarms + 1", [])
    }

    pub(crate) fn alarms(&self) -> Result<i64, Stop> {
        self.first("SELECT alarms FROM {host}", [], |row| row.get(0))?
            .ok_or_else(|| emptied("host"))
    }
}
