//! A SQLite file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{Folder, fill_up};
use rusqlite::Connection;
use tokio::time::sleep;

use super::{Store, version};

pub(super) struct File {
    // Before the folder at which it is mounted.
    _disk: Option<Disk>,
    folder: Folder,
}

/// A small disk of its own (a tmpfs), in the namespace of mounts that clients share.
struct Disk(PathBuf);

impl File {
    pub(super) fn new(has_disk: bool) -> Self {
        let folder = Folder::in_memory("sqlite-");
        Self { _disk: has_disk.then(|| Disk::mount(folder.path())), folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    /// A connection that waits for other transactions.
    fn open(&self, patience: Duration) -> Connection {
        let file = Connection::open(self.path()).expect("the file is there");
        file.busy_timeout(patience).expect("a timeout can be set");
        file
    }

    /// Commits find no room in the log, which begins anew. SQLite writes over an old one.
    async fn fill_disk(&self, time: Duration) {
        let file = self.open(time * 10);
        file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("it waits");
        let ballast = self.folder.path().join("ballast");
        fill_up(&ballast);
        sleep(time).await;
        fs::remove_file(ballast).expect("it was written");
    }
}

impl Disk {
    fn mount(folder: &Path) -> Self {
        run("mount", &["-t", "tmpfs", "-o", "size=32m", "tmpfs"], folder);
        Self(folder.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A client that is about to end may have the file open.
        run("umount", &["--lazy"], &self.0);
    }
}

fn run(program: &str, args: &[&str], folder: &Path) {
    let status = Command::new(program).args(args).arg(folder).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} at {}", folder.display());
}

#[async_trait]
impl Store for File {
    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        version("sqlite", rusqlite::version())
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        match kind {
            FaultKind::FileLocked => {
                let file = self.open(time * 10);
                file.execute_batch("BEGIN IMMEDIATE").expect("no transaction lasts that long");
                sleep(time).await;
                file.execute_batch("COMMIT").expect("it has the lock");
            }
            FaultKind::DiskFull => self.fill_disk(time).await,
            FaultKind::FileRemoved => {
                for suffix in ["", "-wal", "-shm"] {
                    let path = format!("{}{suffix}", self.path().display());
                    // Without a writer, there is no log.
                    drop(fs::remove_file(path));
                }
                sleep(time).await;
            }
            _ => panic!("{kind} befalls no file"),
        }
        "the file".to_owned()
    }
}
