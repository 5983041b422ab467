//! Several locks at once, on a store that grants several keys in one atomic step.

mod cancellation;
mod contention;
mod fault;
mod one_request;

use leasehold_core::backend::{
    AttemptAll, Claim, Grant, Lease, LockBackend, Operation, Patience, Reply, Request,
};
use leasehold_core::clock::Clock;
use leasehold_core::fault::{Fault, Faults};
use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, LockOptions, LossReason, TryLockError};

use super::{KEYS, closed, drop_contended_calls_at_any_point, three, wait_out};
use crate::fixture::{DRIFT, Fixture, TTL, dropped_after, key, ms, options};

const ALL: &str = "+a+b+c";

fn fixture() -> Fixture {
    fixture_with(options())
}

fn fixture_with(options: LockOptions) -> Fixture {
    Fixture::with(options)
}
