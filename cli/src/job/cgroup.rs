//! A control group for the processes of one command, where the system allows to create one.
//!
//! The kernel kills all processes of a control group in one step. That also ends processes that fork faster than they can be found, and
//! processes of other users, which signals do not reach.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    /// Opened early: no descriptor may be free when it is needed.
    kill: File,
}

impl Cgroup {
    /// Creates a control group below our own. `None` if that is not possible, which is usual for ordinary users and in containers.
    pub(super) fn create() -> Option<Self> {
        let path = own()?.join(format!("leasehold-{}", process::id()));
        fs::create_dir(&path).ok()?;
        let opened = Self::open(path.clone());
        if opened.is_none() {
            // Kernels before 5.14 cannot kill a group.
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
        // If that fails, the caller's signals still reach the processes.
        let _ = self.kill.write_all(b"1");
    }
}

impl Drop for Cgroup {
    /// Moves the remaining processes to the group above, and removes this one, unless another process has done so.
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
