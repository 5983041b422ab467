//! A program that ends without releasing its guard. The lock is free when the process has ended:
//! `cargo run --example one_shot`.
//!
//! If a guard is dropped just before the program ends, its release may still be in progress when
//! the runtime ends. The client then completes the release on its own thread. The end of the
//! runtime waits for this thread for at most 2 s.

use std::env;

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let url = env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let key = env::args().nth(1).unwrap_or_else(|| "nightly-report".to_owned());
    let client = leasehold::connect(&url).await?;

    let guard = client.mutex(key)?.lock().await?;
    println!("held: token {}", guard.token());
    if env::args().nth(2).as_deref() == Some("task") {
        // This task never ends. The runtime drops it, and the guard with it.
        tokio::spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
    }
    Ok(())
}
