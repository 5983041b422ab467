//! The synchronization primitives under `shuttle`, which can switch threads at every scheduling
//! point.
//!
//! `shuttle` has a scheduling point before each operation of its own mutexes and atomics. `shuttle`
//! treats each Tokio operation as an atomic step, so this module adds a scheduling point before
//! each Tokio operation.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) use shuttle::future::{JoinHandle, yield_now};
pub(crate) use shuttle::sync::{Mutex, atomic};
pub(crate) use shuttle::thread::ThreadId as Id;
use tokio::sync::futures::Notified;

/// Returns the data of a mutex that no other thread can access. This function is not a scheduling
/// point.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().expect("a model ends with its first panic")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    MutexGuard(Some(mutex.lock().expect("a model ends with its first panic")))
}

/// A guard that adds a scheduling point after the unlock.
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is unlocked when it is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is unlocked when it is dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.0.take());
        scheduling_point();
    }
}

/// [`tokio::sync::Notify`] with a scheduling point before each step.
#[derive(Debug, Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        scheduling_point();
        self.0.notified()
    }

    pub(crate) fn notify_waiters(&self) {
        scheduling_point();
        self.0.notify_waiters();
    }
}

/// The runtime of a thread in the model. The tasks of the runtime run like threads.
#[derive(Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn try_current() -> Result<Self, Infallible> {
        Ok(Self)
    }

    pub(crate) fn id(&self) -> Id {
        shuttle::thread::current().id()
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        shuttle::future::spawn(task)
    }
}

/// Waits for `future` without a time limit, because timers never fire in a model.
pub(crate) async fn timeout<F: Future>(
    _limit: Duration,
    future: F,
) -> Result<F::Output, Infallible> {
    Ok(future.await)
}

/// Allows another thread to run. `shuttle` does not model time. Unlike `yield_now` in `shuttle`,
/// this sleep does not lower the priority of the thread.
pub(crate) fn scheduling_point() {
    shuttle::thread::sleep(Duration::ZERO);
}
