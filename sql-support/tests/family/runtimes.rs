//! Tests of a client that several runtimes share.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::LockClient;
use leasehold_core::backend::LockBackend as _;
use leasehold_testbed::{patiently, until};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use super::start;
use crate::{Backend, Config, Server};

const THREADS: usize = 4;

const LOCKS: usize = 200;

/// Each of the threads' runtimes and of the test's runtime needs one connection for acquisitions and
/// one for releases. The other connections are for notifications and for the queries of the test.
const MAX_CONNECTIONS: u64 = 13;

fn single_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn lock_and_unlock(client: &LockClient<Backend>, key: &str) {
    let guard = client.mutex(key).unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtimes_that_share_a_client_keep_their_connections() {
    let server = Server::start().await;
    let before = crate::opened_connections(&server).await;
    let config = Config::from_url(&patiently(&server.url())).unwrap().connections(1).unwrap();
    let backend = Backend::connect_with(config).await.unwrap();
    let client = LockClient::new(backend.clone());
    let done = Arc::new(Barrier::new(THREADS));

    let thread = |n| {
        let (client, done) = (client.clone(), Arc::clone(&done));
        thread::spawn(move || {
            single_threaded().block_on(async {
                for _ in 0..LOCKS {
                    lock_and_unlock(&client, &format!("job:{n}")).await;
                }
                // A runtime may be sending the requests of other runtimes.
                done.wait().await;
            });
        })
    };
    let threads: Vec<_> = (0..THREADS).map(thread).collect();
    until("the threads end", async || threads.iter().all(|thread| thread.is_finished())).await;
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    backend.close().await;

    let opened = crate::opened_connections(&server).await - before;
    assert!(opened <= MAX_CONNECTIONS, "{opened} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn a_blocked_runtime_does_not_delay_other_runtimes() {
    const LIMIT: Duration = Duration::from_secs(10);

    let server = start().await;
    let client = LockClient::new(Backend::connect(&patiently(&server.url())).await.unwrap());
    let blocked = single_threaded();
    let used = move || {
        blocked.block_on(lock_and_unlock(&client, "job"));
        (blocked, client)
    };
    let (blocked, client) = thread::spawn(used).join().unwrap();

    // The connections of the blocked runtime are open, but nobody reads their replies.
    let begun_at = Instant::now();
    lock_and_unlock(&client, "job").await;

    let elapsed = begun_at.elapsed();
    assert!(elapsed < LIMIT, "{elapsed:?}");
    blocked.shutdown_background();
}
