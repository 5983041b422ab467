//! A blocking API for code that does not use an async runtime. A call that has to wait blocks the
//! calling thread.
//!
//! The types in this module have the same names as the async types and provide the same guarantees.
//! The documentation of the async types also applies to the blocking types, with these differences:
//!
//! - **Background thread.** Each client has one thread, named `leasehold`. The thread renews leases
//!   and releases dropped guards. The thread exits after the client, its locks and its guards have
//!   been dropped and all releases are confirmed, but no later than 10 s after the last drop. The
//!   background thread does not keep the process alive.
//!
//! - **Dropping a guard blocks.** Dropping a guard waits up to two seconds for the store to confirm
//!   the release, so a program that exits after the drop does not leave a lock behind. If the store
//!   has not confirmed a release after two seconds, later drops do not wait. Drops wait again after
//!   all pending releases have been confirmed. In async code, dropping a guard never waits.
//!
//! - **Threads are owners.** A thread that holds a [`ReentrantMutex`] can lock it again. Threads
//!   that share a [scope](crate::OwnerId::sync_scope) count as the same owner.
//!
//! - **Work is not cancelled.** A closure passed to `run` cannot be cancelled when the lease is
//!   lost. `run` returns [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after the closure
//!   has finished if the lease was lost. Long work should call [`Guard::is_held`] or
//!   [`Guard::ensure_held`] regularly.
//!
//! - **Not for async code.** Blocking a thread of an async runtime would also block other tasks.
//!   Within a tokio runtime (in tasks, `block_on`, `spawn_blocking`, or under `Handle::enter`),
//!   every call that waits returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
//!   immediately. Use the async types in async code. Inside `spawn_blocking`, run the async calls
//!   with `Handle::block_on`. Within a tokio runtime, calls that do not wait are still allowed:
//!   creating a client, reading the state of a guard, and dropping a client or a guard.
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
