//! At most three calls at the same time, in all processes together:
//! `cargo run --example semaphore`.
//!
//! Set `LEASEHOLD_BACKEND` to use a real store, and enable its feature, for example
//! `--features redis` or `--features etcd`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Error, LockClient, Semaphore};

/// Calls a service that supports at most three connections in total.
async fn call(connections: Semaphore, open: Arc<AtomicU32>) -> Result<u32, Error> {
    connections
        .run(1, async |_permit| {
            let now_open = open.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            open.fetch_sub(1, Ordering::SeqCst);
            now_open
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let store = leasehold::backend::connect(&url).await?;
    let open = Arc::new(AtomicU32::new(0));

    // Each client stands for a separate process. Each process has three tasks.
    let mut calls = Vec::new();
    for _ in 0..4 {
        let client = LockClient::new(store.clone());
        for _ in 0..3 {
            let connections = client.semaphore("connections", 3)?;
            calls.push(tokio::spawn(call(connections, Arc::clone(&open))));
        }
    }
    let mut most = 0;
    for call in calls {
        most = most.max(call.await.expect("it does not panic")?);
    }
    println!("12 calls, and never more than {most} at once");

    // A large job acquires several permits, all or none.
    let client = LockClient::new(store);
    let connections = client.semaphore("connections", 3)?;
    let job = connections.acquire(2).await?;
    println!("a job has {} permits; left: {}", job.units(), connections.available().await?);
    assert!(connections.try_acquire(2).await.is_err());

    // An operator asks the holder to finish early, and the holder releases its permits.
    client.request_revocation("connections").await?;
    assert!(job.revocation_requested().await);
    job.release().await?;
    println!("asked back and released; left: {}", connections.available().await?);

    client.shutdown(Duration::from_secs(1)).await
}
