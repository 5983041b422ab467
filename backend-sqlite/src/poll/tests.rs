use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::SqliteConfig;

/// A file with one key, which this version cannot read, and a process that waits for the key.
struct Scene {
    _folder: TempDir,
    store: Store,
    poller: Poller,
    keys: HashSet<LockKey>,
}

impl Scene {
    /// The row of the key expires at `ends`.
    fn new(ends: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let mut store = Store::open(&config, &News::new(), Instant::now()).unwrap();
        let row = format!(
            "INSERT INTO leasehold_key (key, token, spare, ends, document) \
             VALUES ('job', 1, 0, {ends}, '{{\"v\":2}}')"
        );
        store
            .write(Instant::now(), |tables, _| Ok(tables.connection.execute_batch(&row)?))
            .unwrap();
        let keys = HashSet::from([LockKey::new("job").unwrap()]);
        Self { _folder: folder, store, poller: Poller::new(News::new()), keys }
    }

    /// Polls a file that has not changed, and returns the number of keys that were read.
    fn poll(&mut self) -> u32 {
        let Self { store, poller, keys, .. } = self;
        let poll = |tables: &Tables, clock| poller.poll_keys(keys, false, tables, clock);
        store.read(Instant::now(), poll).unwrap()
    }
}

#[test]
fn a_key_that_cannot_be_read_is_read_only_once() {
    let mut scene = Scene::new(i64::MAX);
    assert_eq!(scene.poll(), 1);

    assert_eq!(scene.poll(), 0);
}

#[test]
fn a_key_that_cannot_be_read_is_read_again_when_it_has_expired() {
    let mut scene = Scene::new(1);
    scene.poll();

    assert_eq!(scene.poll(), 1);
}

#[test]
fn a_key_that_cannot_be_read_does_not_shorten_the_pause() {
    let mut scene = Scene::new(i64::MAX);

    scene.poll();

    assert_eq!(scene.poller.pause_in_queues(), WHILE_HOLDING);
}
