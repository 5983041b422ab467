use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::SqliteConfig;

/// When the row of the key expires.
const ENDS: i64 = 1_000_000;

/// A document that this version cannot read.
const UNREADABLE: &str = r#"{"v":2}"#;

/// A file with one key, and a process that waits for the key.
struct Scene {
    _folder: TempDir,
    store: Store,
    poller: Poller,
    keys: HashSet<LockKey>,
}

impl Scene {
    fn new(document: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let mut store = Store::open(&config, &News::new(), Instant::now()).unwrap();
        let row = format!(
            "INSERT INTO leasehold_key (key, token, spare, ends, document) \
             VALUES ('job', 1, 0, {ENDS}, '{document}')"
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

/// Returns a document with a holder and as many queue entries as fit. Each entry has a `socket`.
fn full_queue(socket: Option<u32>) -> String {
    let lease = |number: usize, fields: &str| {
        format!(r#"{{"tag":"{number:032x}","print":"{number:08x}","ends":{ENDS}{fields}}}"#)
    };
    let holder = lease(0, r#","token":1"#);
    let fields = socket.map(|socket| format!(r#","socket":{socket}"#)).unwrap_or_default();
    let queue = (1..=Document::MAX_QUEUE).map(|number| lease(number, &fields));
    let queue = queue.collect::<Vec<_>>().join(",");
    format!(r#"{{"v":1,"holders":[{holder}],"queue":[{queue}]}}"#)
}

#[test]
fn a_process_for_which_the_queue_has_no_space_polls_rarely() {
    let mut scene = Scene::new(&full_queue(Some(7)));

    scene.poll(1);

    assert_eq!(scene.poller.pause_in_queues(), WHILE_HOLDING);
}

#[test]
fn a_process_whose_queue_entry_may_have_no_socket_polls_often() {
    let mut scene = Scene::new(&full_queue(None));

    scene.poll(1);

    assert_eq!(scene.poller.pause_in_queues(), Duration::ZERO);
}

#[test]
fn a_key_that_cannot_be_read_is_read_again_only_when_it_has_expired() {
    let mut scene = Scene::new(UNREADABLE);

    let read = [1, 2, ENDS - 1, ENDS].map(|now| scene.poll(now));

    assert_eq!(read, [1, 0, 0, 1]);
}

#[test]
fn a_key_that_cannot_be_read_does_not_shorten_the_pause() {
    let mut scene = Scene::new(UNREADABLE);

    scene.poll(1);

    assert_eq!(scene.poller.pause_in_queues(), WHILE_HOLDING);
}
