//! Locks a mutex even if it is poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even after another thread has panicked while it held the lock.
///
/// Use this function for data that is consistent after every statement. A backend then continues to
/// renew and release leases after a panic in another thread.
///
/// ```
/// use std::sync::Mutex;
///
/// use leasehold_core::backend::unpoisoned;
///
/// let count = Mutex::new(1);
/// *unpoisoned(&count) += 1;
/// assert_eq!(*unpoisoned(&count), 2);
/// ```
pub fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
