//! A resource that rejects the write of a late holder: `cargo run --example fencing`.
//!
//! A lock cannot stop a process that was paused after it checked its lease. A fencing token can
//! stop its writes: every grant has a larger token, and the resource remembers the largest token
//! that it has seen.

use std::time::Duration;

use leasehold::{Error, Fence, FencingToken, LockOptions, RenewalMode};

/// The data that the lock protects. In a database, the check is part of the write:
/// `UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`.
#[derive(Default)]
struct Account {
    balance: u64,
    fence: Fence,
}

impl Account {
    fn write(&mut self, balance: u64, token: &FencingToken) -> Result<(), Error> {
        self.fence.admit(token)?;
        self.balance = balance;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = leasehold::connect("memory:").await?;
    // A short lease without renewal simulates a process that will be paused.
    let pausing = LockOptions::new().ttl(Duration::from_millis(100)).renewal(RenewalMode::Off);
    let mut account = Account::default();

    let paused = client.mutex("account")?.with_options(pausing)?.lock().await?;
    account.write(10, paused.token())?;
    println!("the first holder writes 10 with token {}", paused.token());

    // The first holder is paused. Its lease expires, and another holder acquires the lock.
    let next = client.mutex("account")?.lock().await?;
    account.write(20, next.token())?;
    println!("the second holder writes 20 with token {}", next.token());

    // The first holder wakes up and continues to write. It does not know about the second holder.
    let refused = account.write(11, paused.token()).expect_err("it is late");
    println!("the first holder is refused: {refused}");
    assert_eq!(account.balance, 20);

    // The guard reports the loss when it is asked.
    assert!(!paused.is_held());
    next.release().await
}
