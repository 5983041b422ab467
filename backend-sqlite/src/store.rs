//! Runs transactions on an open file.

use std::cell::Cell;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::News;
use leasehold_sql_support::request::{micros, token_at};
use leasehold_sql_support::rows::Clock;

use crate::config::SqliteConfig;
use crate::connection::{close_replaced, open_read_only, open_shared, shorten_log};
use crate::error::{During, is_busy, sqlite};
use crate::file::{self, File, Paths};
use crate::host::Host;
use crate::tables::{HostRow, LAYOUT, LAYOUT_BEFORE, Stop, Tables};
use crate::wake::Wakes;

/// The amount by which the token ceiling is raised at a time. With this value, one commit per
/// minute waits for the disk.
const CEILING_STEP: Duration = Duration::from_secs(60);

/// The longest pause before a busy file is tried again. Most transactions take less than 0.1 ms. With
/// short pauses, the attempts of hundreds of processes would keep the holder from the CPU.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// The number of written rows after which the thread purges old rows and moves the log's contents
/// to the database. By then, the log has a length of about 4 MB.
const UPKEEP_INTERVAL: usize = 1_000;

/// A connection to the lock file.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) tables: Tables,
    paths: Paths,
    /// The open files, or `None` for a snapshot of a file that no process has open.
    file: Option<File>,
    /// Why this process can only read. The first write returns this error.
    refusal: Option<Error>,
    host: Host,
    /// Whether a call on its caller's thread has failed. Closing the file may wait for the disk, so
    /// the thread closes the file.
    has_failed: Cell<bool>,
    /// The number of committed transactions.
    commits: Cell<u64>,
    /// The key after which the next purge starts.
    purged: String,
}

/// The tables of a file that was opened.
#[derive(Clone, Copy)]
struct Found {
    /// Whether the tables have the layout of this version.
    is_current: bool,
    /// Whether the leases in the tables are from after the last start of this machine.
    is_of_this_run: bool,
}

impl Store {
    /// Opens the file and checks that it may be used on this machine. Creates the file and its
    /// tables if they are missing.
    ///
    /// A process that can read but not write the file may inspect locks. The first write of such a
    /// process returns an error that states why it cannot write.
    pub(crate) fn open(config: &SqliteConfig, news: &News, until: Instant) -> Result<Self, Error> {
        Self::find(config, news, until).map_err(|error| cannot_open(&config.path, error))
    }

    fn find(config: &SqliteConfig, news: &News, until: Instant) -> Result<Self, Error> {
        let host = config.host.clone().map_or_else(Host::this, Ok)?;
        file::create(&config.path)?;
        file::check(&config.path)?;
        let paths = Paths::find(&config.path)?;
        let with = |(file, connection), refusal| Self {
            tables: Tables::new(
                connection,
                &config.layout,
                Wakes::new(&paths.database, news.clone()),
                // Most processes write only a few rows, and some of these must do the upkeep, too.
                fastrand::usize(..UPKEEP_INTERVAL),
            ),
            paths: paths.clone(),
            file,
            refusal,
            host: host.clone(),
            has_failed: Cell::default(),
            commits: Cell::default(),
            purged: String::new(),
        };
        let shared = patiently(until, || open_shared(&paths)).and_then(|(file, connection)| {
            let store = with((Some(file), connection), None);
            store.prepare(until)?;
            Ok(store)
        });
        let refusal = match shared {
            Err(error) if is_for_good(&error) => file::access::explain(&paths, error),
            shared => return shared,
        };
        let Ok(opened) = patiently(until, || open_read_only(&paths)) else { return Err(refusal) };
        with(opened, Some(cannot_open(&config.path, refusal))).prepare_read_only(until)
    }

