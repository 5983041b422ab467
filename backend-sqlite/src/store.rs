//! Runs transactions on an open file.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Layout;
use leasehold_sql_support::request::{micros, token_at};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::config::SqliteConfig;
use crate::connection::{abandon, look, share, shorten_log};
use crate::error::{During, is_busy, sqlite};
use crate::file::{self, File, Paths};
use crate::host::{Host, Now};
use crate::tables::{HostRow, LAYOUT, Stop, Tables};

/// The amount by which the token ceiling is raised at a time. With this value, one commit per
/// minute waits for the disk.
const CEILING_STEP: Duration = Duration::from_secs(60);

/// The longest pause before a busy file is tried again. A transaction takes one tenth of this
/// pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(4);

/// A connection to the lock file.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    paths: Paths,
    /// The open files, or `None` for a snapshot of a file that no process has open.
    file: Option<File>,
    /// Why this process can only read. The first write returns this error.
    refusal: Option<Error>,
    layout: Layout,
    host: Host,
}

impl Store {
    /// Opens the file and checks that it may be used on this machine. Creates the file and its
    /// tables if they are missing.
    ///
    /// A process that can read but not write the file may inspect locks. The first write of such a
    /// process returns an error that states why it cannot write.
    pub(crate) fn open(config: &SqliteConfig, until: Instant) -> Result<Self, Error> {
        Self::find(config, until).map_err(|error| cannot_open(&config.path, error))
    }

    fn find(config: &SqliteConfig, until: Instant) -> Result<Self, Error> {
        let host = config.host.clone().map_or_else(Host::this, Ok)?;
        file::create(&config.path)?;
        file::check(&config.path)?;
        let paths = Paths::find(&config.path)?;
        let with = |(file, connection), refusal| Self {
            connection,
            paths: paths.clone(),
            file,
            refusal,
            layout: config.layout.clone(),
            host: host.clone(),
        };
        let shared = patiently(until, || share(&paths)).and_then(|(file, connection)| {
            let store = with((Some(file), connection), None);
            store.settle(until)?;
            Ok(store)
        });
        let refusal = match shared {
            Err(error) if is_for_good(&error) => file::access::explain(&paths, error),
            shared => return shared,
        };
        let Ok(opened) = patiently(until, || look(&paths)) else { return Err(refusal) };
        with(opened, Some(cannot_open(&config.path, refusal))).settle_by_looking(until)
    }

    /// Returns whether no transaction is open.
    pub(crate) fn is_between_transactions(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// Returns whether processes that open the path now get the same files.
    pub(crate) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_some_and(File::is_in_place)
    }

