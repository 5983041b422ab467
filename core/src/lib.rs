//! The contract and the shared layers of Leasehold, a distributed lock for Rust.
//!
//! This crate knows no store. It holds the contract that a store's backend fulfils
//! ([`backend`]), the layers that are the same for all stores (reentrancy, the local queue,
//! retry, the watchdog) behind [`LockClient`], and a store in memory ([`memory`]) that is the
//! reference for all others. To use locks, depend on the crate `leasehold`, which re-exports all
//! of this and adds the backends by feature.
//!
//! The root has the names that code with locks needs; the modules have those of one subject each.
//!
//! A lock from this library keeps well-behaved processes out of each other's way; the [fencing
//! token](FencingToken) keeps data right when a process is not well-behaved.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;

pub mod admin;
mod locks;

mod options;
pub mod retry;

mod engine;

mod contract;

#[cfg(feature = "blocking")]
pub mod blocking;

mod backends;
pub mod clock;
pub mod observe;

#[cfg(all(test, shuttle))]
mod models;
mod sync;

pub use backends::{fault, memory, quorum};
pub use client::{Builder, LockClient};
pub use contract::backend;
pub use contract::busy::Busy;
pub use contract::description::Description;
pub use contract::error::{Error, ErrorKind};
pub use contract::holder::{Holder, LockKind};
pub use contract::key::{IntoKey, LockKey};
pub use contract::loss::{LeaseState, LossReason};
pub use contract::owner::OwnerId;
pub use contract::token::{Fence, FencingToken};
pub use contract::try_lock_error::TryLockError;
pub use locks::election;
pub use locks::guard::LockGuard;
pub use locks::multi_lock::{MultiGuard, MultiLock};
pub use locks::mutex::Mutex;
pub use locks::reentrant_mutex::ReentrantMutex;
pub use locks::rw_lock::{RwLock, WriteGuard};
pub use locks::semaphore::Semaphore;
pub use locks::striped::{Striped, StripedGuard};
pub use options::{LockOptions, RenewalMode};
