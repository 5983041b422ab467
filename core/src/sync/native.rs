//! The synchronization primitives of the standard library and tokio.

pub(crate) use std::sync::{Mutex, atomic};
use std::sync::{MutexGuard, PoisonError};

pub(crate) use tokio::runtime::{Handle, Id};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::{JoinHandle, yield_now};
pub(crate) use tokio::time::timeout;

/// Returns the data of a mutex that no other thread can access. A poisoned mutex is not an error.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, even after another thread has panicked while it held the lock.
///
/// Every critical section of this crate leaves its data consistent, so the client continues to
/// renew and release leases even if a mutex is poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
