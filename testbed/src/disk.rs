//! Disks that are full soon.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::unprivileged::{self, NOBODY};

/// InnoDB takes room for a table by some MiB at once.
const SIZE: &str = "32m";

/// Mounts the disk, gives root's rights away and becomes the server.
///
/// Root needs a mount namespace, any other user a user namespace besides, of which the server must not be root.
const AS_ROOT: &str = r#"mount -t tmpfs -o "size=$1,uid=$2,gid=$2,mode=0700" tmpfs "$3" &&
    user=$2 && shift 3 && exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@""#;
const AS_OTHERS: &str = r#"mount -t tmpfs -o "size=$1,mode=0700" tmpfs "$3" &&
    user=$2 && shift 3 && exec unshare --user --map-user="$user" "$@""#;

/// A small disk of its own (a tmpfs), which one server sees at a folder, and which ends with that server.
///
/// A quota of the database itself would not do: the error of a disk that is full comes from the kernel.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// The disk that a server will see at `folder`.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that runs in `folder` with the disk in its place, never as root.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let mut command = Command::new("unshare");
        let (flags, script, user) = if unprivileged::is_root() {
            (["--mount"].as_slice(), AS_ROOT, NOBODY)
        } else {
            let user = rustix::process::geteuid().as_raw();
            (["--user", "--map-root-user", "--mount"].as_slice(), AS_OTHERS, user)
        };
        command.args(flags).args(["sh", "-c", script, "sh", SIZE, &user.to_string()]);
        command.arg(&self.folder).arg(program).current_dir(folder);
        command
    }

    /// Fills the disk that the process `server` sees.
    pub(crate) fn fill(&self, server: u32) {
        let mut ballast = File::create(self.ballast(server)).expect("the server has a small disk");
        let error = loop {
            if let Err(error) = ballast.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    /// Makes room again.
    pub(crate) fn clear(&self, server: u32) {
        fs::remove_file(self.ballast(server)).expect("the disk was filled");
    }

    /// A file on the disk, by the way through the process that sees it.
    fn ballast(&self, server: u32) -> PathBuf {
        let path = self.folder.join("ballast");
        let path = path.strip_prefix("/").expect("folders are absolute");
        Path::new(&format!("/proc/{server}/root")).join(path)
    }
}
