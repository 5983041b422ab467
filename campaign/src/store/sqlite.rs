//! A SQLite file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{Store, version};

pub(super) struct File {
    folder: TempDir,
}

impl File {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("temporary folders can be made") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }
}

#[async_trait]
impl Store for File {
    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        version("sqlite", rusqlite::version())
    }

    async fn disturb(&mut self, kind: &str, time: Duration) -> String {
        match kind {
            "file-locked" => {
                let file = Connection::open(self.path()).expect("the file is there");
                file.busy_timeout(time * 10).expect("a timeout can be set");
                file.execute_batch("BEGIN IMMEDIATE").expect("no transaction lasts that long");
                sleep(time).await;
                file.execute_batch("COMMIT").expect("it has the lock");
            }
            "file-removed" => {
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
