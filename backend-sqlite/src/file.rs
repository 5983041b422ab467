//! The file: where it may lie, how it is created, and whether it is still the one that was opened.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;

/// A file that was opened.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    id: Id,
}

/// The device and the inode.
type Id = (u64, u64);

impl File {
    /// Opens it with `open`, and knows it again.
    pub(crate) fn open<T>(
        path: &Path,
        open: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<(Self, T), Error> {
        create(path)?;
        check_filesystem(path)?;
        check_names(path)?;
        let id = id(path).map_err(|error| inaccessible(path, error))?;
        let opened = open(path)?;
        let file = Self { path: path.to_owned(), id };
        if file.is_in_place() { Ok((file, opened)) } else { Err(moved()) }
    }

    /// Whether other processes that open the path get this file, and not another one with locks of its own.
    pub(crate) fn is_in_place(&self) -> bool {
        id(&self.path).is_ok_and(|id| id == self.id)
    }
}

pub(crate) fn moved() -> Error {
    Failure::NotApplied.error("the file was deleted or replaced a moment ago")
}

/// Creates the file and its folder, if they are missing, for their owner alone. SQLite gives the files beside it the same mode.
fn create(path: &Path) -> Result<(), Error> {
    /// To close a file ends all locks of the process on it. So no thread opens it for its locks while another one creates it here.
    static CREATING: Mutex<()> = Mutex::new(());

    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = path.parent() {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|error| inaccessible(folder, error))?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != IoKind::AlreadyExists => Err(inaccessible(path, error)),
        _ => Ok(()),
    }
}

fn id(path: &Path) -> io::Result<Id> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn inaccessible(path: &Path, error: io::Error) -> Error {
    let failure = match error.kind() {
        IoKind::StorageFull | IoKind::QuotaExceeded | IoKind::ReadOnlyFilesystem => Failure::Full,
        _ => Failure::Denied,
    };
    failure.because(format!("{} is not to be had", path.display()), error)
}

/// Refuses a file that others may reach through another folder: SQLite would keep another log there, and both would grant the same locks.
fn check_names(path: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(|error| inaccessible(path, error))?;
    // A folder is refused later, with more to say.
    let reason = if metadata.is_file() && metadata.nlink() > 1 {
        "has another name, a hard link, where SQLite would keep another log: leave it one name"
    } else if is_mounted(path).map_err(|error| inaccessible(path, error))? {
        "is mounted by itself, without the log that SQLite keeps beside it: mount its folder"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Unsupported, format!("{} {reason}", path.display())))
}

/// Whether the file itself is a mount point, as when a container is given the file and not its folder.
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> io::Result<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    const MOUNT: StatxAttributes = StatxAttributes::MOUNT_ROOT;

    if let Ok(found) = statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        && found.stx_attributes_mask.contains(MOUNT)
    {
        return Ok(found.stx_attributes.contains(MOUNT));
    }
    // A kernel before 5.8, or a container that forbids the call: a mount from the same device is not found.
    let path = fs::canonicalize(path)?;
    let folder = path.parent().unwrap_or(&path);
    Ok(fs::metadata(folder)?.dev() != fs::metadata(&path)?.dev())
}

/// Elsewhere only folders can be mounted.
#[cfg(not(target_os = "linux"))]
fn is_mounted(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
fn check_filesystem(path: &Path) -> Result<(), Error> {
    let found = rustix::fs::statfs(path).map_err(|error| inaccessible(path, error.into()))?;
    match shared_filesystem(found.f_type as u64) {
        None => Ok(()),
        Some(name) => {
            let message = format!(
                "{} lies on {name}: locks and clocks of several machines do not go together in one file, use a local disk",
                path.display()
            );
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn check_filesystem(_path: &Path) -> Result<(), Error> {
    Ok(())
}

/// The name of a file system that other machines, or another kernel, may use at the same time. The numbers are those of Linux.
#[cfg(target_os = "linux")]
fn shared_filesystem(number: u64) -> Option<&'static str> {
    // Some are stored with a sign.
    match number & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x6573_5546 => Some("FUSE"),
        0x0102_1997 => Some("9P"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x786f_4256 => Some("a folder of VirtualBox"),
        0x2bad_1dea => Some("a folder of VMware"),
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/locks.db");

        File::open(&path, |_| Ok(())).unwrap();

        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_file_that_exists_keeps_its_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o660)).unwrap();

        File::open(file.path(), |_| Ok(())).unwrap();

        assert_eq!(mode(file.path()), 0o660);
    }

    #[test]
    fn a_file_in_its_place_is_not_the_one_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let (file, ()) = File::open(&path, |_| Ok(())).unwrap();
        assert!(file.is_in_place());

        fs::rename(&path, folder.path().join("other")).unwrap();
        assert!(!file.is_in_place());
        fs::write(&path, "").unwrap();
        assert!(!file.is_in_place());
    }

    #[test]
    fn a_file_with_two_names_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("locks.db"), folder.path().join("other.db"));
        File::open(&path, |_| Ok(())).unwrap();

        fs::hard_link(&path, &other).unwrap();

        for path in [&path, &other] {
            let error = File::open(path, |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        fs::remove_file(&other).unwrap();
        File::open(&path, |_| Ok(())).unwrap();
    }

    #[test]
    fn file_systems_of_several_machines_are_known() {
        for (number, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB"),
            (0xffff_ffff_ff53_4d42, "SMB"),
            (0x6573_5546, "FUSE"),
            (0x0102_1997, "9P"),
        ] {
            assert_eq!(shared_filesystem(number), Some(name));
        }
        // ext4, XFS, Btrfs, overlay, tmpfs, ZFS.
        for number in [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x0102_1994, 0x2fc1_2fc1] {
            assert_eq!(shared_filesystem(number), None);
        }
    }
}
