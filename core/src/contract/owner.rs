//! The owner of a reentrant lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

/// The owner of a [`ReentrantMutex`](crate::ReentrantMutex). An owner of a reentrant mutex can
/// acquire the mutex again while holding it.
///
/// The owner of a lock is the innermost [scope](OwnerId::scope) around the call that acquires it.
/// Without a scope, the owner is the tokio task or, outside a task, the thread. Futures that are
/// joined or selected within one task have the same owner, so one future can acquire a mutex that
/// another future holds. To make joined futures separate owners, give each future its own scope.
///
/// Tasks are recognized only on tokio. On other executors, all tasks on a thread share the same
/// owner, and a task's owner changes if the task moves to a different thread. On executors other
/// than tokio, give each task its own scope.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use leasehold_core::OwnerId;
///
/// let here = OwnerId::current();
/// let inside = OwnerId::new().scope(async { OwnerId::current() }).await;
/// assert_ne!(here, inside);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct OwnerId(Identity);

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Identity {
    Scope(u64),
    Task(tokio::task::Id),
    Thread(ThreadId),
}

tokio::task_local! {
    static SCOPE: OwnerId;
}

impl OwnerId {
    /// Creates an owner that differs from all other owners.
    #[expect(clippy::new_without_default, reason = "two default values would differ")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        Self(Identity::Scope(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Runs `future` with this owner. Tasks that the future spawns do not inherit the owner.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        SCOPE.scope(self, future).await
    }

    /// Runs `work` on the current thread with this owner.
    ///
    /// Use `sync_scope` to make several threads act as one owner, or one thread act as several
    /// owners:
    ///
    /// ```
    /// use leasehold_core::OwnerId;
    ///
    /// let owner = OwnerId::new();
    /// let there = std::thread::spawn(move || owner.sync_scope(OwnerId::current)).join();
    /// assert_eq!(owner.sync_scope(OwnerId::current), there.unwrap());
    /// assert_ne!(OwnerId::current(), owner);
    /// ```
    pub fn sync_scope<T>(self, work: impl FnOnce() -> T) -> T {
        SCOPE.sync_scope(self, work)
    }

    /// Returns the owner under which the calling code would acquire a lock.
    pub fn current() -> Self {
        SCOPE.try_with(|owner| *owner).unwrap_or_else(|_| {
            Self(match tokio::task::try_id() {
                Some(task) => Identity::Task(task),
                None => Identity::Thread(thread::current().id()),
            })
        })
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_different_owners() {
        let first = tokio::spawn(async { OwnerId::current() }).await.unwrap();
        let second = tokio::spawn(async { OwnerId::current() }).await.unwrap();

        assert_ne!(first, second);
    }

    #[tokio::test]
    async fn a_task_is_one_owner_until_a_scope_says_otherwise() {
        tokio::spawn(async {
            let outside = OwnerId::current();
            assert_eq!(outside, OwnerId::current());

            let owner = OwnerId::new();
            owner.scope(async { assert_eq!(OwnerId::current(), owner) }).await;
            assert_eq!(outside, OwnerId::current());
        })
        .await
        .unwrap();
    }

    #[test]
    fn threads_are_owners_outside_of_a_runtime() {
        let here = OwnerId::current();
        let there = thread::spawn(OwnerId::current).join().unwrap();

        assert_eq!(here, OwnerId::current());
        assert_ne!(here, there);
    }
}