    /// Returns whether processes that open the path now get the same files. Returns `false` for a
    /// snapshot.
    pub(crate) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_some_and(File::is_in_place)
    }

    /// Returns whether the connection can be used again. If not, the thread opens the file again.
    pub(crate) fn is_usable(&self) -> bool {
        !self.has_failed.get() && self.tables.is_between_transactions()
    }

    /// Returns whether the file can still be used after this error. A key in use as a different type
    /// of lock, or a row that this version cannot read, does not mean that the file has failed.
    pub(crate) fn is_usable_after(error: &Error) -> bool {
        error.is_retryable() || error.kind() == ErrorKind::WrongType
    }

    /// Returns whether this is a snapshot of a file that no process has open. A snapshot can be
    /// used for only one read.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.file.is_none()
    }

    /// Closes files that were deleted or replaced.
    pub(crate) fn close_replaced(self) {
        close_replaced(self.file.as_ref(), self.tables.connection);
    }

    /// Returns two numbers, one of which changes with each commit on this or a different connection.
    pub(crate) fn version(&self) -> Result<(i64, u64), Error> {
        let statement = self.tables.connection.prepare_cached("PRAGMA data_version");
        let version = statement.and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        let version = version.map_err(|error| sqlite(error, During::Work))?;
        Ok((version, self.commits.get()))
    }

    /// Returns the journal mode.
    pub(crate) fn journal(&self) -> Result<String, Error> {
        let connection = &self.tables.connection;
        let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get(0));
        mode.map_err(|error| sqlite(error, During::Work))
    }

    /// Runs a read-only transaction that sees a single state of the file.
    pub(crate) fn read<T>(
        &self,
        until: Instant,
        mut work: impl FnMut(&Tables, Clock) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        let done = patiently(until, || {
            let _transaction = self.tables.connection.unchecked_transaction()?;
            work(&self.tables, self.host.now())
        })?;
        // A snapshot does not lock the file. A process that has just opened the file may have
        // changed it during this read.
        if self.is_snapshot() && self.paths.exist() {
            return Err(file::moved());
        }
        Ok(done)
    }

    /// Runs a write transaction. No other write transaction runs at the same time. If this method
    /// succeeds, the changes are in the file. If it fails, the file is unchanged, unless the outcome
    /// is unknown ([`ErrorKind::Indeterminate`]).
    pub(crate) fn write<T>(
        &mut self,
        until: Instant,
        mut work: impl FnMut(&Tables, Clock) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        let committed = patiently(until, || {
            loop {
                match self.try_write(&mut work) {
                    Err(Stop::Ceiling(token)) => self.raise_ceiling(token)?,
                    committed => return committed,
                }
            }
        });
        if let Err(error) = &committed {
            self.restart_log_after(error);
        }
        committed
    }

    /// If a full disk or a size limit prevents the log from growing, the log must be restarted.
    fn restart_log_after(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Indeterminate) {
            shorten_log(&self.tables.connection);
        }
    }

    /// Runs a write transaction without waiting for other processes. Returns `None` if the file is
    /// busy or replaced, if the connection cannot write, or if the ceiling must be raised. The file is
    /// unchanged then.
    pub(crate) fn write_now<T>(
        &self,
        work: impl FnOnce(&Tables, Clock) -> Result<T, Stop>,
    ) -> Option<Result<T, Error>> {
        if self.refusal.is_some() || !self.is_usable() {
            return None;
        }
        let error = match self.try_write(work) {
            Ok(done) => return Some(Ok(done)),
            Err(Stop::Failed(error)) => error,
            Err(Stop::Sql(error)) if !is_busy(&error) => sqlite(error, During::Work),
            Err(Stop::Sql(_) | Stop::Busy(_) | Stop::Moved | Stop::Ceiling(_)) => return None,
        };
        self.restart_log_after(&error);
        self.has_failed.set(!Self::is_usable_after(&error));
        Some(Err(error))
    }

    fn try_write<T>(
        &self,
        work: impl FnOnce(&Tables, Clock) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        // The transaction excludes only processes that use the same files.
        if !self.is_in_place() {
            return Err(Stop::Moved);
        }
        let done = self.tables.transaction(|tables| work(tables, self.host.now()))?;
        self.commits.set(self.commits.get() + 1);
        Ok(done)
    }

    /// Returns whether [`do_upkeep`](Self::do_upkeep) should run.
    pub(crate) fn needs_upkeep(&self) -> bool {
        self.tables.written.get() >= UPKEEP_INTERVAL
    }

    /// Moves the contents of the log to the database, and purges old rows. If this method fails,
    /// the next upkeep makes up for it.
    pub(crate) fn do_upkeep(&mut self) {
        self.tables.written.set(0);
        // The first commit after a checkpoint waits for the disk, because SQLite syncs the header of
        // the log. The purge follows the checkpoint, so that no caller's thread waits.
        shorten_log(&self.tables.connection);
        let purge = |tables: &Tables, clock| Ok(tables.purge(&self.purged, clock)?);
        if let Ok(last) = self.try_write(purge) {
            self.purged = last;
        }
    }

    /// Allows tokens up to a limit above `token`. The limit is written to the disk before these
    /// tokens can be granted.
    fn raise_ceiling(&self, token: i64) -> Result<(), Stop> {
        let ceiling = token.saturating_add(token_at(micros(CEILING_STEP)));
        let connection = &self.tables.connection;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let raised = self.try_write(|tables, _| tables.raise_ceiling(ceiling));
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        self.tables.ceiling.set(raised?);
        Ok(())
    }

    /// Creates missing tables, converts tables of the earlier version, and ends leases from an
    /// earlier run of the machine. Usually, the tables are ready, and reading them is enough, so that
    /// processes that start at the same time do not wait for each other.
    fn prepare(&self, until: Instant) -> Result<(), Error> {
        let is_prepared = self.read(until, |tables, _| match self.found(tables)? {
            Some(Found { is_current: true, is_of_this_run: true })
                if tables.exists("member")? =>
            {
                tables.alarms().map(|_| true)
            }
            _ => Ok(false),
        })?;
        if is_prepared {
            return Ok(());
        }
        let prepare = |tables: &Tables, clock| {
            let found = self.found(tables)?;
            let is_of_this_run = found.is_some_and(|found| found.is_of_this_run);
            match found {
                None => tables.create()?,
                Some(Found { is_current: false, .. }) => tables.migrate(clock, is_of_this_run)?,
                Some(_) => {}
            }
            tables.create_member()?;
            if !is_of_this_run {
                tables.reset(&self.host.machine, &self.host.boot)?;
            }
            tables.alarms().map(drop)
        };
        patiently(until, || self.try_write(prepare))
    }

    /// Checks the tables of a file that cannot be written. Leases from an earlier run of the
    /// machine count as expired.
    fn prepare_read_only(mut self, until: Instant) -> Result<Self, Error> {
        match self.read(until, |tables, _| self.found(tables))? {
            Some(Found { is_current: true, is_of_this_run }) => {
                if !is_of_this_run {
                    let Host { machine, boot, .. } = self.host;
                    self.host = Host::new(machine, boot, || Duration::MAX);
                }
                Ok(self)
            }
            // The tables must be created or converted first.
            _ => Err(self.refusal.expect("a process that can only read has a refusal")),
        }
    }

    /// Returns what is known of the tables, if they exist and can be used on this machine.
    fn found(&self, tables: &Tables) -> Result<Option<Found>, Stop> {
        if !tables.exists("host")? {
            return Ok(None);
        }
        let HostRow { layout, machine, boot } = tables.host()?;
        if ![LAYOUT_BEFORE, LAYOUT].contains(&layout) {
            let message = format!(
                "another version of Leasehold created the file (its layout is {layout}, but this version requires {LAYOUT}); use that version or a different file"
            );
            return Err(Stop::Failed(Error::new(ErrorKind::WrongType, message)));
        }
        let is_of_this_run = boot == self.host.boot;
        if !is_of_this_run && machine != self.host.machine {
            let message =
                "the file belongs to another machine; use a local file, or delete this one";
            return Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)));
        }
        Ok(Some(Found { is_current: layout == LAYOUT, is_of_this_run }))
    }
}

fn cannot_open(path: &Path, why: Error) -> Error {
    let message = format!("cannot open lock file {}: {why}", path.display());
    Error::new(why.kind(), message).with_source(why)
}

/// Returns whether the error persists until an operator fixes it. Even with such an error, the
/// process may be able to read.
fn is_for_good(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::Refused)
}

/// While the file is busy, retries `attempt` with pauses, until the time `until`. An attempt that
/// fails because the file is busy has changed nothing.
fn patiently<T>(until: Instant, mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, Error> {
    let mut longest = Duration::from_micros(250);
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Moved) => return Err(file::moved()),
            Err(Stop::Ceiling(_)) => {
                unreachable!("`write` raises the ceiling, and no other attempt grants tokens")
            }
            Err(Stop::Busy(error)) => error,
            Err(Stop::Sql(error)) if is_busy(&error) => sqlite(error, During::Work),
            Err(Stop::Sql(error)) => return Err(sqlite(error, During::Work)),
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(error);
        }
        thread::sleep(longest.mul_f64(fastrand::f64()).min(left));
        longest = (longest * 2).min(LONGEST_PAUSE);
    }
}
