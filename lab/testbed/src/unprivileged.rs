//! Servers that refuse to run as root.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The `nobody` user, which every system has: where the tests run as root, database servers run as this one.
pub(crate) const NOBODY: u32 = 65_534;

/// Gives a file or a folder to the servers' user.
pub(crate) fn give(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may give files away");
    }
}

/// Gives a key to the servers' user, and to no other.
pub(crate) fn give_secret(path: &Path) {
    give(path);
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the file is ours");
}

/// A command that runs in `folder`, never as root.
pub(crate) fn command(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
