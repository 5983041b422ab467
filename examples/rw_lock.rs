//! Many readers or one writer: `cargo run --example rw_lock`.
//!
//! Set `LEASEHOLD_BACKEND` for a real store, and turn on its feature: `--features redis` or `etcd`.

use std::time::Duration;

use leasehold::{Error, ErrorKind, LockClient};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    // Two processes, as it were, each with a client of its own.
    let store = leasehold::backend::connect(&url).await?;
    let (here, there) = (LockClient::new(store.clone()), LockClient::new(store));
    let (catalogue, remote) = (here.rw_lock("catalogue")?, there.rw_lock("catalogue")?);

    // Readers share it.
    let (one, other) = (catalogue.read().await?, remote.read().await?);
    println!("two read, tokens {} and {}", one.token(), other.token());
    assert!(remote.try_write().await.is_err());

    // A writer stands in line: it waits for the present readers, and no later caller passes it.
    let writes = tokio::spawn(async move { remote.write().await });
    while catalogue.try_read().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("a writer waits, so newcomers do too");
    one.release().await?;
    other.release().await?;
    let writer = writes.await.expect("it does not panic")?;
    println!("it writes alone, token {}", writer.token());

    // Having written, it goes on reading. No other writer comes in between.
    let reader = writer.downgrade().await?;
    let another = catalogue.read().await?;
    println!("it reads on, together with others");
    reader.release().await?;
    another.release().await?;

    // Two readers that both want to become writers would wait for each other for ever.
    let owned = here.rw_lock("catalogue")?.reentrant();
    let reading = owned.read().await?;
    let error = owned.write().await.expect_err("it reads already");
    assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
    println!("{error}");
    reading.release().await?;

    there.shutdown(Duration::from_secs(1)).await?;
    here.shutdown(Duration::from_secs(1)).await
}
