//! The three files that mutual exclusion depends on, and the check that the path still leads to
//! these files.
//!
//! SQLite locks parts of the database and of its index (`-shm`), and commits to its log (`-wal`).
//! When the last connection is closed, SQLite deletes the log and the index under an exclusive lock
//! on the database. Each open connection holds a shared lock on the database. The three files
//! therefore do not change while a connection is open, unless a different program deletes or
//! replaces them.

pub(crate) mod access;
mod create;
mod place;

pub(crate) use self::create::{create, create_log_and_index};
pub(crate) use self::place::check;

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold_core::Error;
use leasehold_sql_support::Failure;

/// The minimum length of an index in use. The operating system kills a process that accesses a
/// truncated part of the index.
const INDEX_LENGTH: u64 = 32 << 10;

/// The paths of a database, its log and its index.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The path as given by the user. A link in the path may later lead to a different file.
    named: PathBuf,
    pub(crate) database: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) index: PathBuf,
}

/// The state of the three files when the connection was opened.
#[derive(Debug)]
pub(crate) struct File {
    paths: Paths,
    seen: Cell<Files>,
}

/// The state of the database, the log and the index.
type Files = [Seen; 3];

/// The state of a file at one point in time.
#[derive(Clone, Copy, Debug)]
struct Seen {
    device: u64,
    inode: u64,
    length: u64,
}

impl Paths {
    /// Resolves links, as SQLite does before it appends the suffixes.
    pub(crate) fn find(named: &Path) -> Result<Self, Error> {
        let database = fs::canonicalize(named)
            .map_err(|error| access::cannot_open("cannot find the file", error))?;
        let next_to_it = |suffix| {
            let mut path = database.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        let (log, index) = (next_to_it("-wal"), next_to_it("-shm"));
        Ok(Self { named: named.to_owned(), database, log, index })
    }

    /// Returns the directory of the three files.
    pub(crate) fn directory(&self) -> &Path {
        self.database.parent().unwrap_or(&self.database)
    }

    /// Returns whether all three files exist and the index is not truncated.
    pub(crate) fn exist(&self) -> bool {
        self.look().is_some()
    }

    fn look(&self) -> Option<Files> {
        let seen = |path| Seen::at(path).ok();
        let index = seen(&self.index).filter(|index| index.length >= INDEX_LENGTH)?;
        Some([seen(&self.named)?, seen(&self.log)?, index])
    }
}

impl File {
    /// Opens the files with `open`. Returns `None` if a file was missing beforehand, or was
    /// replaced in the meantime.
    pub(crate) fn open<E>(
        paths: &Paths,
        open: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<Self>, E> {
        let Some(seen) = paths.look() else { return Ok(None) };
        open()?;
        let file = Self { paths: paths.clone(), seen: Cell::new(seen) };
        Ok(file.is_in_place().then_some(file))
    }

    /// Returns whether processes that open the path now get the same files, and therefore the same
    /// locks.
    ///
    /// A file that is shorter than before was truncated, or SQLite has shortened it (`VACUUM`,
    /// `wal_checkpoint(TRUNCATE)`). The store opens the files again in both cases. If SQLite has
    /// shortened the file, no data is lost.
    pub(crate) fn is_in_place(&self) -> bool {
        let Some(now) = self.paths.look() else { return false };
        let is_in_place = self.seen.get().iter().zip(&now).all(|(seen, now)| seen.is_part_of(now));
        if is_in_place {
            self.seen.set(now);
        }
        is_in_place
    }

    /// Returns whether the log must be moved to the database before the connection is closed.
    ///
    /// A deleted log must be moved, because other processes cannot read it. A log whose database
    /// was replaced must be moved, because the log would be applied to the next database at this
    /// path. In all other cases, processes may write to the log with a different index, so the data
    /// that this process's index refers to may be gone.
    pub(crate) fn is_log_to_be_moved(&self) -> bool {
        let [database, log, index] = self.seen.get();
        let now = |path| Seen::at(path).ok();
        let [database_now, log_now, index_now] =
            [now(&self.paths.named), now(&self.paths.log), now(&self.paths.index)];
        let is_index_cut_off =
            index_now.is_some_and(|now| index.is(&now) && !index.is_part_of(&now));
        if is_index_cut_off {
            return false;
        }
        match database_now.filter(|now| database.is(now)) {
            Some(now) => database.is_part_of(&now) && log_now.is_none(),
            None => [(log, log_now), (index, index_now)]
                .iter()
                .all(|(seen, now)| now.is_some_and(|now| seen.is(&now))),
        }
    }
}

impl Seen {
    fn at(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { device: found.dev(), inode: found.ino(), length: found.len() })
    }

    fn is(&self, later: &Self) -> bool {
        (self.device, self.inode) == (later.device, later.inode)
    }

    /// Returns whether `later` is the same file and was not truncated.
    fn is_part_of(&self, later: &Self) -> bool {
        self.is(later) && self.length <= later.length
    }
}

/// Returns the error of a call whose files were replaced. The next call opens the new files.
pub(crate) fn moved() -> Error {
    Failure::NotApplied.error("the lock file was just deleted or replaced")
}
