//! The suite on SQLite files, one client after the other as if each were a process of its own, and with mutexes made of other kinds of
//! lock.

use std::convert::identity;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::{AsMutex, FaultKind, Groups, Harness, Need, Subject, Suites};
use leasehold_core::{Description, Holder, LockKey};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

/// A file, in a folder that goes with it.
struct File {
    folder: Folder,
    /// Keeps the file locked while the store is to be paused.
    pausing: Mutex<Option<Connection>>,
}

impl File {
    fn new() -> Self {
        Self { folder: Folder::in_memory("sqlite-"), pausing: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    async fn connect(&self, timeout: Duration) -> SqliteBackend {
        let config = SqliteConfig::new(self.path()).unwrap().timeout(timeout).unwrap();
        SqliteBackend::connect_with(config).await.unwrap()
    }

    /// A connection past the backend.
    fn open(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }

    fn probe(&self, key: &LockKey) -> Option<Holder> {
        let text = "SELECT fingerprint, description, ends FROM \
                        (SELECT key, fingerprint, description, ends FROM leasehold_key WHERE tag IS NOT NULL \
                         UNION ALL SELECT k.key, value ->> 'print', value ->> 'text', value ->> 'ends' \
                         FROM leasehold_key AS k, json_each(document, '$.holders')) \
                    WHERE key = ?1 AND ends > ?2 ORDER BY ends LIMIT 1";
        let now = i64::try_from(since_boot().as_micros()).unwrap();
        let found = self.open().query_row(text, params![key.as_str(), now], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, i64>(2)?))
        });
        let (fingerprint, description, ends) = found.optional().unwrap()?;
        let left = Duration::from_micros(ends.try_into().ok()?).checked_sub(since_boot())?;
        let description = description.and_then(|text| Description::new(text).ok());
        let holder = Holder::new(fingerprint.parse().unwrap());
        Some(holder.with_description(description).with_remaining(Some(left)))
    }

    fn disturb(&self, fault: FaultKind) {
        let mut pausing = self.pausing.lock().unwrap();
        match fault {
            FaultKind::ServerStopped => {
                let connection = self.open();
                connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                *pausing = Some(connection);
            }
            FaultKind::ServerKilled => self.restart(),
            other => unreachable!("{other} is not in the hooks"),
        }
    }

    fn heal(&self) {
        *self.pausing.lock().unwrap() = None;
    }

    /// The state after a loss of power: the last commits are gone, and the boot id is another. A new file makes the clients open it
    /// anew, as their successors would.
    fn restart(&self) {
        let (path, found) = (self.path(), self.folder.path().join("found.db"));
        self.open().execute("VACUUM INTO ?1", params![found.to_str()]).unwrap();
        let text = "UPDATE leasehold_key SET token = 0; UPDATE leasehold_host SET min_token = 0, boot = 'earlier'";
        Connection::open(&found).unwrap().execute_batch(text).unwrap();
        for beside in ["locks.db-wal", "locks.db-shm"] {
            fs::remove_file(self.folder.path().join(beside)).unwrap();
        }
        fs::rename(found, path).unwrap();
    }

    fn advance(&self, keys: &[LockKey], time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap();
        let connection = self.open();
        for key in keys {
            let text = "UPDATE leasehold_key SET ends = ends - ?2, since = since - ?2 WHERE key = ?1 RETURNING document";
            let parameters = params![key.as_str(), micros];
            let found = connection.query_row(text, parameters, |row| row.get(0)).optional();
            let document: Option<String> = found.unwrap().flatten();
            if let Some(document) = document {
                let text = "UPDATE leasehold_key SET document = ?2 WHERE key = ?1";
                let parameters = params![key.as_str(), earlier(&document, micros)];
                connection.execute(text, parameters).unwrap();
            }
        }
    }
}

/// Returns a document whose times are earlier.
fn earlier(document: &str, micros: i64) -> String {
    let mut document: Value = serde_json::from_str(document).unwrap();
    let subtract = |time: Option<&mut Value>| {
        if let Some(time) = time
            && let Some(number) = time.as_i64()
        {
            *time = (number - micros).into();
        }
    };
    subtract(document.get_mut("asked"));
    for part in ["holders", "queue"] {
        let entries = document.get_mut(part).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            subtract(entry.get_mut("ends"));
            subtract(entry.get_mut("since"));
        }
    }
    document.to_string()
}

fn since_boot() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).try_into().unwrap()
}

/// Implements the harness on a [`File`], for mutexes made in some way; with items that differ from the trait's.
macro_rules! harness {
    ($harness:ident, $name:literal, $backend:ty, $made:expr, { $($item:item)* }) => {
        struct $harness(File);

        #[async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const HOOKS: &[Need] = &[Need::Advance, Need::Fault(FaultKind::ServerStopped), Need::Fault(FaultKind::ServerKilled)];

            $($item)*

            async fn start() -> Self {
                Self(File::new())
            }

            async fn connect(&self) -> $backend {
                $made(self.0.connect(self.timing().ttl / 3).await)
            }

            async fn connect_patiently(&self) -> $backend {
                $made(self.0.connect(Duration::from_secs(30)).await)
            }

            async fn probe(&self, key: &LockKey) -> Option<Holder> {
                self.0.probe(key)
            }

            async fn disturb(&self, fault: FaultKind) {
                self.0.disturb(fault);
            }

            async fn heal(&self) {
                self.0.heal();
            }

            async fn advance(&self, keys: &[LockKey], time: Duration) {
                self.0.advance(keys, time);
            }
        }
    };
}

harness!(OneFile, "sqlite", SqliteBackend, identity, {});
harness!(WriteLock, "sqlite, write lock", AsMutex<SqliteBackend>, AsMutex::write_lock, {
    const GROUPS: Groups = Groups::OF_KIND;
    const SUBJECTS: &[Subject] = &[Subject::Store];
    const LACKS: &[Need] = AsMutex::<SqliteBackend>::LACKS;
});

fn main() -> ExitCode {
    Suites::new()
        .with::<OneFile>("")
        .with::<WriteLock>("write_lock")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
