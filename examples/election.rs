//! Two candidates, one leader at a time, and an observer that always knows the address of the leader:
//! `cargo run --example election`.
//!
//! Set `LEASEHOLD_BACKEND` for a real store, and turn on its feature: `--features redis` or `etcd`.

use std::time::Duration;

use leasehold::election::Election;
use leasehold::{Error, LockClient};

/// A service of which one instance is in charge. The others stand by.
async fn instance(election: Election, address: &str) -> Result<(), Error> {
    // Waits in turn. Everybody can read the address from the moment of the election on.
    let term = election.campaign(address).await?;
    println!("{address} leads, token {}", term.token());

    // The work of a leader, dropped unfinished if the leadership is lost.
    term.while_held(tokio::time::sleep(Duration::from_millis(100))).await?;
    term.proclaim(format!("{address} (leaving)")).await?;
    term.while_held(tokio::time::sleep(Duration::from_millis(100))).await?;

    // The next in turn leads at once. Had this one died instead, it would be after its TTL.
    term.resign().await
}

/// Tells the present state first, then every change that is seen. For ever.
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
    // Three processes, as it were, each with a client of its own.
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
