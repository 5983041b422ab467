//! Creates files and directories with the right modes and owners.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind as IoKind};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
#[cfg(target_os = "linux")]
use std::os::unix::fs::{FileTypeExt, chown};
use std::path::Path;
use std::sync::Mutex;

use leasehold_core::Error;
use leasehold_core::backend::unpoisoned;
#[cfg(target_os = "linux")]
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::{INDEX_LENGTH, Paths};
use crate::error::cannot_open;

/// The mode of a new database, regardless of the umask.
const FILE_MODE: u32 = 0o600;

/// The minimum mode of a new directory. Without these bits, even its owner could not enter it.
const DIRECTORY_MODE: u32 = 0o700;

/// Creates the database and its directories if they are missing. Only the owner can access the
/// created files and directories.
///
/// If root creates a file in another user's directory, that user becomes the file's owner.
/// Otherwise, the user could no longer use the locks.
pub(crate) fn create(path: &Path) -> Result<(), Error> {
    /// Closing a file releases all locks of the process on that file, so no thread may lock the
    /// file while another thread is creating it.
    static CREATING: Mutex<()> = Mutex::new(());

    let _creating = unpoisoned(&CREATING);
    let directory = path.parent().unwrap_or(path);
    let missing: Vec<_> = directory.ancestors().take_while(|path| !path.is_dir()).collect();
    for directory in missing.into_iter().rev() {
        create_directory(directory).map_err(|error| {
            cannot_open(format!("cannot create directory {}", directory.display()), error)
        })?;
    }
    let created = create_file(path, FILE_MODE)
        .and_then(|file| file.map_or(Ok(()), |file| adopt(&file, directory)));
    created.map_err(|error| cannot_open("cannot create the file", error))
}

/// Creates the log, if it is missing, and a new index. The log and the index get the database's
/// mode, owner and group.
///
/// SQLite would create both files with this process's group, so other users in the database's group
/// could not open the files.
///
/// The caller must hold an exclusive lock on the database. Because of this lock, an existing index
/// can only be left over from a former database at this path.
pub(crate) fn create_log_and_index(paths: &Paths) -> io::Result<()> {
    let database = fs::metadata(&paths.database)?;
    let mode = database.mode() & 0o777;
    // In a sticky directory, only the owner can remove the index. If the index remains, SQLite
    // truncates it.
    drop(fs::remove_file(&paths.index));
    if let Some(index) = create_file(&paths.index, mode)? {
        hand_over(&index, &database)?;
        index.set_len(INDEX_LENGTH)?;
    }
    let log = match create_file(&paths.log, mode)? {
        Some(log) => log,
        // SQLite has just created the log. Closing the log here does not release a lock, because
        // SQLite never locks the log.
        None => open_itself(&paths.log)?,
    };
    hand_over(&log, &database)
}

/// Creates a file with this mode, unless the file exists.
fn create_file(path: &Path, mode: u32) -> io::Result<Option<File>> {
    match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == IoKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

fn create_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == IoKind::AlreadyExists && path.is_dir() => return Ok(()),
        created => created?,
    }
    let mode = fs::metadata(path)?.mode();
    if mode & DIRECTORY_MODE != DIRECTORY_MODE {
        fs::set_permissions(path, Permissions::from_mode(mode | DIRECTORY_MODE))?;
    }
    adopt(&open_itself(path)?, path.parent().unwrap_or(path))
}

/// Opens a file or directory without following links. The directory's owner may have created a link
/// in the meantime.
fn open_itself(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).expect("flags of open are an int");
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Changes the owner of a file that root has just created to the owner of the directory.
fn adopt(created: &File, directory: &Path) -> io::Result<()> {
    if geteuid().is_root() { hand_over(created, &fs::metadata(directory)?) } else { Ok(()) }
}

/// Changes the group of this user's file, and also the owner if this user is root.
///
/// Does nothing if this process lacks the permission. Users that cannot open the file get an error
/// that states the reason.
fn hand_over(file: &File, like: &Metadata) -> io::Result<()> {
    let (user, found) = (geteuid(), file.metadata()?);
    // A file with a second hard link may be an important file that belongs to root.
    let is_own = found.uid() == user.as_raw() && (found.is_dir() || found.nlink() == 1);
    if is_own && (found.uid(), found.gid()) != (like.uid(), like.gid()) {
        drop(fchown(file, user.is_root().then_some(like.uid()), Some(like.gid())));
    }
    Ok(())
}

/// Gives a socket that this process has bound the mode and group of the database, and also the owner
/// if this user is root, so that all users of the database can wake this process.
///
/// Does not follow links, because another user of the directory may have replaced the socket.
#[cfg(target_os = "linux")]
pub(crate) fn share_socket(path: &Path, database: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let (user, found, like) = (geteuid(), socket.metadata()?, fs::metadata(database)?);
    if !found.file_type().is_socket() || found.uid() != user.as_raw() {
        return Err(IoKind::PermissionDenied.into());
    }
    // A descriptor that was opened with `O_PATH` can be changed only through this link.
    let itself = format!("/proc/self/fd/{}", socket.as_raw_fd());
    fs::set_permissions(&itself, Permissions::from_mode(like.mode() & 0o777))?;
    // Without the permission, other users poll.
    drop(chown(&itself, user.is_root().then_some(like.uid()), Some(like.gid())));
    Ok(())
}

/// Leaves the mode as it is, so only processes of this user can wake this process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn share_socket(_path: &Path, _database: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/locks.db");

        create(&path).unwrap();

        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_file_that_exists_keeps_its_mode_and_the_files_next_to_it_get_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();

        create(&path).unwrap();
        let paths = Paths::find(&path).unwrap();
        create_log_and_index(&paths).unwrap();

        assert_eq!([&path, &paths.log, &paths.index].map(|path| mode(path)), [0o660; 3]);
    }
}
