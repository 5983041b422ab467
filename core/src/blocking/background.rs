//! The background thread of a blocking client, and the tokio runtime on this thread.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

use crate::contract::error::{Error, ErrorKind};
use crate::engine::process::Process;
use crate::engine::releases::ReleaseQueue;
use crate::options::LockOptions;

/// A runtime on a background thread, which runs until this value and all its clones are dropped.
///
/// The thread owns the runtime and shuts it down, because dropping a runtime blocks and is not
/// allowed in async code.
#[derive(Clone)]
pub(super) struct Background {
    runtime: Handle,
    process: Process,
    /// Keeps the thread alive. The thread exits after all clones of this sender have been dropped.
    lives: UnboundedSender<Arc<ReleaseQueue>>,
    /// `None` until the client has been created.
    releases: Option<Arc<ReleaseQueue>>,
}

/// A guard's handle to the background thread. The handle is dropped after all leases of the guard,
/// and the drop blocks until the leases are released.
pub(super) struct Ending(Option<Background>);

impl Background {
    pub(super) fn start() -> Result<Self, Error> {
        let failed = |error| {
            let message = "cannot start the background thread";
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        };
        let runtime =
            Owned(Some(Builder::new_current_thread().enable_all().build().map_err(failed)?));
        let handle = runtime.get().handle().clone();
        let (lives, life) = mpsc::unbounded_channel();
        thread::Builder::new()
            .name("leasehold".to_owned())
            .spawn(move || runtime.get().block_on(last_until_settled(life)))
            .map_err(failed)?;
        Ok(Self { runtime: handle, process: Process::current(), lives, releases: None })
    }

    /// Keeps the thread alive until all of `releases` have been sent.
    pub(super) fn working_for(self, releases: &Arc<ReleaseQueue>) -> Self {
        // Sending cannot fail, because the thread receives as long as a sender exists.
        let _sent = self.lives.send(Arc::clone(releases));
        Self { releases: Some(Arc::clone(releases)), ..self }
    }

    /// Blocks this thread until `call` has finished. Because this thread polls `call`, this thread
    /// is the owner of the acquired locks.
    pub(super) fn block_on<T, E: From<Error>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // A forked process does not have the background thread.
        self.process.check()?;
        if !may_block() {
            let message =
                "blocking calls are not allowed in async code; await the async methods instead";
            return Err(Error::new(ErrorKind::Unsupported, message).into());
        }
        self.runtime.block_on(call)
    }

    /// Blocks until `future` has finished or `wait` has elapsed.
    pub(super) fn wait_for<T>(
        &self,
        future: impl Future<Output = T>,
        wait: Duration,
    ) -> Result<Option<T>, Error> {
        self.block_on(async { Ok(timeout(wait, future).await.ok()) })
    }
}

impl Ending {
    pub(super) fn new(background: &Background) -> Self {
        Self(Some(background.clone()))
    }

    /// Returns the background handle without blocking. The caller waits for the release instead.
    pub(super) fn take(mut self) -> Background {
        self.0.take().expect("it is taken once, by value")
    }
}

impl Deref for Ending {
    type Target = Background;

    fn deref(&self) -> &Background {
        self.0.as_ref().expect("it is taken by value")
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(Background { releases: Some(releases), process, .. }) = &self.0
            && !process.was_left()
            && may_block()
        {
            releases.wait_until_empty();
        }
    }
}

/// Returns whether this thread is allowed to block. A thread must not block in async code or while
/// it is exiting, because tokio cannot block an exiting thread.
fn may_block() -> bool {
    Handle::try_current().is_err_and(|error| error.is_missing_context())
}

/// A runtime that can be dropped anywhere. If the runtime's thread cannot be started, the code that
/// creates the client drops the runtime, and that code may be async.
struct Owned(Option<Runtime>);

impl Owned {
    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken by the drop alone")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

/// Runs until the client, its locks and its guards have been dropped and all releases are
/// confirmed.
///
/// If the store does not respond, the releases are retried for
/// [`LockOptions::DEFAULT_OUTAGE_WAIT`], like the requests of a waiting caller.
async fn last_until_settled(mut life: UnboundedReceiver<Arc<ReleaseQueue>>) {
    let mut releases = None;
    while let Some(sent) = life.recv().await {
        releases = Some(sent);
    }
    if let Some(releases) = releases {
        let settled = releases.wait_settled();
        if tokio::time::timeout(LockOptions::DEFAULT_OUTAGE_WAIT, settled).await.is_err() {
            releases.report_given_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::clock::TokioClock;
    use crate::contract::backend::Lease;
    use crate::contract::key::LockKey;
    use crate::engine::record::LeaseRecord;
    use crate::engine::releases::PendingRelease;
    use crate::observe::{Events, Observer, ReleaseFailed, Settings};

    #[tokio::test(start_paused = true)]
    async fn a_store_that_never_answers_keeps_the_thread_only_for_a_while() {
        let (lives, life) = mpsc::unbounded_channel();
        let left = LeftToTtl::default();
        let settings = Settings { observers: vec![Box::new(left.clone())], ..Settings::default() };
        let events = Events::new("memory", settings);
        let releases = Arc::new(ReleaseQueue::new(Arc::new(TokioClock::new()), events));
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(3_600));
        PendingRelease::new(LeaseRecord::of(lease, None), &releases).arm();
        lives.send(releases).unwrap();
        drop(lives);

        let start = Instant::now();
        last_until_settled(life).await;

        assert_eq!(start.elapsed(), LockOptions::DEFAULT_OUTAGE_WAIT);
        assert_eq!(*left.0.lock().unwrap(), ["k"]);
    }

    /// The keys whose releases were abandoned.
    #[derive(Clone, Default)]
    struct LeftToTtl(Arc<Mutex<Vec<String>>>);

    impl Observer for LeftToTtl {
        fn on_release_failed(&self, failed: &ReleaseFailed<'_>) {
            assert!(!failed.retried);
            self.0.lock().unwrap().push(failed.key.to_string());
        }
    }
}
