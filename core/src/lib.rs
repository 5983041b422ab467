//! The core of Leasehold, distributed locks for Rust: the backend contract, the lock types, and an
//! in-memory store.
//!
//! Applications depend on the `leasehold` crate, which re-exports the items of this crate and adds
//! the backends as features. Use this crate directly only to write a backend:
//!
//! - [`backend`] is the contract between Leasehold and a store.
//! - [`LockClient`] creates the locks. Reentrancy, retries, the renewal of leases and the queue of
//!   callers in a process work in the same way for every store.
//! - [`memory`] is an in-memory store, which is the reference implementation for all other stores.
//!
//! The crate root contains the items that most programs need. Each module contains the items for
//! one topic.
//!
//! A lock cannot stop a process that is paused for longer than its lease. The [fencing
//! token](FencingToken) protects your data from late writes.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod flaw;

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
pub mod batch;
pub mod clock;
pub mod observe;

#[cfg(all(test, shuttle))]
mod models;
mod sync;

pub use backends::{fault, memory};
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
