//! The programs of etcd.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::cache;

/// The first release of 3.5 without a known loss of leases.
const OLDEST: [u32; 3] = [3, 5, 16];

/// The server and the command-line client of one version, in one directory.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) server: PathBuf,
    pub(super) ctl: PathBuf,
}

impl Program {
    /// The version that most tests use.
    pub(super) fn current() -> Self {
        if let Some(server) = env::var_os("LEASEHOLD_ETCD_SERVER") {
            let server = PathBuf::from(server);
            return Self { ctl: server.with_file_name("etcdctl"), server };
        }
        Self::installed().unwrap_or_else(|| Self::fetched("etcd-3.5"))
    }

    /// Version 3.4.
    pub(super) fn old() -> Self {
        Self::fetched("etcd-3.4")
    }

    /// Whether the server supports `--unsafe-no-fsync`, as all versions since 3.5 do.
    pub(super) fn can_skip_fsync(&self) -> bool {
        version(&self.server) >= Some([3, 5, 0])
    }

    fn installed() -> Option<Self> {
        let path = env::var_os("PATH")?;
        let programs = env::split_paths(&path).map(|directory| Self::in_directory(&directory));
        programs.filter(Self::exists).find(|program| version(&program.server) >= Some(OLDEST))
    }

    /// The programs that `scripts/fetch-servers` downloaded into the user's cache.
    fn fetched(name: &str) -> Self {
        let program = Self::in_directory(&cache().join("servers").join(name));
        assert!(program.exists(), "{} is missing: run scripts/install", program.server.display());
        program
    }

    fn in_directory(directory: &Path) -> Self {
        Self { server: directory.join("etcd"), ctl: directory.join("etcdctl") }
    }

    fn exists(&self) -> bool {
        self.server.is_file() && self.ctl.is_file()
    }
}

fn version(server: &Path) -> Option<[u32; 3]> {
    let output = Command::new(server).arg("--version").output().ok()?;
    let output = String::from_utf8(output.stdout).ok()?;
    let version = output.lines().find_map(|line| line.strip_prefix("etcd Version: "))?;
    let mut parts = version.split(['.', '-', '+']).map_while(|part| part.parse().ok());
    Some([parts.next()?, parts.next()?, parts.next()?])
}
