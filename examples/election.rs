//! Two candidates, one leader at a time, and an observer that prints the address of each leader:
//! `cargo run --example election`.
//!
//! Set `LEASEHOLD_BACKEND` to use a real store, and enable its feature, for example
//! `--features redis` or `--features etcd`.

use std::time::Duration;

use leasehold::election::Election;
use leasehold::{Error, LockClient};

/// One instance of a service. One instance leads, and the other one waits.
async fn instance(election: Election, address: &str) -> Result<(), Error> {
    // Wait to be elected. From then on, every process can read the address of the leader.
    let term = election.campaign(address).await?;
    println!("{address} leads, token {}", term.token());

    // Do the leader's work. It is dropped if the leadership is lost.
    term.while_held(tokio::time::sleep(Duration::from_millis(100))).await?;
    term.proclaim(format!("{address} (leaving)")).await?;
    term.while_held(tokio::time::sleep(Duration::from_millis(100))).await?;

    // The next candidate becomes the leader immediately. If this instance had been killed, the next
    // candidate would have to wait for the TTL.
    term.resign().await
}

/// Prints the current leader first, and then every change, until the program ends.
async fn observe(election: Election) -> Result<(), Error> {
    let mut observer = election.observe();
    loop {
        match observer.next().await? {
            Some(leader) => println!("the observer sees {}", leader.value()),
            None => println!("the observer sees nobody"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Each client stands for a separate process.
    let url = std::env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let store = leasehold::backend::connect(&url).await?;
    let election = || LockClient::new(store.clone()).election("scheduler");

    let one = instance(election()?, "10.0.0.1:7000");
    let two = instance(election()?, "10.0.0.2:7000");
    tokio::select! {
        both = async { tokio::try_join!(one, two) } => both.map(|_| ()),
        failed = observe(election()?) => failed,
    }
}
