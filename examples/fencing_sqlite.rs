//! SQLite rejects the write of a late holder:
//! `cargo run --example fencing_sqlite --features sqlite`.
//!
//! The write compares the token: `… WHERE fence <= token`. If no row is changed, a later holder has
//! already written.

use std::error::Error;
use std::time::Duration;

use leasehold::{FencingToken, LockOptions, RenewalMode};
use rusqlite::{Connection, params};

/// Writes the balance. Returns `false` if the account has already seen a larger token.
fn write(database: &Connection, balance: i64, token: &FencingToken) -> rusqlite::Result<bool> {
    let fence = i64::try_from(token.number()).expect("tokens are below 2^53");
    let text = "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2";
    Ok(database.execute(text, params![balance, fence])? == 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let database = Connection::open(folder.path().join("bank.db"))?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER);
         INSERT INTO account VALUES (1, 0, 0);",
    )?;
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let client = leasehold::connect(&url).await?;

    // A short lease without renewal simulates a process that is paused.
    let pausing = LockOptions::new().ttl(Duration::from_millis(200)).renewal(RenewalMode::Off);
    let paused = client.mutex("account:1")?.with_options(pausing)?.lock().await?;
    assert!(write(&database, 10, paused.token())?);
    println!("the first holder writes 10 with token {}", paused.token());

    let next = client.mutex("account:1")?.lock().await?;
    assert!(write(&database, 20, next.token())?);
    println!("the second holder writes 20 with token {}", next.token());

    assert!(!write(&database, 11, paused.token())?, "the token is stale");
    println!("the first holder wakes up and is refused");
    next.release().await?;
    client.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}
