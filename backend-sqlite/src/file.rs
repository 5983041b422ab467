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

pub(crate) use self::create::{create, create_log_and_index, share_socket};
pub(crate) use self::place::check;

use std::cell::Cell;
use std::fs;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_core::Error;
use leasehold_sql_support::Failure;
use rustix::fs::Stat;
#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::cannot_open;

/// The minimum length of an index in use. The operating system kills a process that accesses a
/// truncated part of the index.
const INDEX_LENGTH: u64 = 32 << 10;

/// How long after a check of the paths the files are assumed not to have been renamed. Deleted,
/// replaced and truncated files are always noticed. A path takes several times as long to check as
/// an open file.
const RECENT: Duration = Duration::from_millis(1);

/// The paths of a database, its log and its index.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The path as given by the user. A link in the path may later lead to a different file.
    named: PathBuf,
    pub(crate) database: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) index: PathBuf,
}

/// The three files of an open connection, and their state at the last check.
#[derive(Debug)]
pub(crate) struct File {
    paths: Paths,
    /// `None` if the files could not be opened, for example because the process had no free
    /// descriptors. The paths are then always checked.
    open: Option<Open>,
    seen: Cell<Files>,
    /// When the paths were last checked.
    checked_at: Cell<Instant>,
}

/// The state of the database, the log and the index.
type Files = [Seen; 3];

/// The state of a file at one point in time. The call of `rustix` takes half the time of the call of
/// the standard library, which reads more values.
#[derive(Clone, Copy, Debug)]
struct Seen(Stat);

impl Paths {
    /// Resolves links, as SQLite does before it appends the suffixes.
    pub(crate) fn find(named: &Path) -> Result<Self, Error> {
        let database =
            fs::canonicalize(named).map_err(|error| cannot_open("cannot find the file", error))?;
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
        look([&self.named, &self.log, &self.index], |path| Seen::at(path))
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
        let opened = Open::at(paths);
        open()?;
        let (seen, checked_at) = (Cell::new(seen), Cell::new(Instant::now()));
        let file = Self { paths: paths.clone(), open: opened, seen, checked_at };
        Ok((file.are_paths_in_place()).then_some(file))
    }

    /// Returns whether processes that open the path now get the same files, and therefore the same
    /// locks.
    ///
    /// A file that is shorter than before was truncated, or SQLite has shortened it (`VACUUM`,
    /// `wal_checkpoint(TRUNCATE)`). The store opens the files again in both cases. If SQLite has
    /// shortened the file, no data is lost.
    pub(crate) fn is_in_place(&self) -> bool {
        if self.checked_at.get().elapsed() < RECENT
            && let Some(open) = self.open.as_ref().and_then(Open::look)
        {
            return self.is_part_of(open);
        }
        self.are_paths_in_place()
    }

    fn are_paths_in_place(&self) -> bool {
        self.checked_at.set(Instant::now());
        self.paths.look().is_some_and(|now| self.is_part_of(now))
    }

    /// Returns whether `now` are the same files and were not truncated.
    fn is_part_of(&self, now: Files) -> bool {
        let is_part_of = self.seen.get().iter().zip(&now).all(|(seen, now)| seen.is_part_of(now));
        if is_part_of {
            self.seen.set(now);
        }
        is_part_of
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
    fn at(path: &Path) -> Result<Self, Errno> {
        rustix::fs::stat(path).map(Self)
    }

    fn is(&self, later: &Self) -> bool {
        (self.0.st_dev, self.0.st_ino) == (later.0.st_dev, later.0.st_ino)
    }

    /// Returns whether `later` is the same file and was not truncated.
    fn is_part_of(&self, later: &Self) -> bool {
        self.is(later) && self.0.st_size <= later.0.st_size
    }
}

/// Returns the state of the three files, unless a file is missing or the index is truncated.
fn look<T>(files: [T; 3], seen: impl Fn(T) -> Result<Seen, Errno>) -> Option<Files> {
    let [database, log, index] = files.map(|file| seen(file).ok());
    let is_whole =
        |index: &Seen| u64::try_from(index.0.st_size).is_ok_and(|length| length >= INDEX_LENGTH);
    Some([database?, log?, index.filter(is_whole)?])
}

/// Descriptors of the three files, through which the files can be neither read nor written. Closing
/// such a descriptor does not release SQLite's locks.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Open([OwnedFd; 3]);

#[cfg(target_os = "linux")]
impl Open {
    fn at(paths: &Paths) -> Option<Self> {
        let open =
            |path: &PathBuf| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let [database, log, index] = [&paths.named, &paths.log, &paths.index].map(open);
        Some(Self([database.ok()?, log.ok()?, index.ok()?]))
    }

    /// Returns the state of the files, unless one was deleted or the index was truncated.
    fn look(&self) -> Option<Files> {
        let files = look(self.0.each_ref(), |file| rustix::fs::fstat(file).map(Seen))?;
        files.iter().all(|file| file.0.st_nlink > 0).then_some(files)
    }
}

/// On this system, the paths are always checked.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Open;

#[cfg(not(target_os = "linux"))]
impl Open {
    fn at(_paths: &Paths) -> Option<Self> {
        Some(Self)
    }

    fn look(&self) -> Option<Files> {
        None
    }
}

/// Returns the error of a call whose files were replaced. The next call opens the new files.
pub(crate) fn moved() -> Error {
    Failure::NotApplied.error("the lock file was just deleted or replaced")
}
