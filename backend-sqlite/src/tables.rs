//! The SQL statements, which run within a transaction.

mod host;
mod member;

pub(crate) use self::host::{Alarms, HostRow, LAYOUT};

use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::Fingerprint;
use leasehold_sql_support::reply::{HolderRow, Inspected, ShownRow, remaining};
use leasehold_sql_support::request::{Acquire, Key, List, Named, Renew, micros};
use leasehold_sql_support::{Failure, Layout};
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, ToSql, params};
use uuid::Uuid;

use crate::entry::{Entry, Row};
use crate::host::Now;

/// The number of expired rows that are deleted for each written row. With a number larger than one,
/// expired rows cannot accumulate.
const CLEARED: u32 = 2;

/// Why a transaction ends without effect.
#[derive(Debug)]
pub(crate) enum Stop {
    /// An error of SQLite.
    Sql(rusqlite::Error),
    /// An error of the store itself.
    Failed(Error),
    /// A retry may succeed soon. The error is returned if all attempts fail.
    Busy(Error),
    /// The token must not be granted until the [ceiling](Tables::ceiling) is above the token.
    Ceiling(i64),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// The tables of a connection with an open transaction.
#[derive(Clone, Debug)]
pub(crate) struct Tables<'a> {
    connection: &'a Connection,
    layout: &'a Layout,
}

/// A tag, as stored in the table.
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

impl<'a> Tables<'a> {
    pub(crate) fn new(connection: &'a Connection, layout: &'a Layout) -> Self {
        Self { connection, layout }
    }

    /// Returns the last token of a lock-table partition.
    pub(crate) fn token(&self, stripe: u8) -> Result<i64, Stop> {
        let token =
            self.first("SELECT token FROM {stripe} WHERE stripe = ?1", params![stripe], |row| {
                row.get(0)
            })?;
        token.ok_or_else(|| emptied("stripe"))
    }

    pub(crate) fn set_token(&self, stripe: u8, token: i64) -> rusqlite::Result<()> {
        self.execute("UPDATE {stripe} SET token = ?2 WHERE stripe = ?1", params![stripe, token])
    }

    /// Deletes the expired leases and queue entries of a key, and returns the remaining rows.
    pub(crate) fn expire(&self, key: &Key, now: i64) -> rusqlite::Result<Entry> {
        self.execute(
            "DELETE FROM {lease} WHERE key = ?1 AND ends <= ?2",
            params![key.name(), now],
        )?;
        self.look(key.name(), now)
    }

