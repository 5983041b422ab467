//! Mutexes that ignore poisoning. The protected data is consistent after every statement, so a
//! panic cannot corrupt it.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
