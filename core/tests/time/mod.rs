//! The rules of time, under a driven clock: nothing here sleeps.

mod budget;
mod clocks;
mod deadline;
mod renewal;
mod young;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Grant, Lease, LockBackend, Operation, Release, Renewal,
};
use leasehold_core::clock::{Clock, Instant, Sleep, SystemClock, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults, News};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockGuard, LockKey, LockOptions, LossReason,
    RenewalMode,
};

const TTL: Duration = ms(30_000);
/// 1 % of the TTL and 2 ms.
const DRIFT: Duration = ms(302);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client of a store of its own, in tokio's paused time.
fn client(options: LockOptions) -> (LockClient<FaultBackend<MemoryBackend>>, Faults, TokioClock) {
    let clock = TokioClock::new();
    let backend = FaultBackend::new(MemoryBackend::with_clock(clock));
    let faults = backend.faults().clone();
    let client = LockClient::builder(backend).clock(clock).options(options).build().unwrap();
    (client, faults, clock)
}

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL)
}

async fn lock<B: LockBackend>(client: &LockClient<B>) -> LockGuard {
    client.mutex("k").unwrap().lock().await.unwrap()
}

/// Lets time pass to the millisecond, and all that is due happen.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
