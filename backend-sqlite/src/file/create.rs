//! Creates files and directories with the right modes.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use leasehold_core::Error;

use super::{INDEX_LENGTH, Paths, inaccessible};

/// Creates the database and its directories if they are missing, for their owner alone.
pub(crate) fn create(path: &Path) -> Result<(), Error> {
    /// Closing a file ends all locks of the process on it. So no thread opens the file for its locks while another thread creates it.
    static CREATING: Mutex<()> = Mutex::new(());

    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(directory) = path.parent() {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(|error| inaccessible(directory, error))?;
    }
    create_file(path, 0o600).map_err(|error| inaccessible(path, error)).map(drop)
}

/// Creates the log if it is missing, and a new index, with the mode of the database.
///
/// The caller must hold an exclusive lock on the database. If there is an index already, it belongs to a former database at this path.
pub(crate) fn create_log_and_index(paths: &Paths) -> io::Result<()> {
    let mode = fs::metadata(&paths.database)?.mode() & 0o777;
    // In a sticky directory, only the owner may remove the index. SQLite then empties it.
    drop(fs::remove_file(&paths.index));
    if let Some(index) = create_file(&paths.index, mode)? {
        index.set_len(INDEX_LENGTH)?;
    }
    create_file(&paths.log, mode).map(drop)
}

/// Creates a file with this mode, unless there is one.
fn create_file(path: &Path, mode: u32) -> io::Result<Option<fs::File>> {
    match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == IoKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
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
