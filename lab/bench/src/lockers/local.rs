//! Tokio's own mutex: the best that a lock within a process can reach.

use tokio::sync::Mutex;

use super::{Lock, Locker};

pub(super) struct Local;

impl Locker for Local {
    /// Leaked, so that locking it touches nothing but the mutex. There are few.
    type Lock = &'static Mutex<()>;

    fn lock(&self, _key: &str) -> Self::Lock {
        Box::leak(Box::default())
    }

    fn locks(&self, key: &str, count: usize) -> Vec<Self::Lock> {
        vec![self.lock(key); count]
    }
}

impl Lock for &'static Mutex<()> {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let guard = self.lock().await;
        let done = work.await;
        drop(guard);
        done
    }
}
