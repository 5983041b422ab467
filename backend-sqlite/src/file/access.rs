//! Explains why the files cannot be opened and what the user can do.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use leasehold_core::Error;
use leasehold_sql_support::Failure;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::Paths;

/// Replaces `error` with a more precise error if this process lacks access to the files.
pub(crate) fn explain(paths: &Paths, error: Error) -> Error {
    match obstacle(paths) {
        Some((failure, why)) => failure.because(why, error),
        None => error,
    }
}

fn obstacle(paths: &Paths) -> Option<(Failure, String)> {
    let database = fs::metadata(&paths.database).ok()?;
    if !database.is_file() {
        return Some((
            Failure::Full,
            "the path is not a regular file; choose another path".to_owned(),
        ));
    }
    let own = Access::READ_OK | Access::WRITE_OK;
    let found = [&paths.database, &paths.log, &paths.index].into_iter().find_map(|path| {
        match (refusal(path, own)?, fs::metadata(path).ok()?) {
            (Errno::ROFS, _) => Some(read_only()),
            (_, file) => Some((Failure::Denied, not_writable(paths, path, &file, &database))),
        }
    });
    found.or_else(|| directory_obstacle(paths))
}

/// Returns why the directory prevents this process from creating or opening the files.
fn directory_obstacle(paths: &Paths) -> Option<(Failure, String)> {
    let path = paths.directory();
    if !paths.exist() {
        return match refusal(path, Access::WRITE_OK | Access::EXEC_OK)? {
            Errno::ROFS => Some(read_only()),
            _ => Some((
                Failure::Denied,
                format!(
                    "user {} is not allowed to create files in {}, but SQLite needs two more files there; allow the user to create them, or choose another path",
                    geteuid().as_raw(),
                    path.display()
                ),
            )),
        };
    }
    let (directory, user) = (fs::metadata(path).ok()?, geteuid().as_raw());
    let is_protected = |path| {
        let owner = fs::metadata(path).map(|file| file.uid());
        owner.is_ok_and(|owner| is_protected((directory.mode(), directory.uid()), owner, user))
    };
    (is_protected(&paths.log) || is_protected(&paths.index)).then(|| {
        let path = path.display();
        let why = format!(
            "the directory {path} is sticky, so the files next to the lock file can be opened only by the user who created them (fs.protected_regular); move the lock file to another directory"
        );
        (Failure::Denied, why)
    })
}

/// Returns whether `fs.protected_regular` may prevent a user from opening a file with `O_CREAT` in
/// a directory with this mode and owner.
fn is_protected(directory: (u32, u32), owner: u32, user: u32) -> bool {
    let (mode, directory_owner) = directory;
    let is_shared = mode & 0o1000 != 0 && mode & 0o022 != 0;
    is_shared && owner != user && owner != directory_owner
}

fn read_only() -> (Failure, String) {
    let why = "the file system is read-only; mount it writable, or choose another path";
    (Failure::Full, why.to_owned())
}

/// Returns the error with which the operating system denies access to an existing file.
fn refusal(path: &Path, access: Access) -> Option<Errno> {
    match accessat(CWD, path, access, AtFlags::EACCESS) {
        Err(error @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Some(error),
        _ => None,
    }
}

fn not_writable(paths: &Paths, path: &Path, file: &Metadata, database: &Metadata) -> String {
    let (user, name) = (geteuid().as_raw(), path.display());
    let (group, wanted) = (file.gid(), database.gid());
    if group != wanted {
        return format!(
            "user {user} is not allowed to write {name}: the user's group is {group}, but the lock file's group is {wanted}; change the group to {wanted}, and run chmod g+s {} so that new files get the group of their directory",
            paths.directory().display()
        );
    }
    format!(
        "user {user} is not allowed to write {name} (mode {:o}, owner {}, group {group}); give all users that share locks write access to the lock file, to the files next to it and to their directory, for example through a group",
        file.mode() & 0o7777,
        file.uid(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sticky_directory_protects_the_files_of_other_users_than_its_owner() {
        const ROOT: u32 = 0;

        for directory in [(0o41777, ROOT), (0o41770, ROOT)] {
            assert!(is_protected(directory, 1, 2));
            assert!(is_protected(directory, 1, ROOT));
            assert!(!is_protected(directory, 1, 1));
            assert!(!is_protected(directory, ROOT, 1));
        }
        assert!(!is_protected((0o40777, ROOT), 1, 2));
        assert!(!is_protected((0o41755, ROOT), 1, 2));
    }
}
