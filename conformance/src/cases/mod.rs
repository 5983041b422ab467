//! The cases: plain generic functions, each a sentence that can be false.

pub(crate) mod bad_input;
pub(crate) mod cancellation;
pub(crate) mod expiry;
pub(crate) mod fencing;
pub(crate) mod lost;
pub(crate) mod mutual_exclusion;
pub(crate) mod reentrancy;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod retry;
pub(crate) mod waiting;

use leasehold_core::{Attempt, Claim, Contention, Grant, Lease, LockBackend};

/// Attempts, and expects a grant.
pub(crate) async fn grant<B: LockBackend>(backend: &B, lease: &Lease) -> Grant {
    match backend.try_acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => panic!("held: {contention:?}"),
    }
}

/// Attempts, and expects that others hold the key.
pub(crate) async fn refusal<B: LockBackend>(backend: &B, lease: &Lease) -> Contention {
    match backend.try_acquire(&Claim::new(lease.clone())).await.unwrap() {
        Attempt::Granted(grant) => panic!("granted: {grant:?}"),
        Attempt::Held(contention) => contention,
    }
}
