//! Folders in memory, for the servers and the files of one test.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// The file system in memory that Linux has.
const MEMORY: &str = "/dev/shm";

/// A database has 20 to 40 MB, and dozens of tests run at once. A container may have a tenth of that.
const ROOM: u64 = 2 << 30;

/// Distinguishes the testbed's directories from other programs' directories.
const PREFIX: &str = "leasehold-";

/// A temporary folder. Its files go when it is dropped.
///
/// On a disk, to make and to remove the thousand files of a database takes several times as long as the server does. And a new SQLite file
/// is flushed nine times.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    /// Locked until this process ends, in whichever way.
    _lock: Option<File>,
}

impl Folder {
    /// A folder in memory if the machine has room for many, else one on the disk. Its name begins with `leasehold-` and `prefix`.
    ///
    /// # Panics
    ///
    /// If no folder can be made.
    pub fn in_memory(prefix: &str) -> Self {
        if has_room(Path::new(MEMORY)) {
            return Self::in_swept(Path::new(MEMORY), prefix).expect("there is room in memory");
        }
        Self::on_disk(prefix)
    }

    /// A folder among the machine's temporary files.
    ///
    /// # Panics
    ///
    /// If no folder can be made.
    pub fn on_disk(prefix: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{prefix}")).tempdir();
        Self { folder: folder.expect("a temporary folder can be made"), _lock: None }
    }

    /// A folder in `parent`. It first removes the folders of killed processes, which take up memory.
    fn in_swept(parent: &Path, prefix: &str) -> io::Result<Self> {
        // A folder that is new is not locked yet.
        let sweeping = File::open(parent)?;
        sweeping.lock()?;
        sweep(parent)?;
        let prefix = format!("{PREFIX}{prefix}");
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        lock.lock()?;
        Ok(Self { folder, _lock: Some(lock) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn has_room(folder: &Path) -> bool {
    let found = rustix::fs::statvfs(folder);
    found.is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= ROOM)
}

/// Removes the folders of ours that no process has locked.
fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let is_left = || File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if is_ours && is_left() {
            // A folder of another user stays: this process may not remove it.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_replaces_those_of_killed_processes() {
        let parent = tempfile::tempdir().unwrap();
        let [left, foreign] = ["leasehold-left", "foreign"].map(|name| parent.path().join(name));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("file"), "data").unwrap();
        fs::create_dir(&foreign).unwrap();

        let first = Folder::in_swept(parent.path(), "first-").unwrap();
        let second = Folder::in_swept(parent.path(), "second-").unwrap();

        assert!(!left.exists());
        assert!(foreign.exists() && first.path().exists() && second.path().exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_without_room_is_none_for_servers() {
        let proc = Path::new("/proc");

        assert!(!has_room(proc), "it is no disk");
        assert!(!has_room(&proc.join("missing")));
    }
}
