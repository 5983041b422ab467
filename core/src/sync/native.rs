//! Synchronisation as the standard library and tokio have it.

pub(crate) use std::sync::{Mutex, atomic};
use std::sync::{MutexGuard, PoisonError};

pub(crate) use tokio::runtime::{Handle, Id};
pub(crate) use tokio::sync::Notify;
pub(crate) use tokio::task::JoinHandle;

/// The data of a mutex that nothing else can lock, also after a panic.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, also after a panic elsewhere while it was held.
///
/// Every critical section of this crate leaves its data whole, so a poisoned mutex is no reason to
/// stop renewing and releasing leases.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
