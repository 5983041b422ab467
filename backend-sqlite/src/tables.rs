//! The statements, within a transaction.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_sql_support::reply::{HolderRow, Inspected, remaining};
use leasehold_sql_support::request::{Acquire, Key, Named, Renew, micros};
use leasehold_sql_support::{Failure, Layout};
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, ToSql, params};
use uuid::Uuid;

use crate::entry::{Entry, Row};

/// Creates the tables, whose layout has this number.
pub(crate) const CREATE: &str = "
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

/// How many rows that have ended are cleared for each that is written: more than one, so that clearing outruns filling.
const CLEARED: u32 = 2;

/// Why a transaction stops without effect.
#[derive(Debug)]
pub(crate) enum Stop {
    /// SQLite says so.
    Sql(rusqlite::Error),
    /// We say so.
    Failed(Error),
    /// This token must not be given out before the [ceiling](Tables::ceiling) is above it.
    Ceiling(i64),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// What the file knows of its machine.
#[derive(Debug)]
pub(crate) struct HostRow {
    pub(crate) layout: i64,
    pub(crate) machine: String,
    pub(crate) boot: String,
}

/// The tables of a connection that is in a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) texts: &'a Arc<Texts>,
}

/// The statements, filled with the names of the tables.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(crate) create: String,
    stripe_name: String,
    table_exists: String,
    host: String,
    settle: String,
    settle_tokens: String,
    delete_leases: String,
    raise_ceiling: String,
    ceiling: String,
    alarm: String,
    alarms: String,
    token: String,
    set_token: String,
    expire: String,
    clear: String,
    rows: String,
    rows_in_force: String,
    put: String,
    set_ends: String,
    holder: String,
    holders: String,
    renewable: String,
    renew: String,
    other: String,
    delete: String,
    delete_holders: String,
    ask: String,
}

impl Texts {
    pub(crate) fn new(layout: &Layout) -> Self {
        let fill = |text: &str| layout.fill(text, '"');
        Self {
            create: fill(CREATE),
            stripe_name: format!("{}stripe", layout.prefix()),
            table_exists: "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1"
                .to_owned(),
            host: fill("SELECT layout, machine, boot FROM {host}"),
            settle: fill("UPDATE {host} SET machine = ?1, boot = ?2"),
            settle_tokens: fill(
                "UPDATE {stripe} SET token = max(token, (SELECT ceiling FROM {host}))",
            ),
            delete_leases: fill("DELETE FROM {lease}"),
            raise_ceiling: fill("UPDATE {host} SET ceiling = max(ceiling, ?1)"),
            ceiling: fill("SELECT ceiling FROM {host}"),
            alarm: fill("UPDATE {host} SET alarms = alarms + 1"),
            alarms: fill("SELECT alarms FROM {host}"),
            token: fill("SELECT token FROM {stripe} WHERE stripe = ?1"),
            set_token: fill("UPDATE {stripe} SET token = ?2 WHERE stripe = ?1"),
            expire: fill("DELETE FROM {lease} WHERE key = ?1 AND ends <= ?2"),
            clear: fill(
                "DELETE FROM {lease} WHERE (key, tag) IN \
                 (SELECT key, tag FROM {lease} WHERE ends <= ?1 ORDER BY ends LIMIT ?2)",
            ),
            rows: fill(
                "SELECT tag, place, whole, units, capacity, patience, ends, asked FROM {lease} WHERE key = ?1",
            ),
            rows_in_force: fill(
                "SELECT tag, place, whole, units, capacity, patience, ends, asked FROM {lease} WHERE key = ?1 AND ends > ?2",
            ),
            put: fill(
                "INSERT OR REPLACE INTO {lease} \
                 (key, tag, place, whole, units, capacity, patience, ends, asked, token, fingerprint, description) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            ),
            set_ends: fill("UPDATE {lease} SET ends = ?3 WHERE key = ?1 AND tag = ?2"),
            holder: fill(
                "SELECT fingerprint, description, units, ends FROM {lease} WHERE key = ?1 AND tag = ?2",
            ),
            holders: fill(
                "SELECT fingerprint, description, units, ends FROM {lease} \
                 WHERE key = ?1 AND place IS NULL AND ends > ?2 ORDER BY ends LIMIT ?3",
            ),
            renewable: fill(
                "SELECT units, asked FROM {lease} WHERE key = ?1 AND tag = ?2 AND place IS NULL AND ends > ?3",
            ),
            renew: fill(
                "UPDATE {lease} SET ends = ?3, units = min(units, ?4), description = ?5 WHERE key = ?1 AND tag = ?2",
            ),
            other: fill(
                "SELECT 1 FROM {lease} WHERE key = ?1 AND place IS NULL AND ends > ?2 AND whole = ?3 LIMIT 1",
            ),
            delete: fill("DELETE FROM {lease} WHERE key = ?1 AND tag = ?2 RETURNING place IS NULL"),
            delete_holders: fill("DELETE FROM {lease} WHERE key = ?1 AND place IS NULL"),
            ask: fill("UPDATE {lease} SET asked = ?2 WHERE key = ?1 AND place IS NULL"),
        }
    }
}

/// A tag as the table has it.
struct Tag(Uuid);

impl ToSql for Tag {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl FromSql for Tag {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let tag = value.as_str()?.parse();
        tag.map(Self).map_err(|error| rusqlite::types::FromSqlError::Other(Box::new(error)))
    }
}

impl Tables<'_> {
    pub(crate) fn exist(&self) -> rusqlite::Result<bool> {
        self.first(&self.texts.table_exists, params![self.texts.stripe_name], |_| Ok(()))
            .map(|found| found.is_some())
    }

