//! MySQL or MariaDB rejects the write of a late holder:
//! `LEASEHOLD_BACKEND=mysql://user@host/database cargo run --example fencing_mysql --features mysql`.
//!
//! The write compares the token: `… WHERE fence <= token`. If no row is changed, a later holder has
//! already written. The statement also works inside a transaction.

use std::env;
use std::error::Error;
use std::time::Duration;

use leasehold::{FencingToken, LockOptions, RenewalMode};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

/// Writes the balance. Returns `false` if the account has already seen a larger token.
async fn write(
    database: &mut Conn,
    balance: u64,
    token: &FencingToken,
) -> Result<bool, mysql_async::Error> {
    // MySQL counts only rows whose values change. `writes` changes with every write, even if the
    // balance stays the same.
    let text = "UPDATE account SET balance = ?, fence = ?, writes = writes + 1 \
                WHERE id = 1 AND fence <= ?";
    let number = token.number();
    database.exec_drop(text, (balance, number, number)).await?;
    Ok(database.affected_rows() == 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("LEASEHOLD_BACKEND")?;
    let (address, _parameters) = url.split_once('?').unwrap_or((&url, ""));
    let mut database = Conn::new(Opts::from_url(address)?).await?;
    database
        .query_drop(
            "CREATE TEMPORARY TABLE account
             (id BIGINT PRIMARY KEY, balance BIGINT, fence BIGINT UNSIGNED, writes BIGINT)",
        )
        .await?;
    database.query_drop("INSERT INTO account VALUES (1, 0, 0, 0)").await?;
    let client = leasehold::connect(&url).await?;

    // A short lease without renewal simulates a process that is paused.
    let pausing = LockOptions::new().ttl(Duration::from_millis(500)).renewal(RenewalMode::Off);
    let paused = client.mutex("account:1")?.with_options(pausing)?.lock().await?;
    assert!(write(&mut database, 10, paused.token()).await?);
    println!("the first holder writes 10 with token {}", paused.token());

    let next = client.mutex("account:1")?.lock().await?;
    assert!(write(&mut database, 20, next.token()).await?);
    println!("the second holder writes 20 with token {}", next.token());

    assert!(!write(&mut database, 11, paused.token()).await?, "the token is stale");
    println!("the first holder wakes up and is refused");
    next.release().await?;
    client.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}
