use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

/// Opens a new file.
fn opener() -> (TempDir, Opener) {
    let folder = tempfile::tempdir().unwrap();
    let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
    let mut opener = Opener { config, store: None, poller: Poller::new(News::new()) };
    opener.with_store(Instant::now() + LATER, |_, _| Ok(())).unwrap();
    (folder, opener)
}

/// Longer than any test takes.
const LATER: Duration = Duration::from_secs(60);

#[test]
fn a_commit_that_fails_has_an_unknown_outcome() {
    let (_folder, mut opener) = opener();
    // The commit checks the deferred constraint, and fails.
    let broken = "CREATE TABLE parent (id INTEGER PRIMARY KEY); \
                  CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED); \
                  INSERT INTO child VALUES (1)";

    let error = opener
        .transact(Instant::now() + LATER, &mut |(tables, _)| {
            Ok(tables.connection.execute_batch(broken)?)
        })
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}

#[test]
fn a_transaction_that_must_end_now_does_not_wait_for_a_busy_file() {
    let (folder, mut opener) = opener();
    let other = Connection::open(folder.path().join("locks.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let commits = |opener: &Opener| opener.store.as_ref().unwrap().version().unwrap().1;
    let before = commits(&opener);

    let error = opener.transact(Instant::now(), &mut |_| Ok(())).unwrap_err();
    other.execute_batch("COMMIT").unwrap();
    opener.transact(Instant::now() + LATER, &mut |_| Ok(())).unwrap();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(commits(&opener) - before, 1);
}