    pub(crate) fn host(&self) -> Result<HostRow, Stop> {
        let host = self.first(&self.texts.host, [], |row| {
            Ok(HostRow { layout: row.get(0)?, machine: row.get(1)?, boot: row.get(2)? })
        })?;
        host.ok_or_else(|| emptied("host"))
    }

    /// Ends all leases and gives up all places, moves all tokens to what may have been given out, and notes the machine.
    pub(crate) fn settle(&self, machine: &str, boot: &str) -> rusqlite::Result<()> {
        self.execute(&self.texts.delete_leases, [])?;
        self.execute(&self.texts.settle_tokens, [])?;
        self.execute(&self.texts.settle, params![machine, boot])?;
        Ok(())
    }

    pub(crate) fn raise_ceiling(&self, ceiling: i64) -> rusqlite::Result<()> {
        self.execute(&self.texts.raise_ceiling, params![ceiling]).map(drop)
    }

    /// All tokens that were given out are below it, also those that a loss of power takes from the stripes.
    pub(crate) fn ceiling(&self) -> Result<i64, Stop> {
        let ceiling = self.first(&self.texts.ceiling, [], |row| row.get(0))?;
        ceiling.ok_or_else(|| emptied("host"))
    }

    /// Has the holders of this and other processes look at their keys.
    pub(crate) fn alarm(&self) -> rusqlite::Result<()> {
        self.execute(&self.texts.alarm, []).map(drop)
    }

    pub(crate) fn alarms(&self) -> Result<i64, Stop> {
        self.first(&self.texts.alarms, [], |row| row.get(0))?.ok_or_else(|| emptied("host"))
    }

    /// The last token of a stripe.
    pub(crate) fn token(&self, stripe: u8) -> Result<i64, Stop> {
        let token = self.first(&self.texts.token, params![stripe], |row| row.get(0))?;
        token.ok_or_else(|| emptied("stripe"))
    }

    pub(crate) fn set_token(&self, stripe: u8, token: i64) -> rusqlite::Result<()> {
        self.execute(&self.texts.set_token, params![stripe, token]).map(drop)
    }

    /// What is in force of a key, once all that has ended is deleted.
    pub(crate) fn expire(&self, key: &Key, now: i64) -> rusqlite::Result<Entry> {
        self.execute(&self.texts.expire, params![key.name(), now])?;
        self.rows(&self.texts.rows, params![key.name()])
    }

    /// What is in force of a key.
    pub(crate) fn look(&self, key: &str, now: i64) -> rusqlite::Result<Entry> {
        self.rows(&self.texts.rows_in_force, params![key, now])
    }

    fn rows(&self, text: &str, params: impl Params) -> rusqlite::Result<Entry> {
        let mut statement = self.connection.prepare_cached(text)?;
        let rows = statement.query_map(params, |row| {
            Ok(Row {
                tag: row.get::<_, Tag>(0)?.0,
                place: row.get(1)?,
                whole: row.get(2)?,
                units: row.get(3)?,
                capacity: row.get(4)?,
                patience: row.get(5)?,
                ends: row.get(6)?,
                asked: row.get(7)?,
            })
        })?;
        Ok(Entry::new(rows.collect::<Result<_, _>>()?))
    }

    /// Clears some rows of any key that have ended.
    pub(crate) fn clear(&self, now: i64) -> rusqlite::Result<()> {
        self.execute(&self.texts.clear, params![now, CLEARED]).map(drop)
    }

