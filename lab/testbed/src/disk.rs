//! Disks that are full soon.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::unprivileged::{self, NOBODY};

/// InnoDB takes room for a table by some MiB at once.
const SIZE: &str = "32m";

/// Mounts the disk, says so, and stays as long as the pipe to it is open.
const KEEP: &str = r#"mount -t tmpfs -o "$1" tmpfs "$2" && echo && exec cat"#;

/// Changes to the folder as the namespace has it, and becomes the server.
const ENTER: &str = r#"cd "$1" && shift && exec "$@""#;

/// A small disk of its own (a tmpfs), which servers see at a folder. It ends when dropped.
///
/// A quota of the database itself would not do: the error of a disk that is full comes from the kernel.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    folder: PathBuf,
    /// The process in whose namespace the disk is mounted, so that a server that starts again finds its files.
    keeper: Child,
}

impl SmallDisk {
    /// Mounts a disk at `folder`, for the servers' user.
    ///
    /// Root needs a mount namespace, any other user a user namespace besides.
    pub(crate) fn mount(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).expect("temporary folders can be written");
        let (flags, owner) = if unprivileged::is_root() {
            (["--mount"].as_slice(), format!(",uid={NOBODY}"))
        } else {
            (["--user", "--map-root-user", "--mount"].as_slice(), String::new())
        };
        let mut keeper = Command::new("unshare");
        keeper.args(flags).args(["sh", "-c", KEEP, "sh"]);
        keeper.arg(format!("size={SIZE},mode=0700{owner}")).arg(&folder);
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut keeper = keeper.expect("unshare can be started");
        let said = keeper.stdout.as_mut().expect("it is piped").read_exact(&mut [0]);
        said.expect("a file system in memory can be mounted");
        Self { folder, keeper }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that runs in `folder` with the disk in its place, never as root.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.keeper.id().to_string(), "--mount"]);
        let user = if unprivileged::is_root() {
            // The group stays the command's own.
            command.gid(NOBODY);
            ["setpriv".to_owned(), format!("--reuid={NOBODY}"), "--clear-groups".to_owned()]
        } else {
            command.args(["--user", "--preserve-credentials"]);
            // The server must not be root in its namespace either.
            let user = rustix::process::geteuid().as_raw();
            ["unshare".to_owned(), "--user".to_owned(), format!("--map-user={user}")]
        };
        command.args(["sh", "-c", ENTER, "sh"]).arg(folder).args(user).arg(program);
        command
    }

    /// Fills the disk.
    pub(crate) fn fill(&self) {
        fill_up(&self.ballast());
    }

    /// Makes room again.
    pub(crate) fn clear(&self) {
        fs::remove_file(self.ballast()).expect("the disk was filled");
    }

    /// A file on the disk, by the way through the process that sees it.
    fn ballast(&self) -> PathBuf {
        let path = self.folder.join("ballast");
        let path = path.strip_prefix("/").expect("folders are absolute");
        Path::new(&format!("/proc/{}/root", self.keeper.id())).join(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop((self.keeper.kill(), self.keeper.wait()));
    }
}

/// Writes a file until its disk is full.
///
/// # Panics
///
/// If it cannot be written for another reason.
pub fn fill_up(ballast: &Path) {
    let mut ballast = File::create(ballast).expect("the disk is there");
    let error = loop {
        if let Err(error) = ballast.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}
