//! Tests of a server that refuses further connections.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind, LockClient, LockOptions};
use leasehold_testbed::{patiently, until};
use tokio::task::JoinSet;

use crate::{Backend, Config};

const TTL: Duration = Duration::from_secs(12);

/// More clients than any of the servers accepts.
const MANY: usize = 50;

async fn lock_and_unlock(backend: Backend) -> Result<(), Error> {
    let client = LockClient::new(backend);
    let options = LockOptions::new().outage_wait(Duration::from_secs(60));
    let mutex = client.mutex("job")?.with_options(options)?;
    mutex.lock().await?.release().await
}

/// Starts clients that wait for the lock until the server refuses one, and returns its error.
async fn fill(url: &str, waiters: &mut JoinSet<Result<(), Error>>) -> Error {
    for _ in 0..MANY {
        match Backend::connect(url).await {
            Ok(backend) => waiters.spawn(lock_and_unlock(backend)),
            Err(error) => return error,
        };
    }
    panic!("the server accepts {MANY} clients");
}

/// Acquires a lock while other clients use all remaining connections, and checks that the lock is renewed and released. The error of a
/// client without a connection must contain `reason`.
pub(crate) async fn keep_a_lock_while_waiters_use_all_connections(url: &str, reason: &str) {
    let client = LockClient::new(Backend::connect(url).await.unwrap());
    let mutex = client.mutex("job").unwrap().with_options(LockOptions::new().ttl(TTL)).unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut waiters = JoinSet::new();

    let error = fill(url, &mut waiters).await;
    let refused = Backend::connect_lazily(Config::from_url(url).unwrap());
    waiters.spawn(lock_and_unlock(refused));
    let two_renewals_later = guard.deadline() + TTL / 2;
    until("the lease is renewed", async || {
        assert!(guard.is_held(), "{reason}");
        guard.deadline() > two_renewals_later
    })
    .await;

    assert!(waiters.try_join_next().is_none(), "{reason}: a waiter has given up");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(reason), "{error}");
    guard.release().await.unwrap();
    while let Some(waited) = waiters.join_next().await {
        waited.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_while_waiters_use_all_connections_of_the_server() {
    for (limit, options) in crate::connection_limits() {
        let server = options.start().await;
        keep_a_lock_while_waiters_use_all_connections(&patiently(&server.url()), limit).await;
    }
}
