//! The same locks for code without a runtime: a call that waits blocks its thread.
//!
//! The types are named like the async ones, and promise the same. All that the docs of those say
//! holds here, but for these differences:
//!
//! - **A thread in the background.** Each client has one of its own, named `leasehold`. It renews leases and releases
//!   dropped guards, also between calls. It ends by itself when the client, its locks and its guards are gone and their
//!   releases are confirmed, at most 10 s later. It does not keep the process alive.
//! - **A drop waits.** Dropping a guard blocks until the store has confirmed the release, as [`Guard::release`] does, for two seconds at
//!   most: a program that ends right after it leaves no lock behind. While the store does not answer, later drops do not wait again.
//!   In async code no drop waits.
//! - **A thread is an owner.** It enters a [`ReentrantMutex`] again. So do threads that share a
//!   [scope](crate::OwnerId::sync_scope).
//! - **Work is not stopped.** Nothing can stop a closure under `run` when the lease is lost; `run` returns
//!   [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after it has ended. Long work looks at
//!   [`Guard::is_held`] or [`Guard::ensure_held`] now and then.
//! - **Not in async code.** A blocked thread would stop tasks that others wait for. Where a tokio runtime is entered (in
//!   tasks, `block_on`, `spawn_blocking`, or under `Handle::enter`), every call that waits returns
//!   [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) at once: await the async types there, in `spawn_blocking` by
//!   `Handle::block_on`. Calls that do not wait are allowed there: making clients, asking guards, dropping both.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_core::blocking::LockClient;
//! use leasehold_core::memory::MemoryBackend;
//!
//! let client = LockClient::new(MemoryBackend::new())?;
//! let mutex = client.mutex("invoice:42")?;
//!
//! let guard = mutex.lock()?;
//! std::thread::scope(|scope| {
//!     scope.spawn(|| assert!(mutex.try_lock_for(Duration::from_millis(10)).is_err()));
//! });
//! println!("held with token {}", guard.token());
//! guard.release()?;
//!
//! let total = mutex.run(|guard| guard.token().number())?;
//! # let _ = total;
//! # Ok::<(), leasehold_core::Error>(())
//! ```

mod client;

mod admin;
mod election;
mod multi_lock;
mod mutex;
mod reentrant_mutex;
mod rw_lock;
mod semaphore;
mod striped;

mod guard;

mod background;

pub use admin::{Admin, KeyList};
pub use client::LockClient;
pub use election::{Election, Leadership, Observer};
pub use guard::Guard;
pub use multi_lock::{MultiGuard, MultiLock};
pub use mutex::Mutex;
pub use reentrant_mutex::ReentrantMutex;
pub use rw_lock::{RwLock, WriteGuard};
pub use semaphore::Semaphore;
pub use striped::{Striped, StripedGuard};
