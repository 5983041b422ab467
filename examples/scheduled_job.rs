//! A job that several machines start at the same time and that runs once:
//! `cargo run --example scheduled_job`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::memory::MemoryBackend;
use leasehold::{Error, LockClient, LockOptions};
use tokio::task::JoinSet;

/// Runs on each machine when its clock says so.
async fn on_schedule(
    machine: u32,
    store: MemoryBackend,
    runs: Arc<AtomicUsize>,
) -> Result<(), Error> {
    // The lock stays closed for a while even if the job is done at once, so that a machine whose
    // clock is a little late does not run it again.
    let once = LockOptions::new().min_hold(Duration::from_secs(1));
    let client = LockClient::builder(store).options(once).build()?;

    // Clocks differ.
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
