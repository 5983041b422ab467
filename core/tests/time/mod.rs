//! The rules of time, under a driven clock: nothing here sleeps.

mod budget;
mod clocks;
mod deadline;
mod renewal;
mod young;

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Operation, Reply};
use leasehold_core::clock::{Clock, Instant, SystemClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockGuard, LockKey, LossReason, RenewalMode,
    TryLockError,
};

use crate::fixture::{DRIFT, Fixture, TTL, TestClock, ms, options, pass};

async fn lock<B: LockBackend>(client: &LockClient<B>) -> LockGuard {
    client.mutex("k").unwrap().lock().await.unwrap()
}
