use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::SqliteConfig;

/// When the row of the key expires.
const ENDS: i64 = 1_000_000;

/// A file with one key, which this version cannot read, and a process that waits for the key.
struct Scene {
    _folder: TempDir,
    store: Store,
    poller: Poller,
    keys: HashSet<LockKey>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let mut store = Store::open(&config, &News::new(), Instant::now()).unwrap();
        let row = format!(
            "INSERT INTO leasehold_key (key, token, spare, ends, document) \
             VALUES ('job', 1, 0, {ENDS}, '{{\"v\":2}}')"
        );
        store
            .write(Instant::now(), |tables, _| Ok(tables.connection.execute_batch(&row)?))
            .unwrap();
        let keys = HashSet::from([LockKey::new("job").unwrap()]);
        Self { _folder: folder, store, poller: Poller::new(News::new()), keys }
    }

    /// Polls a file that has not changed at the time `now`, and returns the number of keys that were read.
    fn poll(&mut self, now: i64) -> u32 {
        let Self { store, poller, keys, .. } = self;
        let clock = Clock { now, wall: now };
        let poll = |tables: &Tables, _| poller.poll_keys(keys, false, tables, clock);
        store.read(Instant::now(), poll).unwrap()
    }
}

#[test]
fn a_key_that_cannot_be_read_is_read_again_only_when_it_has_expired() {
    let mut scene = Scene::new();

    let read = [1, 2, ENDS - 1, ENDS].map(|now| scene.poll(now));

    assert_eq!(read, [1, 0, 0, 1]);
}

#[test]
fn a_key_that_cannot_be_read_does_not_shorten_the_pause() {
    let mut scene = Scene::new();

    scene.poll(1);

    assert_eq!(scene.poller.pause_in_queues(), WHILE_HOLDING);
}
