//! Takes a lock, in the three usual ways. Needs no server: `cargo run --example quickstart`.
//!
//! For a real store, turn on its feature and change the URL, such as `redis://127.0.0.1`.

use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let client = leasehold::connect("memory:").await?;
    let invoice = client.mutex("invoice:42")?;

    // Wait for the lock, hold it, release it. The lease is renewed meanwhile.
    let guard = invoice.lock().await?;
    println!("1. held: token {}, good for {:.1?} more", guard.token(), guard.remaining());

    // Others do not get it, now or within a limited wait.
    assert!(invoice.try_lock().await.is_err());
    assert!(invoice.try_lock_for(Duration::from_millis(50)).await.is_err());
    println!(
        "2. nobody else gets it: {}",
        client.admin().inspect("invoice:42").await?.holders()[0]
    );
    guard.release().await?;

    // Or run work under the lock: it is dropped if the lease is lost before it has finished.
    let total = invoice.run(async |guard| pay(guard.token().number()).await).await?;
    println!("3. paid {total} under the lock");

    client.shutdown(Duration::from_secs(1)).await
}

/// Sends the token along, so that the other side can refuse a payer that is late.
async fn pay(_token: u64) -> u32 {
    tokio::time::sleep(Duration::from_millis(10)).await;
    100
}
