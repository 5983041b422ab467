//! MySQL, or MariaDB, refuses the write of a late holder:
//! `LEASEHOLD_BACKEND=mysql://user@host/database cargo run --example fencing_mysql --features mysql`.
//!
//! The write itself compares the token: `… WHERE fence <= token`. No row changed means that a later holder was there before. The same
//! statement is right in the middle of a transaction.

use std::env;
use std::error::Error;
use std::time::Duration;

use leasehold::{FencingToken, LockOptions, RenewalMode};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

/// Whether the account had room for the token.
async fn write(
    database: &mut Conn,
    balance: u64,
    token: &FencingToken,
) -> Result<bool, mysql_async::Error> {
    // `writes` makes each write a change, also one that repeats the balance: MySQL counts changed rows alone.
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

    // A short lease without renewal stands for a process that is paused.
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
