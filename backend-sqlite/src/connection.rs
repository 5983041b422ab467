//! Opens connections that share the file, read-only connections, and the exclusive connection that
//! creates the log and the index.

use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{cannot_open, cut_off, is_busy, is_cut_off};
use crate::file::{self, File, Paths};
use crate::tables::Stop;

/// More than the number of different statements, so that all statements remain prepared.
const STATEMENTS: usize = 64;

/// Opens a connection that shares the file with other processes.
///
/// The log and the index are created only under an exclusive lock on the database. If a process has
/// the database open and one of the two files is missing, a different program has deleted the file.
/// The locks on a second index would not exclude holders of locks on the first index, so this
/// function waits until all other processes have noticed the deletion and closed their connections.
pub(crate) fn open_shared(paths: &Paths) -> Result<(File, Connection), Stop> {
    if !paths.exist() {
        create_log_and_index(paths)?;
    }
    let connection = open(&paths.database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let file = File::open(paths, || {
        set_up(&connection)?;
        Ok(check_length(&connection, &paths.log)?)
    });
    let file = file.map_err(|stop| match stop {
        Stop::Sql(error) if is_cut_off(&error) => {
            in_use(format!("{} was cut off", paths.log.display()), error)
        }
        stop => stop,
    })?;
    Ok((file.ok_or_else(|| Stop::Busy(file::moved()))?, connection))
}

/// Opens a connection that does not write to the three files. If no process has the database open,
/// the connection shows a snapshot and has no [`File`].
pub(crate) fn open_read_only(paths: &Paths) -> Result<(Option<File>, Connection), Stop> {
    if paths.exist() {
        let connection = open(&paths.database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let file = File::open(paths, || access(&connection))?;
        return Ok((Some(file.ok_or_else(|| Stop::Busy(file::moved()))?), connection));
    }
    // A killed process may have left commits in the log. Without an index, these commits cannot be
    // read.
    if fs::metadata(&paths.log).is_ok_and(|log| log.len() > 0) {
        return Err(Stop::Failed(
            Failure::Denied.error("SQLite's log cannot be read without its index file"),
        ));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok((None, open(Path::new(&immutable(&paths.database)), flags)?))
}

/// Closes a connection whose files were deleted or replaced.
pub(crate) fn close_replaced(file: Option<&File>, connection: Connection) {
    if file.is_some_and(File::is_log_to_be_moved) {
        checkpoint(&connection, "TRUNCATE");
    }
    // Without this flag, SQLite would move the log to the database, for which it reads the index. The
    // operating system kills a process that accesses the truncated part of an index.
    drop(connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
}

/// Moves the contents of the log to the database, so that the log can be restarted.
pub(crate) fn shorten_log(connection: &Connection) {
    checkpoint(connection, "PASSIVE");
}

fn checkpoint(connection: &Connection, mode: &str) {
    // If the checkpoint fails, the contents remain in the log, and every other connection tries
    // again.
    drop(connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())));
}

fn open(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // The store retries on its own. SQLite's busy handler sometimes never gives up, and SQLite does
    // not always call it.
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Makes SQLite open the log and the index.
fn access(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Sets up WAL mode, in which readers and the writer do not wait for each other. A power failure
/// may lose the last commits but never reorders commits. Losing leases is harmless, because a
/// restart ends all leases. The ceiling protects the tokens.
fn set_up(connection: &Connection) -> Result<(), Stop> {
    use_log(connection)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // A checkpoint waits for the disk, so only the store's thread runs checkpoints.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(())
}

fn use_log(connection: &Connection) -> Result<(), Stop> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let message =
            format!("the journal mode of the file is {mode} and cannot be changed to WAL");
        return Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)));
    }
    Ok(())
}

/// Fails if the log lacks pages that the index refers to. A write after the missing pages would
/// corrupt the database.
fn check_length(connection: &Connection, log: &Path) -> rusqlite::Result<()> {
    /// The lengths of the log's header and of each page's header.
    const HEADERS: (i64, i64) = (32, 24);

    let pages: i64 = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1))?;
    let size: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let needed = if pages > 0 { HEADERS.0 + pages * (HEADERS.1 + size) } else { 0 };
    let length = fs::metadata(log).ok().and_then(|log| i64::try_from(log.len()).ok());
    if length.is_some_and(|length| length >= needed) { Ok(()) } else { Err(cut_off()) }
}

/// Returns the error for damage to the log or the index. The damage disappears once all other
/// processes have closed their connections.
fn in_use(damage: String, error: rusqlite::Error) -> Stop {
    let message =
        format!("{damage} while other processes have the lock file open; stop these processes");
    Stop::Busy(Failure::NotApplied.because(message, error))
}

/// Creates the log and the index. Fails with [`Stop::Busy`] if another process has the database
/// open.
fn create_log_and_index(paths: &Paths) -> Result<(), Stop> {
    let lock_exclusively = || {
        let connection = open(&paths.database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // Closing this connection must not delete the log.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // The lock is held until the connection is closed. While the lock is exclusive, SQLite
        // keeps the index in memory.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        use_log(&connection)?;
        access(&connection)?;
        Ok(connection)
    };
    let connection = lock_exclusively().map_err(|stop| match stop {
        Stop::Sql(error) if is_busy(&error) => {
            let names = format!("{} or {}", paths.log.display(), paths.index.display());
            in_use(format!("{names} is missing"), error)
        }
        stop => stop,
    })?;
    let created = file::create_log_and_index(paths);
    drop(connection);
    created.map_err(|error| {
        let why = "cannot create SQLite's files next to the lock file";
        Stop::Failed(cannot_open(why, error))
    })
}

/// Returns a URI with which SQLite reads the database as an immutable file, without locks, log or
/// index.
fn immutable(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            _ => write!(uri, "%{byte:02x}").expect("a string grows as needed"),
        }
    }
    uri + "?immutable=1"
}
