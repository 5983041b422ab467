//! Several locks at once, on a store that grants several keys in one atomic step.

mod cancellation;
mod contention;
mod fault;
mod one_request;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Grant, Lease, LockBackend, Operation, Patience,
    Release, Renewal,
};
use leasehold_core::clock::Clock;
use leasehold_core::fault::Fault;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, LockClient, LockOptions, LossReason, TryLockError};

use super::{KEYS, Plain, closed, drop_contended_calls_at_any_point, three, wait_out};
use crate::fixture::{DRIFT, Fixture, Logged, TTL, dropped_after, key, ms, options};

const ALL: &str = "+a+b+c";

fn fixture() -> Logged {
    fixture_with(options())
}

fn fixture_with(options: LockOptions) -> Logged {
    Fixture::declaring(MemoryBackend::new().capabilities(), options)
}
