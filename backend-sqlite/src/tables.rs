//! Runs the SQL statements.

mod host;
mod member;
mod migration;

pub(crate) use self::host::{Alarms, HostRow, LAYOUT, LAYOUT_BEFORE};

use std::cell::{Cell, RefCell};
use std::time::Duration;

use leasehold_core::backend::entry::StoreTime as _;
use leasehold_core::{Error, LockKey};
use leasehold_sql_support::request::{List, micros, token_at};
use leasehold_sql_support::rows::{Acquire, Change, Clock, Granted, Named, Renew, Row, State};
use leasehold_sql_support::{Failure, Layout};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, params};
use uuid::Uuid;

use crate::error::{During, is_busy, sqlite};
use crate::wake::Wakes;

/// The number of rows that a purge examines, which is twice the number of rows that are written
/// between two purges.
const PURGED: u32 = 2_000;

/// The age of a row's last token at which a purge may delete the row. Keys in use keep their rows.
const PURGE_AGE: Duration = Duration::from_secs(60);

/// Why a transaction failed. The file is unchanged, unless the error has the kind
/// [`ErrorKind::Indeterminate`](leasehold_core::ErrorKind::Indeterminate).
#[derive(Debug)]
pub(crate) enum Stop {
    /// An error of SQLite.
    Sql(rusqlite::Error),
    /// An error of the store itself.
    Failed(Error),
    /// A retry may succeed soon. The error is returned if all attempts fail.
    Busy(Error),
    /// The files were deleted or replaced.
    Moved,
    /// The token must not be granted until the ceiling is above the token.
    Ceiling(i64),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The tables of a connection.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) connection: Connection,
    texts: Texts,
    /// The last known value of the ceiling in the file. All granted tokens are below the ceiling,
    /// including tokens that a power failure has removed from the tables.
    pub(crate) ceiling: Cell<i64>,
    /// The number of rows that this process has written since the last upkeep.
    pub(crate) written: Cell<usize>,
    /// The last row that this process has written, and its token. If the file contains a smaller
    /// token, an older file was restored.
    last_written: RefCell<Option<(LockKey, i64)>>,
    wakes: Wakes,
}

/// The layout, and the statements that are used often.
#[derive(Debug)]
struct Texts {
    layout: Layout,
    release: String,
    renew: String,
    read: String,
    write: String,
}

impl Tables {
    /// `written` is the assumed number of rows since the last upkeep.
    pub(crate) fn new(
        connection: Connection,
        layout: &Layout,
        wakes: Wakes,
        written: usize,
    ) -> Self {
        let fill = |text| layout.fill(text, '"');
        let texts = Texts {
            layout: layout.clone(),
            release: fill(
                "UPDATE {key} SET tag = NULL, ends = -ends \
                 WHERE key = ?1 AND tag = ?2 AND ends > ?3",
            ),
            renew: fill(
                "UPDATE {key} SET ends = ?4, description = ?5 \
                 WHERE key = ?1 AND tag = ?2 AND ends > ?3",
            ),
            // Without the `+`, SQLite prepares the statement again for each new value of the
            // parameter, because it compares the parameter with other terms of the outer join.
            read: fill(
                "SELECT min_token, token, spare, tag, ends, since, fingerprint, description, document \
                 FROM {host} LEFT JOIN {key} ON key = +?1",
            ),
            write: fill(
                "INSERT OR REPLACE INTO {key} \
                     (key, token, spare, tag, ends, since, fingerprint, description, document) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            ),
        };
        Self {
            connection,
            texts,
            ceiling: Cell::new(0),
            written: Cell::new(written),
            last_written: RefCell::default(),
            wakes,
        }
    }

    /// Runs `work` in a transaction without waiting for other processes.
    pub(crate) fn transaction<T>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.run("BEGIN IMMEDIATE")?;
        let done = work(self);
        let committed = done.and_then(|done| match self.run("COMMIT") {
            Ok(()) => Ok(done),
            Err(error) if is_busy(&error) => Err(Stop::Sql(error)),
            Err(error) => Err(Stop::Failed(sqlite(error, During::Commit))),
        });
        if !self.is_between_transactions() {
            // If this fails, the connection is not used again.
            drop(self.run("ROLLBACK"));
        }
        match committed {
            Ok(_) => self.wakes.send(),
            Err(_) => self.wakes.clear(),
        }
        committed
    }

