//! A control group for the processes of one command, if the system permits one.
//!
//! The kernel kills all processes of a control group in one step. This includes processes that fork faster than `/proc` can be read, and
//! processes of other users, which an ordinary user cannot signal.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    /// Opened in advance, because no file descriptor may be left when the group must be killed.
    kill: File,
}

impl Cgroup {
    /// Creates a control group below that of this process. Returns `None` if this is not permitted, which is usual in containers and for
    /// ordinary users.
    pub(super) fn create() -> Option<Self> {
        let path = own()?.join(format!("leasehold-{}", process::id()));
        // If an earlier process with this id was killed together with its guardian, its group still exists.
        let _ = fs::remove_dir(&path);
        fs::create_dir(&path).ok()?;
        let opened = Self::open(path.clone());
        if opened.is_none() {
            // Kernels before 5.14 have no `cgroup.kill`.
            let _ = fs::remove_dir(path);
        }
        opened
    }

    /// Opens a control group that another process has created.
    pub(super) fn open(path: PathBuf) -> Option<Self> {
        let kill = OpenOptions::new().write(true).open(path.join("cgroup.kill")).ok()?;
        Some(Self { path, kill })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Kills all processes of the group.
    pub(super) fn kill(&mut self) {
        // If this fails, the caller still signals each process.
        let _ = self.kill.write_all(b"1");
    }
}

impl Drop for Cgroup {
    /// Moves the remaining processes to the parent group and removes this group, unless another process has already removed it.
    fn drop(&mut self) {
        let Some(above) = self.path.parent() else { return };
        for pid in fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(above.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Moves this process into the group.
pub(super) fn join(path: &Path) -> std::io::Result<()> {
    fs::write(path.join("cgroup.procs"), "0")
}

/// The directory of the control group that this process is in.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (root, mount_point) = mounts.lines().find_map(mount_of_groups)?;
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(mount_point).join(below))
}

/// The root and the mount point in a line of `mountinfo` like `30 24 0:26 / /sys/fs/cgroup rw - cgroup2 …`.
fn mount_of_groups(line: &str) -> Option<(&str, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let found = (fields.next()?, fields.next()?);
    file_system.starts_with("cgroup2 ").then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_of_the_second_version_is_found() {
        let line = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw";

        assert_eq!(mount_of_groups(line), Some(("/", "/sys/fs/cgroup")));
        assert_eq!(mount_of_groups(&line.replace("cgroup2", "cgroup")), None);
    }
}
