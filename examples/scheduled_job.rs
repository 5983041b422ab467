//! A job that several machines start at the same time and that runs once:
//! `cargo run --example scheduled_job`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::memory::MemoryBackend;
use leasehold::{Error, LockClient, LockOptions};
use tokio::task::JoinSet;

/// Runs on each machine at the scheduled time.
async fn on_schedule(
    machine: u32,
    store: MemoryBackend,
    runs: Arc<AtomicUsize>,
) -> Result<(), Error> {
    // The lock stays held for at least one second, even if the job finishes immediately. A machine
    // whose clock is a little late then does not run the job again.
    let once = LockOptions::new().min_hold(Duration::from_secs(1));
    let client = LockClient::builder(store).options(once).build()?;

    // The clocks of the machines differ.
    tokio::time::sleep(Duration::from_millis(u64::from(machine) * 50)).await;
    match client.mutex("nightly-report")?.try_lock().await {
        Ok(guard) => {
            println!("machine {machine} writes the report");
            runs.fetch_add(1, Ordering::SeqCst);
            guard.release().await
        }
        Err(error) => {
            println!("machine {machine} skips it: {}", error.into_busy()?);
            Ok(())
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (store, runs) = (MemoryBackend::new(), Arc::new(AtomicUsize::new(0)));
    let mut machines = JoinSet::new();
    for machine in 0..5 {
        machines.spawn(on_schedule(machine, store.clone(), Arc::clone(&runs)));
    }
    for outcome in machines.join_all().await {
        outcome?;
    }

    assert_eq!(runs.load(Ordering::SeqCst), 1);
    Ok(())
}
