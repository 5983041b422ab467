//! PostgreSQL rejects the write of a late holder:
//! `LEASEHOLD_BACKEND=postgres://user@host/database cargo run --example fencing_postgres --features postgres`.
//!
//! The write compares the token: `… WHERE fence <= token`. If no row is changed, a later holder has
//! already written. The statement also works inside a transaction.

use std::env;
use std::error::Error;
use std::time::Duration;

use leasehold::{FencingToken, LockOptions, RenewalMode};
use tokio_postgres::{Client, NoTls};

/// Writes the balance. Returns `false` if the account has already seen a larger token.
async fn write(
    database: &Client,
    balance: i64,
    token: &FencingToken,
) -> Result<bool, tokio_postgres::Error> {
    let fence = i64::try_from(token.number()).expect("tokens are below 2^53");
    let text = "UPDATE account SET balance = $1, fence = $2 WHERE id = 1 AND fence <= $2";
    Ok(database.execute(text, &[&balance, &fence]).await? == 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LEASEHOLD_BACKEND")?;
    let (database, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    database
        .batch_execute(
            "CREATE TEMPORARY TABLE account (id bigint PRIMARY KEY, balance bigint, fence bigint);
             INSERT INTO account VALUES (1, 0, 0);",
        )
        .await?;
    let client = leasehold::connect(&url).await?;

    // A short lease without renewal simulates a process that is paused.
    let pausing = LockOptions::new().ttl(Duration::from_millis(500)).renewal(RenewalMode::Off);
    let paused = client.mutex("account:1")?.with_options(pausing)?.lock().await?;
    assert!(write(&database, 10, paused.token()).await?);
    println!("the first holder writes 10 with token {}", paused.token());

    let next = client.mutex("account:1")?.lock().await?;
    assert!(write(&database, 20, next.token()).await?);
    println!("the second holder writes 20 with token {}", next.token());

    assert!(!write(&database, 11, paused.token()).await?, "the token is stale");
    println!("the first holder wakes up and is refused");
    next.release().await?;
    client.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}
