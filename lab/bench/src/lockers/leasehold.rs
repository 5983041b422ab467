//! Leasehold's mutex.

use leasehold_core::backend::LockBackend;
use leasehold_core::{ErrorKind, LockClient, Mutex};

use super::{Lock, Locker};

impl<B: LockBackend + ?Sized> Locker for LockClient<B> {
    type Lock = Mutex;

    fn lock(&self, key: &str) -> Mutex {
        self.mutex(key).expect("it is a good key")
    }
}

impl Lock for Mutex {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let guard = self.lock().await.expect("the server is up");
        let done = work.await;
        // Where too few members of a quorum answer in time, the release goes on in the background.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
        }
        done
    }
}