    /// Writes the row of a claim, in place of the one it has.
    pub(crate) fn put(
        &self,
        claim: &Acquire,
        row: &Row,
        token: Option<i64>,
    ) -> rusqlite::Result<()> {
        let written = self.execute(
            &self.texts.put,
            params![
                claim.lease.key.name(),
                Tag(row.tag),
                row.place,
                row.whole,
                row.units,
                row.capacity,
                row.patience,
                row.ends,
                row.asked,
                token,
                claim.fingerprint,
                claim.description,
            ],
        );
        written.map(drop)
    }

    pub(crate) fn set_ends(&self, key: &Key, tag: &Uuid, ends: i64) -> rusqlite::Result<()> {
        self.execute(&self.texts.set_ends, params![key.name(), Tag(*tag), ends]).map(drop)
    }

    pub(crate) fn holder(&self, key: &Key, tag: &Uuid, now: i64) -> rusqlite::Result<HolderRow> {
        let mut statement = self.connection.prepare_cached(&self.texts.holder)?;
        statement.query_row(params![key.name(), Tag(*tag)], |row| holder_row(row, now))
    }

    /// The holders whose leases end first, so many of them.
    pub(crate) fn holders(
        &self,
        key: &Key,
        now: i64,
        limit: usize,
    ) -> rusqlite::Result<Vec<HolderRow>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(&self.texts.holders)?;
        let rows =
            statement.query_map(params![key.name(), now, limit], |row| holder_row(row, now))?;
        rows.collect()
    }

    pub(crate) fn inspect(&self, key: &Key, now: i64) -> Result<Inspected, Stop> {
        let token = self.token(key.stripe)?;
        Ok(Inspected {
            holders: self.holders(key, now, Inspected::LISTED)?,
            units: self.look(key.name(), now)?.units(),
            last_token: u64::try_from(token).ok().filter(|token| *token > 0),
        })
    }

    /// The units of a lease in force, and until when its holder is asked to finish.
    pub(crate) fn renewable(
        &self,
        lease: &Named,
        now: i64,
    ) -> rusqlite::Result<Option<(u32, i64)>> {
        let params = params![lease.key.name(), Tag(lease.tag), now];
        self.first(&self.texts.renewable, params, |row| Ok((row.get(0)?, row.get(1)?)))
    }

    pub(crate) fn renew(&self, renewal: &Renew, now: i64) -> rusqlite::Result<()> {
        let Named { key, tag } = &renewal.lease;
        let ends = after(now, renewal.ttl);
        let params = params![key.name(), Tag(*tag), ends, renewal.units, renewal.description];
        self.execute(&self.texts.renew, params).map(drop)
    }

    /// Whether another lease of this kind is in force.
    pub(crate) fn is_held_like(&self, renewal: &Renew, now: i64) -> rusqlite::Result<bool> {
        let params = params![renewal.lease.key.name(), now, renewal.whole];
        self.first(&self.texts.other, params, |_| Ok(())).map(|found| found.is_some())
    }

    /// Deletes the row of a lease, and tells whether the lease was in force; `None` if there is no row.
    pub(crate) fn delete(&self, lease: &Named) -> rusqlite::Result<Option<bool>> {
        self.first(&self.texts.delete, params![lease.key.name(), Tag(lease.tag)], |row| row.get(0))
    }

    pub(crate) fn delete_holders(&self, key: &Key) -> rusqlite::Result<()> {
        self.execute(&self.texts.delete_holders, params![key.name()]).map(drop)
    }

    pub(crate) fn ask(&self, key: &Key, until: i64) -> rusqlite::Result<()> {
        self.execute(&self.texts.ask, params![key.name(), until]).map(drop)
    }

    fn execute(&self, text: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(text)?.execute(params)
    }

    fn first<T>(
        &self,
        text: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.connection.prepare_cached(text)?.query_row(params, read).optional()
    }
}

fn holder_row(row: &rusqlite::Row<'_>, now: i64) -> rusqlite::Result<HolderRow> {
    Ok(HolderRow {
        fingerprint: row.get(0)?,
        description: row.get(1)?,
        units: row.get(2)?,
        remaining: remaining(row.get(3)?, now),
    })
}

/// The time that lies `span` after `now`.
pub(crate) fn after(now: i64, span: Duration) -> i64 {
    now.saturating_add(micros(span))
}

/// Without its row nothing is known of earlier tokens, or of the machine: that is no reason to grant anything.
fn emptied(table: &str) -> Stop {
    let message = format!("a row of the table {table} is missing: restore the file, or delete it");
    Stop::Failed(Failure::Layout.error(message))
}
