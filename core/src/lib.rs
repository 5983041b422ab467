//! The core of Leasehold, distributed locks for Rust: the contract with stores, the lock types, and an in-memory store.
//!
//! Programs do not use this crate directly. They depend on the `leasehold` crate, which re-exports everything here and adds the backends as features.
//! Write a backend against this crate:
//!
//! - [`backend`] is the contract between locks and a store.
//! - [`LockClient`] creates the locks. Reentrancy, the queue within a process, retries and the watchdog work in the same way with every store.
//! - [`memory`] is an in-memory store. It is the reference for all other stores.
//!
//! The crate root contains the names that most programs need. Each module contains the names of one topic.
//!
//! A lock cannot stop a process that is paused for longer than its lease. The [fencing token](FencingToken) protects your data from late writes.
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