    /// Returns whether no transaction is open.
    pub(crate) fn is_between_transactions(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// Returns the number of this process's socket, if a claim has been queued.
    pub(crate) fn bound_socket(&self) -> Option<u32> {
        self.wakes.bound_socket()
    }

    fn run(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([]).map(drop)
    }

    /// Grants the whole key, if nothing of its row is in force or the lease already has the key.
    pub(crate) fn acquire(&self, claim: &Acquire, clock: Clock) -> Result<Option<Granted>, Stop> {
        let Named { key, tag } = &claim.lease;
        if let Some(quorum) = &claim.membership {
            self.check_membership(quorum)?;
        }
        let (min_token, row) = self.row(key)?;
        let is_free = |row: &Row| row.ends <= clock.now || row.tag == Some(tag.id);
        if !row.as_ref().is_none_or(is_free) {
            return Ok(None);
        }
        let first = row.map_or(0, |row| row.token).max(min_token).saturating_add(1);
        let last = first.max(clock.token(claim.requested_token));
        self.check_ceiling(last)?;
        // The spare tokens fill the gap below `last`, so they do not move `last` ahead of the clock.
        let spare = claim.spare.min(u32::try_from(last - first).unwrap_or(u32::MAX));
        let row = Row {
            token: last,
            spare: spare.into(),
            tag: Some(tag.id),
            ends: clock.now.after(claim.ttl),
            since: Some(clock.now),
            fingerprint: Some(tag.fingerprint.to_string()),
            description: claim.description.clone(),
            document: None,
        };
        self.put(key, &row)?;
        let token = u64::try_from(last).unwrap_or_default() - u64::from(spare);
        Ok(Some(Granted { token, spare }))
    }

    /// Releases a lease in the simple state. Returns `None` if no such lease is in force.
    pub(crate) fn release(&self, lease: &Named, now: i64) -> Result<Option<bool>, Stop> {
        let Named { key, tag } = lease;
        let parameters = params![key.as_str(), tag.id.as_bytes(), now];
        let is_released = self.update(&self.texts.release, parameters)?;
        Ok(is_released.then_some(true))
    }

    /// Renews a lease in the simple state. Returns whether such a lease is in force.
    pub(crate) fn renew(&self, renewal: &Renew, now: i64) -> Result<bool, Stop> {
        let Renew { lease: Named { key, tag }, description, ttl } = renewal;
        let ends = now.after(*ttl);
        let parameters = params![key.as_str(), tag.id.as_bytes(), now, ends, description];
        Ok(self.update(&self.texts.renew, parameters)?)
    }

    /// Writes one row, if the row meets the statement's condition. Returns whether it does.
    fn update(&self, text: &str, parameters: impl Params) -> rusqlite::Result<bool> {
        let is_changed = self.connection.prepare_cached(text)?.execute(parameters)? > 0;
        self.written.update(|written| written + usize::from(is_changed));
        Ok(is_changed)
    }

    /// Returns the state of a key.
    pub(crate) fn read(&self, key: &LockKey, clock: Clock) -> Result<State, Stop> {
        let (min_token, row) = self.row(key)?;
        Ok(State::new(key.clone(), row, min_token, clock))
    }

    /// Returns the minimum token and the row of a key.
    fn row(&self, key: &LockKey) -> Result<(i64, Option<Row>), Stop> {
        let read = self.first_of(&self.texts.read, params![key.as_str()], |found| {
            let Some(token) = found.get(1)? else { return Ok((found.get(0)?, None)) };
            let tag: Option<[u8; 16]> = found.get(3)?;
            let row = Row {
                token,
                spare: found.get(2)?,
                tag: tag.map(Uuid::from_bytes),
                ends: found.get(4)?,
                since: found.get(5)?,
                fingerprint: found.get(6)?,
                description: found.get(7)?,
                document: found.get(8)?,
            };
            Ok((found.get(0)?, Some(row)))
        })?;
        read.ok_or_else(|| emptied("host"))
    }

    /// Changes the states of keys with `step`, and writes the rows of the states that have changed.
    /// After the commit, the claims that can then be granted are woken in other processes.
    pub(crate) fn change<T>(
        &self,
        change: &Change,
        step: impl FnOnce(&mut [State], Clock) -> Result<T, Error>,
        clock: Clock,
    ) -> Result<T, Stop> {
        if let Some(quorum) = &change.membership {
            self.check_membership(quorum)?;
        }
        let read = change.keys.iter().map(|key| self.read(key, clock));
        let mut states = read.collect::<Result<Vec<_>, _>>()?;
        let done = step(&mut states, clock)?;
        states.iter_mut().try_for_each(|state| self.write(state))?;
        Ok(done)
    }

    fn write(&self, state: &mut State) -> Result<(), Stop> {
        for tag in state.queued() {
            if let Some(socket) = self.wakes.socket(|| state.sockets()) {
                state.set_socket(tag, socket);
            }
        }
        let Some(row) = state.written() else { return Ok(()) };
        self.check_ceiling(row.token)?;
        self.put(state.key(), &row)?;
        if state.notices().holders {
            self.alarm()?;
        }
        for tag in state.woken() {
            if let Some(socket) = state.socket(&tag) {
                self.wakes.add(socket, tag);
            }
        }
        Ok(())
    }

    fn put(&self, key: &LockKey, row: &Row) -> rusqlite::Result<()> {
        self.last_written.replace(Some((key.clone(), row.token)));
        let Row { token, spare, tag, ends, since, fingerprint, description, document } = row;
        let tag = tag.as_ref().map(Uuid::as_bytes);
        let parameters = params![
            key.as_str(),
            token,
            spare,
            tag,
            ends,
            since,
            fingerprint,
            description,
            document
        ];
        self.update(&self.texts.write, parameters).map(drop)
    }

    fn check_ceiling(&self, token: i64) -> Result<(), Stop> {
        if token == i64::MAX {
            let message = "no larger tokens exist; delete the file";
            return Err(Stop::Failed(Failure::Layout.error(message)));
        }
        if token < self.ceiling.get() { Ok(()) } else { Err(Stop::Ceiling(token)) }
    }

    pub(crate) fn list(&self, list: &List, now: i64) -> rusqlite::Result<Vec<String>> {
        let mut statement = self.prepare(
            "SELECT key FROM {key} \
                 WHERE key >= ?1 AND key > ?2 AND key < ?3 AND ends > ?4 ORDER BY key LIMIT ?5",
        )?;
        let limit = i64::try_from(List::KEYS).unwrap_or(i64::MAX);
        let parameters = params![list.from, list.after, list.to, now, limit];
        statement.query_map(parameters, |row| row.get(0))?.collect()
    }

    /// Examines the [`PURGED`] rows after the key `after`. Deletes each row that is not in force and
    /// whose last token is at least [`PURGE_AGE`] old. Returns the last examined key, or an empty
    /// string after the end of the table.
    ///
    /// The minimum token is raised first, so that the next tokens of the deleted keys are larger
    /// than their last tokens.
    pub(crate) fn purge(&self, after: &str, clock: Clock) -> rusqlite::Result<String> {
        let last = self.first(
            "SELECT max(key), count(*) FROM (SELECT key FROM {key} WHERE key > ?1 ORDER BY key LIMIT ?2)",
            params![after, PURGED],
            |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, u32>(1)?)),
        )?;
        let Some((Some(last), count)) = last else { return Ok(String::new()) };
        let min_token = token_at(clock.wall.saturating_sub(micros(PURGE_AGE)));
        self.raise_min_token(min_token)?;
        self.execute(
            "DELETE FROM {key} WHERE key > ?1 AND key <= ?2 AND ends <= ?3 \
                 AND token <= (SELECT min_token FROM {host})",
            params![after, last, clock.now],
        )?;
        Ok(if count < PURGED { String::new() } else { last })
    }

    fn raise_min_token(&self, token: i64) -> rusqlite::Result<()> {
        self.execute("UPDATE {host} SET min_token = max(min_token, ?1)", params![token])
    }

    fn prepare(&self, text: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(&self.texts.layout.fill(text, '"'))
    }

    fn execute(&self, text: &str, params: impl Params) -> rusqlite::Result<()> {
        self.prepare(text)?.execute(params).map(drop)
    }

    fn execute_batch(&self, text: &str) -> rusqlite::Result<()> {
        self.connection.execute_batch(&self.texts.layout.fill(text, '"'))
    }

    fn first<T>(
        &self,
        text: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.first_of(&self.texts.layout.fill(text, '"'), params, read)
    }

    fn first_of<T>(
        &self,
        text: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.connection.prepare_cached(text)?.query_row(params, read).optional()
    }
}

/// Returns the error for a missing row. Without the row, the earlier tokens or the machine are
/// unknown, so nothing may be granted.
fn emptied(table: &str) -> Stop {
    let message =
        format!("a row is missing from the table {table}; restore the file, or delete it");
    Stop::Failed(Failure::Layout.error(message))
}
