//! Records the beliefs of processes that lock, work, are stopped and are killed on one store, and judges them.
#![forbid(unsafe_code)]

mod args;
mod population;
mod store;

mod line;
mod process;
mod record;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use leasehold_core::clock::{Clock, Instant as BootInstant, SystemClock};

use crate::args::Args;
use crate::population::Tally;
use crate::record::Record;
use crate::store::Store;
use crate::worker::KEYS;

/// The time beyond a TTL for a waiter that polls, or that a busy machine starts late.
const UNTIL_NOTICED: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(plan) = &args.child {
        return worker::run(plan).await;
    }
    if let Some(url) = &args.url {
        let is_kept = keeps_promises(&args, Store::At(url.clone())).await;
        return if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut all_kept = true;
    for kind in args.stores() {
        all_kept &= keeps_promises(&args, Store::start(*kind).await).await;
    }
    if all_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs processes on a store, and prints the verdict on their history.
async fn keeps_promises(args: &Args, store: Store) -> bool {
    let record = Arc::new(Record::default());
    let Tally { killed, stopped } = population::run(args, &store.url(), &record).await;
    until_free(args, &store, &record).await;
    let verdict = record.history().judge(args.ttl() + UNTIL_NOTICED);
    let Args { processes, seconds, .. } = args;
    println!(
        "{}: {processes} processes for {seconds} s, {killed} killed and {stopped} stopped; {verdict}",
        store.name()
    );
    assert!(verdict.holds() > 0, "no process got a lock");
    verdict.violations().is_empty()
}

/// Takes all of each key, once nothing else does.
async fn until_free(args: &Args, store: &Store, record: &Record) {
    let ended = Instant::now();
    let client = worker::client(&store.url(), args.ttl()).await;
    let takes = KEYS.iter().map(|key| async {
        let guard = key.take_all(&client).await.expect("the store answers");
        record.freed(key.name, ended.elapsed());
        guard.release().await.expect("the store answers");
    });
    futures_util::future::join_all(takes).await;
}

/// The time on the clock that guards go by, which all processes of the machine share.
fn now() -> Duration {
    since_boot(SystemClock.now())
}

fn since_boot(instant: BootInstant) -> Duration {
    instant.since(BootInstant::from_zero(Duration::ZERO))
}
