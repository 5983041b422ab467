//! An owner that locks its own lock again: `cargo run --example reentrant`.

use leasehold::{Error, OwnerId, ReentrantMutex};

/// Moves money. This function locks the ledger, and so do the two functions that it calls.
async fn transfer(ledger: &ReentrantMutex) -> Result<u64, Error> {
    let guard = ledger.lock().await?;
    withdraw(ledger).await?;
    deposit(ledger).await?;
    let token = guard.token().number();
    guard.release().await?;
    Ok(token)
}

async fn withdraw(ledger: &ReentrantMutex) -> Result<(), Error> {
    let guard = ledger.lock().await?;
    println!("  withdraw under token {}", guard.token());
    guard.release().await
}

async fn deposit(ledger: &ReentrantMutex) -> Result<(), Error> {
    let guard = ledger.lock().await?;
    println!("  deposit under token {}", guard.token());
    guard.release().await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = leasehold::connect("memory:").await?;
    let ledger = client.reentrant_mutex("ledger")?;

    // By default, the task is the owner. The functions that it calls can lock again without a round
    // trip.
    println!("one task, one lease:");
    transfer(&ledger).await?;

    // Two futures in one task would share the lock. A scope makes each future a separate owner.
    println!("two owners in one task, one after the other:");
    let (one, other) = tokio::join!(
        OwnerId::new().scope(transfer(&ledger)),
        OwnerId::new().scope(transfer(&ledger)),
    );
    assert_ne!(one?, other?);
    Ok(())
}
