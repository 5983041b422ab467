//! The contract and the shared layers of Leasehold, a distributed lock for Rust.
//!
//! This crate knows no store. It holds the contract that a store's backend fulfils
//! ([`LockBackend`]), the layers that are the same for all stores (reentrancy, the local queue,
//! retry, the watchdog) behind [`LockClient`], and a store in memory ([`MemoryBackend`]) that is the
//! reference for all others. To use locks, depend on the crate `leasehold`, which re-exports all
//! of this and adds the backends by feature.
//!
//! A lock from this library keeps well-behaved processes out of each other's way; the
//! [fencing token](FencingToken) is what keeps data right when a process is not well-behaved.

mod client;

mod admin;
mod election;
mod face;
mod multi_lock;
mod mutex;
mod reentrant_mutex;
mod rw_lock;
mod semaphore;
mod striped;

mod options;
mod owner;
mod retry;

mod engine;
mod lock;

mod backend;
mod busy;
mod capabilities;
mod claim;
mod description;
mod error;
mod holder;
mod inspection;
mod key;
mod lease;
mod listing;
mod loss;
mod membership;
mod share;
mod token;
mod watch;

#[cfg(feature = "blocking")]
pub mod blocking;

pub mod clock;
pub mod fault;
pub mod memory;
pub mod observe;
mod quorum;

#[cfg(all(test, shuttle))]
mod models;
mod sync;

pub use admin::Admin;
pub use backend::{
    Attempt, AttemptAll, CalledBy, Contention, ForcedRelease, Grant, LockBackend, Release, Renewal,
    Revocation,
};
pub use busy::Busy;
pub use capabilities::{Capabilities, Feature, Fencing};
pub use claim::{Claim, Patience};
pub use client::{Builder, LockClient};
pub use description::Description;
pub use election::{Election, Leader, Leadership, Observer};
pub use error::{Error, ErrorKind, Operation};
pub use holder::{Holder, LockKind};
pub use inspection::{Inspection, MemberView, Waiter};
pub use key::{IntoKey, LockKey};
pub use lease::{Fingerprint, Lease, LeaseId, Tenure};
pub use listing::{KeyList, KeyPage};
pub use lock::guard::LockGuard;
pub use loss::{LeaseState, LossReason};
pub use membership::{Charter, Enlistment, Standing, StoreId};
pub use memory::MemoryBackend;
pub use multi_lock::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use options::{LockOptions, RenewalMode};
pub use owner::OwnerId;
pub use quorum::{Quorum, QuorumBuilder};
pub use reentrant_mutex::ReentrantMutex;
pub use retry::{Retry, RetryPolicy, Tried};
pub use rw_lock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
pub use share::Share;
pub use striped::{Striped, StripedGuard};
pub use token::{Fence, FencingToken};
pub use watch::{KeyWatch, KeyWatches};
