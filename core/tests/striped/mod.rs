//! A resource in segments: any one that is free, and the first that becomes free.

mod any_that_is_free;
mod guard;
mod one_that_failed;
mod segments;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::backend::Operation;
use leasehold_core::clock::Clock;
use leasehold_core::fault::Fault;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{
    Error, ErrorKind, LockClient, LockGuard, LockKey, LockOptions, LossReason, RenewalMode,
    Striped, StripedGuard, TryLockError,
};

use crate::fixture::{DRIFT, Fixture, TTL, dropped_after, key, ms, options, pass};

fn segments(fixture: &Fixture, count: u32) -> Striped {
    fixture.client.striped("stock", count).unwrap()
}

/// Holds all segments as another process would.
async fn hold_all(fixture: &Fixture, striped: &Striped) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for segment in striped.segments() {
        guards.push(fixture.other.mutex(segment).unwrap().lock().await.unwrap());
    }
    guards
}
