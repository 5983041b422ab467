//! Checks the location of a lock file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use leasehold_core::{Error, ErrorKind};

use crate::error::cannot_open;

/// Rejects a file whose locks might not exclude all processes.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let why = filesystem(path).and_then(|why| why.map_or_else(|| names(path), |why| Ok(Some(why))));
    match why.map_err(|error| cannot_open("cannot inspect the file", error))? {
        None => Ok(()),
        Some(why) => Err(Error::new(ErrorKind::Unsupported, why)),
    }
}

/// Rejects a file that processes may reach through a second directory. SQLite would keep a second
/// log in that directory, and both logs would grant the same locks.
fn names(path: &Path) -> io::Result<Option<String>> {
    let metadata = fs::metadata(path)?;
    // A directory is rejected later, with a more precise reason.
    let why = if metadata.is_file() && metadata.nlink() > 1 {
        "the file has a second name (a hard link), for which SQLite would create a second log; remove one of the names"
    } else if is_mounted(path)? {
        "the file is mounted without the log that SQLite keeps next to it; mount the file's directory instead"
    } else {
        return Ok(None);
    };
    Ok(Some(why.to_owned()))
}

/// Returns whether the file itself is a mount point, for example because a container mounts the
/// file instead of its directory.
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> io::Result<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    const MOUNT: StatxAttributes = StatxAttributes::MOUNT_ROOT;

    if let Ok(found) = statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        && found.stx_attributes_mask.contains(MOUNT)
    {
        return Ok(found.stx_attributes.contains(MOUNT));
    }
    // The kernel is older than 5.8, or a container forbids the call. In these cases, a bind mount
    // from the same device is not detected.
    let path = fs::canonicalize(path)?;
    let folder = path.parent().unwrap_or(&path);
    Ok(fs::metadata(folder)?.dev() != fs::metadata(&path)?.dev())
}

/// On this system, only directories can be mounted.
#[cfg(not(target_os = "linux"))]
fn is_mounted(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(target_os = "linux")]
fn filesystem(path: &Path) -> io::Result<Option<String>> {
    let found = rustix::fs::statfs(path)?;
    let name = shared_filesystem(found.f_type as u64);
    Ok(name.map(|name| {
        format!(
            "the file is on {name}, which several machines may share; use a path on a local disk"
        )
    }))
}

#[cfg(not(target_os = "linux"))]
fn filesystem(_path: &Path) -> io::Result<Option<String>> {
    Ok(None)
}

/// Returns the name of the file system if several machines or kernels may use it at the same time.
/// The numbers are Linux's magic numbers.
#[cfg(target_os = "linux")]
fn shared_filesystem(number: u64) -> Option<&'static str> {
    // Some magic numbers are stored with a sign.
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
        0x786f_4256 => Some("a VirtualBox shared folder"),
        0x2bad_1dea => Some("a VMware shared folder"),
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["locks.db", "other.db"].map(|name| directory.path().join(name));
        fs::write(&path, "").unwrap();
        check(&path).unwrap();

        fs::hard_link(&path, &other).unwrap();

        for path in [&path, &other] {
            let error = check(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        fs::remove_file(&other).unwrap();
        check(&path).unwrap();
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
        // The magic numbers of ext4, XFS, Btrfs, overlay, tmpfs and ZFS.
        for number in [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x0102_1994, 0x2fc1_2fc1] {
            assert_eq!(shared_filesystem(number), None);
        }
    }
}
