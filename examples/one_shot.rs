//! A program that ends with a guard in hand: the lock is free when the process is gone. `cargo run --example one_shot`.
//!
//! A guard that is dropped in the last moments of a program has its release under way when the runtime ends. The client then sends
//! the rest from a thread of its own, and the end of the runtime waits for it, for two seconds at most.

use std::env;

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let url = env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let key = env::args().nth(1).unwrap_or_else(|| "nightly-report".to_owned());
    let client = leasehold::connect(&url).await?;

    let guard = client.mutex(key)?.lock().await?;
    println!("held: token {}", guard.token());
    if env::args().nth(2).as_deref() == Some("task") {
        // It never ends, and the runtime drops it.
        tokio::spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
    }
    Ok(())
}