    /// Returns whether this is a snapshot of a file that no process has open. A snapshot can be
    /// used for only one read.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.file.is_none()
    }

    /// Closes files that were deleted or replaced.
    pub(crate) fn abandon(self) {
        abandon(self.file.as_ref(), self.connection);
    }

    /// Returns a number that changes with each commit on a different connection.
    pub(crate) fn version(&self) -> Result<i64, Error> {
        let statement = self.connection.prepare_cached("PRAGMA data_version");
        let version = statement.and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        version.map_err(|error| sqlite(error, During::Work))
    }

    /// Returns the journal mode.
    pub(crate) fn journal(&self) -> Result<String, Error> {
        let mode = self.connection.pragma_query_value(None, "journal_mode", |row| row.get(0));
        mode.map_err(|error| sqlite(error, During::Work))
    }

    /// Runs a read-only transaction that sees a single state of the file.
    pub(crate) fn read<T>(
        &self,
        until: Instant,
        mut work: impl FnMut(&Tables<'_>, Now) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        let done = patiently(until, || {
            let transaction = self.connection.unchecked_transaction()?;
            work(&self.tables(&transaction), self.host.now())
        })?;
        // A snapshot does not lock the file. A process that has just opened the file may have
        // changed it during this read.
        if self.is_snapshot() && self.paths.exist() {
            return Err(file::moved());
        }
        Ok(done)
    }

    /// Runs a write transaction. No other write transaction runs at the same time. If this method
    /// succeeds, the changes are in the file. If it fails, the file is unchanged.
    pub(crate) fn write<T>(
        &mut self,
        until: Instant,
        mut work: impl FnMut(&Tables<'_>, Now) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        loop {
            let mut ceiling = None;
            let written = patiently(until, || match self.try_write(&mut work) {
                Err(Stop::Ceiling(token)) => {
                    ceiling = Some(token);
                    Ok(None)
                }
                written => written.map(Some),
            });
            match (written, ceiling) {
                (Ok(Some(written)), _) => return Ok(written),
                (Ok(None), token) => self.raise_ceiling(until, token.unwrap_or_default())?,
                (Err(error), _) => {
                    // If a full disk or a size limit prevents the log from growing, the log must be
                    // restarted.
                    if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Indeterminate) {
                        shorten_log(&self.connection);
                    }
                    return Err(error);
                }
            }
        }
    }

    fn try_write<T>(
        &self,
        work: impl FnOnce(&Tables<'_>, Now) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        // Other processes wait for this transaction only if they use the same files.
        if !self.is_in_place() {
            return Err(Stop::Failed(file::moved()));
        }
        let done = work(&self.tables(&transaction), self.host.now())?;
        match transaction.commit() {
            Ok(()) => Ok(done),
            Err(error) if is_busy(&error) => Err(Stop::Sql(error)),
            Err(error) => Err(Stop::Failed(sqlite(error, During::Commit))),
        }
    }

    /// Allows tokens up to a limit above `token`. The limit is written to the disk before these
    /// tokens can be granted.
    fn raise_ceiling(&mut self, until: Instant, token: i64) -> Result<(), Error> {
        let step = token_at(micros(CEILING_STEP));
        let set = |level| {
            let set = self.connection.pragma_update(None, "synchronous", level);
            set.map_err(|error| sqlite(error, During::Work))
        };
        set("FULL")?;
        let raised = patiently(until, || {
            self.try_write(|tables, _| Ok(tables.raise_ceiling(token.saturating_add(step))?))
        });
        set("NORMAL")?;
        raised
    }

    /// Creates missing tables, and ends leases from an earlier run of the machine.
    fn settle(&self, until: Instant) -> Result<(), Error> {
        let Host { machine, boot, .. } = &self.host;
        patiently(until, || {
            self.try_write(|tables, _| {
                if !tables.exist()? {
                    tables.create()?;
                    tables.create_member()?;
                    return Ok(tables.settle(machine, boot)?);
                }
                let is_of_this_run = self.is_of_this_run(&tables.host()?)?;
                tables.create_member()?;
                if !is_of_this_run {
                    tables.settle(machine, boot)?;
                }
                Ok(())
            })
        })
    }

    /// Checks the tables of a file that cannot be written. Leases from an earlier run of the
    /// machine count as expired.
    fn settle_by_looking(mut self, until: Instant) -> Result<Self, Error> {
        let is_of_this_run = self.read(until, |tables, _| {
            if tables.exist()? { self.is_of_this_run(&tables.host()?).map(Some) } else { Ok(None) }
        })?;
        match is_of_this_run {
            None => {
                return Err(self.refusal.take().expect("a process that may only look was refused"));
            }
            Some(true) => {}
            Some(false) => {
                let Host { machine, boot, .. } = self.host;
                self.host = Host::new(machine, boot, || Duration::MAX);
            }
        }
        Ok(self)
    }

    /// Returns whether the leases in the tables are from after the last start of this machine.
    fn is_of_this_run(&self, known: &HostRow) -> Result<bool, Stop> {
        if known.layout != LAYOUT {
            let message = format!(
                "another version of Leasehold created the file (its layout is {}, but this version requires {LAYOUT}); use that version or a different file",
                known.layout
            );
            return Err(Stop::Failed(Error::new(ErrorKind::WrongType, message)));
        }
        if known.boot != self.host.boot && known.machine != self.host.machine {
            let message =
                "the file belongs to another machine; use a local file, or delete this one";
            return Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)));
        }
        Ok(known.boot == self.host.boot)
    }

    fn tables<'a>(&'a self, connection: &'a Connection) -> Tables<'a> {
        Tables::new(connection, &self.layout)
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

/// While the file is busy, retries `attempt` with pauses, until the time `until`. If the file is
/// busy, nothing was applied.
fn patiently<T>(until: Instant, mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, Error> {
    let mut longest = Duration::from_micros(250);
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Ceiling(_)) => unreachable!("only grants draw tokens"),
            Err(Stop::Busy(error)) => error,
            Err(Stop::Sql(error)) if is_busy(&error) => sqlite(error, During::Work),
            Err(Stop::Sql(error)) => return Err(sqlite(error, During::Work)),
        };
        let pause = longest.mul_f64(fastrand::f64());
        if Instant::now() + pause >= until {
            return Err(error);
        }
        thread::sleep(pause);
        longest = (longest * 2).min(LONGEST_PAUSE);
    }
}
