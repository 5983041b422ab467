//! The number of statements that the server executes for a lock.

use futures_util::future::join_all;
use leasehold_core::LockClient;

use crate::{Backend, Server};

/// A process moves a key after at most this number of releases, and purges old rows after this number of
/// acquisitions.
const UPKEEP_AFTER: u64 = 256;

/// Connects with the longest timeout. If much of a call's time has passed before its statement is sent, the
/// client also sends a shorter time limit.
async fn connect(server: &Server) -> LockClient<Backend> {
    let url = format!("{}?timeout-ms=60000", server.url());
    LockClient::new(Backend::connect(&url).await.unwrap())
}

async fn lock_and_release(client: &LockClient<Backend>, key: &str, times: u64) {
    let mutex = client.mutex(key).unwrap();
    for _ in 0..times {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
}

/// Returns the statements that the server has executed since [`crate::FORGET_STATEMENTS`], each with the
/// number of its executions. The most frequent statements come first.
async fn executed(server: &Server) -> Vec<(u64, String)> {
    let rows = server.sql(crate::EXECUTED_STATEMENTS).await;
    let row = |row: &str| {
        let (times, statement) = row.split_once(' ').unwrap();
        (times.parse().unwrap(), statement.to_owned())
    };
    let mut executed: Vec<_> = rows.lines().map(row).collect();
    executed.sort_unstable_by(|a, b| b.cmp(a));
    executed
}

#[tokio::test]
async fn a_free_lock_and_its_release_are_one_statement_each() {
    const LOCKS: u64 = 1_000;

    let server = crate::counting_statements().start().await;
    let client = connect(&server).await;
    // Purges use a second connection, so both connections are open afterwards.
    lock_and_release(&client, "job", LOCKS).await;

    server.sql(crate::FORGET_STATEMENTS).await;
    lock_and_release(&client, "job", LOCKS).await;

    let executed = executed(&server).await;
    let [acquire, release, upkeep @ ..] = &executed[..] else { panic!("{executed:#?}") };
    assert_eq!([acquire.0, release.0], [LOCKS; 2], "{executed:#?}");
    for (times, statement) in upkeep {
        let most = |(part, most): &(&str, u64)| statement.contains(part).then_some(*most);
        let most = crate::UPKEEP.iter().find_map(most);
        // A purge may still have been running when the counting began.
        let most = most.map(|most| most * (LOCKS.div_ceil(UPKEEP_AFTER) + 1));
        assert!(most.is_some_and(|most| *times <= most), "{statement}: {executed:#?}");
    }
}

#[tokio::test]
async fn many_tasks_share_statements() {
    const TASKS: u64 = 64;
    const LOCKS: u64 = 100;

    let server = crate::counting_statements().start().await;
    let client = connect(&server).await;
    let keys: Vec<_> = (0..TASKS).map(|task| format!("job-{task}")).collect();

    server.sql(crate::FORGET_STATEMENTS).await;
    join_all(keys.iter().map(|key| lock_and_release(&client, key, LOCKS))).await;

    let executed = executed(&server).await;
    let statements: u64 = executed.iter().map(|(times, _)| times).sum();
    let locks_and_releases = 2 * TASKS * LOCKS;
    assert!(statements < locks_and_releases / 2, "{statements}: {executed:#?}");
}
