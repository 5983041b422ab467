//! A transfer between two accounts, each with its own lock: `cargo run --example multi_lock`.
//!
//! Set `LEASEHOLD_BACKEND` to use a real store, and enable its feature, for example
//! `--features redis` or `--features etcd`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Error, Fence, FencingToken, LockClient};

/// The data that one lock protects. Each account checks the tokens of its own lock.
struct Account {
    balance: u64,
    fence: Fence,
}

/// Stands for a database that many processes read and write.
type Bank = Arc<[Mutex<Account>; 2]>;

fn read(bank: &Bank, account: usize) -> u64 {
    bank[account].lock().unwrap().balance
}

fn write(bank: &Bank, account: usize, balance: u64, token: &FencingToken) -> Result<(), Error> {
    let mut account = bank[account].lock().unwrap();
    account.fence.admit(token)?;
    account.balance = balance;
    Ok(())
}

/// Moves money under both locks. A multi-lock always acquires its keys in the same order, so
/// transfers in opposite directions cannot deadlock.
async fn transfer(
    client: LockClient,
    bank: Bank,
    (from, to): (usize, usize),
    amount: u64,
) -> Result<(), Error> {
    let names = [from, to].map(|account| format!("account:{account}"));
    let both = client.multi_lock().mutexes(&names)?;
    let guard = both.lock().await?;
    let token = |name| guard.get(name).expect("it is one of the two").token();

    let (left, right) = (read(&bank, from), read(&bank, to));
    // Without the locks, another transfer could change the balances during this pause.
    tokio::time::sleep(Duration::from_millis(1)).await;
    write(&bank, from, left - amount, token(&names[0]))?;
    write(&bank, to, right + amount, token(&names[1]))?;

    guard.release().await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let client = leasehold::connect(&url).await?;
    let account = || Mutex::new(Account { balance: 1_000, fence: Fence::default() });
    let bank: Bank = Arc::new([account(), account()]);

    // Transfers run in both directions at the same time. If each transfer acquired two mutexes one
    // after the other, two transfers could deadlock.
    let transfers: Vec<_> = (0..20)
        .map(|n| {
            let (way, amount) = if n % 2 == 0 { ((0, 1), 30) } else { ((1, 0), 10) };
            tokio::spawn(transfer(client.clone(), Arc::clone(&bank), way, amount))
        })
        .collect();
    for transfer in transfers {
        transfer.await.expect("it does not panic")?;
    }
    let balances = [read(&bank, 0), read(&bank, 1)];
    println!("20 transfers later: {} and {}", balances[0], balances[1]);
    assert_eq!(balances, [800, 1_200]);

    // A multi-lock acquires all keys or none. While an audit holds one account, the transfer
    // acquires neither key.
    let audit = client.mutex("account:1")?.lock().await?;
    let both = client.multi_lock().mutexes(["account:0", "account:1"])?;
    assert!(both.try_lock().await.is_err());
    assert!(client.mutex("account:0")?.try_lock().await.is_ok());
    println!("during an audit of one account, neither is kept");
    audit.release().await
}
