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
pub mod election;
mod face;
mod multi_lock;
mod mutex;
mod reentrant_mutex;
mod rw_lock;
mod semaphore;
mod striped;

mod options;
mod owner;
pub mod retry;

mod engine;
mod lock;

pub mod backend;
mod busy;
mod description;
mod error;
mod holder;
mod key;
mod loss;
mod token;

#[cfg(feature = "blocking")]
pub mod blocking;

pub mod clock;
pub mod fault;
pub mod memory;
pub mod observe;
pub mod quorum;

#[cfg(all(test, shuttle))]
mod models;
mod sync;

pub use busy::Busy;
pub use client::{Builder, LockClient};
pub use description::Description;
pub use error::{Error, ErrorKind};
pub use holder::{Holder, LockKind};
pub use key::{IntoKey, LockKey};
pub use lock::guard::LockGuard;
pub use loss::{LeaseState, LossReason};
pub use multi_lock::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use options::{LockOptions, RenewalMode};
pub use owner::OwnerId;
pub use reentrant_mutex::ReentrantMutex;
pub use rw_lock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
pub use striped::{Striped, StripedGuard};
pub use token::{Fence, FencingToken};
