//! Synchronization with the standard library and tokio.

pub(crate) use std::sync::{Mutex, atomic};
use std::sync::{MutexGuard, PoisonError};

pub(crate) use tokio::runtime::{Handle, Id};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::JoinHandle;

/// Returns the data of a mutex that nothing else can lock. A poisoned mutex is not an error.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, even after another thread has panicked while it held the lock.
///
/// Every critical section of this crate leaves its data consistent, so a poisoned mutex is no
/// reason to stop renewing and releasing leases.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