    /// Returns the leases and queue entries of a key that have not expired.
    pub(crate) fn look(&self, key: &str, now: i64) -> rusqlite::Result<Entry> {
        let mut statement = self.prepare(
            "SELECT tag, place, whole, units, capacity, patience, ends, asked FROM {lease} \
             WHERE key = ?1 AND ends > ?2",
        )?;
        let rows = statement.query_map(params![key, now], |row| {
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

    /// Deletes some expired rows of any key.
    pub(crate) fn clear(&self, now: i64) -> rusqlite::Result<()> {
        self.execute(
            "DELETE FROM {lease} WHERE (key, tag) IN \
                 (SELECT key, tag FROM {lease} WHERE ends <= ?1 ORDER BY ends LIMIT ?2)",
            params![now, CLEARED],
        )
    }

    /// Writes the row of a claim. Replaces the claim's earlier row, if there is one.
    pub(crate) fn put(
        &self,
        claim: &Acquire,
        row: &Row,
        token: Option<i64>,
    ) -> rusqlite::Result<()> {
        self.execute(
            "INSERT OR REPLACE INTO {lease} \
                 (key, tag, place, whole, units, capacity, patience, ends, asked, token, fingerprint, description) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
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
        )
    }

    pub(crate) fn set_ends(&self, key: &Key, tag: &Uuid, ends: i64) -> rusqlite::Result<()> {
        self.execute(
            "UPDATE {lease} SET ends = ?3 WHERE key = ?1 AND tag = ?2",
            params![key.name(), Tag(*tag), ends],
        )
    }

    pub(crate) fn holder(&self, key: &Key, tag: &Uuid, now: i64) -> rusqlite::Result<HolderRow> {
        let mut statement = self.prepare(
            "SELECT fingerprint, description, units, ends FROM {lease} WHERE key = ?1 AND tag = ?2",
        )?;
        statement.query_row(params![key.name(), Tag(*tag)], |row| holder_row(row, now))
    }

    /// Returns at most the given number of holders, sorted by the expiry of their leases.
    pub(crate) fn holders(
        &self,
        key: &Key,
        now: i64,
        limit: usize,
    ) -> rusqlite::Result<Vec<HolderRow>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.prepare(
            "SELECT fingerprint, description, units, ends FROM {lease} \
                 WHERE key = ?1 AND place IS NULL AND ends > ?2 ORDER BY ends LIMIT ?3",
        )?;
        let rows =
            statement.query_map(params![key.name(), now, limit], |row| holder_row(row, now))?;
        rows.collect()
    }

    /// Returns the rows of a key that have not expired, either leases or queue entries in order.
    fn shown(
        &self,
        key: &Key,
        now: i64,
        of_which: &str,
        order: &str,
    ) -> rusqlite::Result<Vec<ShownRow>> {
        let limit = i64::try_from(Inspected::LISTED).unwrap_or(i64::MAX);
        let mut statement = self.prepare(&format!(
            "SELECT fingerprint, description, units, ends, whole, capacity, token FROM {{lease}} \
                 WHERE key = ?1 AND {of_which} AND ends > ?2 ORDER BY {order} LIMIT ?3",
        ))?;
        let rows = statement.query_map(params![key.name(), now, limit], |row| {
            let token: Option<i64> = row.get(6)?;
            Ok(ShownRow {
                holder: holder_row(row, now)?,
                whole: row.get(4)?,
                capacity: row.get(5)?,
                token: token.and_then(|token| token.try_into().ok()),
            })
        })?;
        rows.collect()
    }

    pub(crate) fn inspect(&self, key: &Key, now: Now) -> Result<Inspected, Stop> {
        let (token, entry) = (self.token(key.stripe)?, self.look(key.name(), now.us)?);
        Ok(Inspected {
            holders: self.shown(key, now.us, "place IS NULL", "ends")?,
            queue: self.shown(key, now.us, "place IS NOT NULL", "place")?,
            waiting: entry.waiting(),
            clock: u64::try_from(now.wall_us).unwrap_or_default(),
            units: entry.units(),
            last_token: u64::try_from(token).ok().filter(|token| *token > 0),
        })
    }

    pub(crate) fn list(&self, list: &List, now: i64) -> rusqlite::Result<Vec<String>> {
        let mut statement = self.prepare(
            "SELECT DISTINCT key FROM {lease} \
                 WHERE key >= ?1 AND key > ?2 AND key < ?3 AND ends > ?4 ORDER BY key LIMIT ?5",
        )?;
        let limit = i64::try_from(List::KEYS).unwrap_or(i64::MAX);
        let params = params![list.from, list.after, list.to, now, limit];
        statement.query_map(params, |row| row.get(0))?.collect()
    }

    /// Raises the token of a lock-table partition to `floor`, if the token is lower.
    pub(crate) fn raise(&self, stripe: u8, floor: i64) -> rusqlite::Result<()> {
        self.execute(
            "UPDATE {stripe} SET token = ?2 WHERE stripe = ?1 AND token < ?2",
            params![stripe, floor],
        )
    }

    /// Renews a lease. Returns the time until which a revocation request for the lease applies, or
    /// `None` if the lease is not in force.
    pub(crate) fn renew(&self, renewal: &Renew, now: i64) -> rusqlite::Result<Option<i64>> {
        let Renew { lease: Named { key, tag }, units, description, ttl, .. } = renewal;
        let ends = after(now, *ttl);
        self.first(
            "UPDATE {lease} SET ends = ?3, units = min(units, ?4), description = ?5 \
             WHERE key = ?1 AND tag = ?2 AND place IS NULL AND ends > ?6 RETURNING asked",
            params![key.name(), Tag(*tag), ends, units, description, now],
            |row| row.get(0),
        )
    }

    /// Returns whether a different lease is in force in the same mode.
    pub(crate) fn is_held_like(&self, renewal: &Renew, now: i64) -> rusqlite::Result<bool> {
        let params = params![renewal.lease.key.name(), now, renewal.whole];
        let text = "SELECT 1 FROM {lease} \
                    WHERE key = ?1 AND place IS NULL AND ends > ?2 AND whole = ?3 LIMIT 1";
        self.first(text, params, |_| Ok(())).map(|found| found.is_some())
    }

    /// Deletes the row of a lease. Returns whether the lease was in force.
    pub(crate) fn delete(&self, lease: &Named, now: i64) -> rusqlite::Result<bool> {
        let was_held = self.first(
            "DELETE FROM {lease} WHERE key = ?1 AND tag = ?2 RETURNING place IS NULL AND ends > ?3",
            params![lease.key.name(), Tag(lease.tag), now],
            |row| row.get(0),
        );
        Ok(was_held?.unwrap_or(false))
    }

    /// Revokes the lease with the fingerprint `only`, or all leases. Returns the former holders,
    /// sorted by expiry.
    pub(crate) fn end_holders(
        &self,
        key: &Key,
        only: Option<Fingerprint>,
        now: i64,
    ) -> rusqlite::Result<Vec<HolderRow>> {
        let mut statement = self.prepare(
            "DELETE FROM {lease} WHERE key = ?1 AND place IS NULL \
             AND (?2 IS NULL OR fingerprint = ?2) RETURNING fingerprint, description, units, ends",
        )?;
        let params = params![key.name(), only.map(|lease| lease.to_string())];
        let ended = statement.query_map(params, |row| holder_row(row, now))?;
        let mut ended = ended.collect::<rusqlite::Result<Vec<_>>>()?;
        ended.sort_by_key(|holder| holder.remaining);
        Ok(ended)
    }

    /// Requests the revocation of the lease with the fingerprint `only`, or of all leases. Returns
    /// whether there was a holder.
    pub(crate) fn ask(
        &self,
        key: &Key,
        until: i64,
        only: Option<Fingerprint>,
    ) -> rusqlite::Result<bool> {
        let mut statement = self.prepare(
            "UPDATE {lease} SET asked = CASE asked WHEN ?4 THEN asked ELSE ?2 END \
             WHERE key = ?1 AND place IS NULL AND (?3 IS NULL OR fingerprint = ?3)",
        )?;
        let only = only.map(|lease| lease.to_string());
        let asked = statement.execute(params![key.name(), until, only, Row::ASKED_ALONE])?;
        Ok(asked > 0)
    }

    fn prepare(&self, text: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(&self.layout.fill(text, '"'))
    }

    fn execute(&self, text: &str, params: impl Params) -> rusqlite::Result<()> {
        self.prepare(text)?.execute(params).map(drop)
    }

    fn first<T>(
        &self,
        text: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.prepare(text)?.query_row(params, read).optional()
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

/// Returns the time `span` after `now`.
pub(crate) fn after(now: i64, span: Duration) -> i64 {
    now.saturating_add(micros(span))
}

/// Returns the error for a missing row. Without the row, the earlier tokens or the machine are
/// unknown, so nothing may be granted.
fn emptied(table: &str) -> Stop {
    let message =
        format!("a row is missing from the table {table}; restore the file, or delete it");
    Stop::Failed(Failure::Layout.error(message))
}
