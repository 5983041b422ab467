//! A scheduled job. Every machine follows the schedule, and one machine runs the job:
//! `cargo run --example cron`.
//!
//! To see several machines, start the program several times with `--features sqlite` and
//! `LEASEHOLD_BACKEND=sqlite:/tmp/locks.db`. `PERIOD_MS` sets the time between runs, and `RUNS`
//! sets the number of runs.

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Error, LockClient, TryLockError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let period = Duration::from_millis(number("PERIOD_MS", 1_000)?);
    let client = leasehold::connect(&url).await?;

    for _run in 0..number("RUNS", 3)? {
        let run = next_run(period).await?;
        if let Err(error) = run_once(&client, run).await {
            // The schedule continues after an error, because the next run uses a different lock.
            eprintln!("run {run}: {error}");
        }
    }
    Ok(client.shutdown(Duration::from_secs(5)).await?)
}

/// Waits until the wall clock shows the next multiple of `period`. Returns the number of this
/// multiple, which is the same on all machines.
async fn next_run(period: Duration) -> Result<u128, Box<dyn std::error::Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let run = now / period.as_nanos() + 1;
    let wait = run * period.as_nanos() - now;
    tokio::time::sleep(Duration::from_nanos(u64::try_from(wait)?)).await;
    Ok(run)
}

async fn run_once(client: &LockClient, run: u128) -> Result<(), Error> {
    // The key contains the number of the run. It stays locked for longer than any machine can be
    // late.
    let once = client.options().min_hold(Duration::from_secs(600));
    let job = client.mutex(format!("report/{run}"))?.with_options(once)?;
    match job.try_run(async |_guard| write_report(run).await).await {
        Ok(()) => println!("run {run}: done"),
        Err(TryLockError::Busy(busy)) => println!("run {run}: skipped, {busy}"),
        Err(TryLockError::Failed(error)) => return Err(error),
    }
    Ok(())
}

async fn write_report(run: u128) {
    println!("run {run}: writes the report");
}

fn number(variable: &str, default: u64) -> Result<u64, std::num::ParseIntError> {
    env::var(variable).map_or(Ok(default), |text| text.parse())
}
