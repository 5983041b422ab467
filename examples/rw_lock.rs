//! Many readers or one writer: `cargo run --example rw_lock`.
//!
//! Set `LEASEHOLD_BACKEND` to use a real store, and enable its feature, for example
//! `--features redis` or `--features etcd`.

use std::time::Duration;

use leasehold::{Error, ErrorKind, LockClient};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    // Each client stands for a separate process.
    let store = leasehold::backend::connect(&url).await?;
    let (here, there) = (LockClient::new(store.clone()), LockClient::new(store));
    let (catalogue, remote) = (here.rw_lock("catalogue")?, there.rw_lock("catalogue")?);

    // Two readers hold the lock at the same time.
    let (one, other) = (catalogue.read().await?, remote.read().await?);
    println!("two read, tokens {} and {}", one.token(), other.token());
    assert!(remote.try_write().await.is_err());

    // A writer is queued. It waits for the current readers, and later readers wait behind it.
    let writes = tokio::spawn(async move { remote.write().await });
    while catalogue.try_read().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("a writer waits, so newcomers do too");
    one.release().await?;
    other.release().await?;
    let writer = writes.await.expect("it does not panic")?;
    println!("it writes alone, token {}", writer.token());

    // After writing, the writer becomes a reader. No other writer can acquire the lock in between.
    let reader = writer.downgrade().await?;
    let another = catalogue.read().await?;
    println!("it reads on, together with others");
    reader.release().await?;
    another.release().await?;

    // Two readers that both want to become writers would wait for each other forever.
    let owned = here.rw_lock("catalogue")?.reentrant();
    let reading = owned.read().await?;
    let error = owned.write().await.expect_err("it reads already");
    assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
    println!("{error}");
    reading.release().await?;

    there.shutdown(Duration::from_secs(1)).await?;
    here.shutdown(Duration::from_secs(1)).await
}
