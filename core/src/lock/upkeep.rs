//! What keeps leases going after the call that took them: one task, with watchdog and reaper.

use std::sync::Arc;

use crate::backend::LockBackend;
use crate::clock::{Clock, Instant};
use crate::error::{Error, ErrorKind};
use crate::lock::hold::Hold;
use crate::lock::reaper::Reaper;
use crate::lock::reentrancy::HoldTable;
use crate::lock::watchdog::Watchdog;
use crate::sync::{Handle, JoinHandle, Mutex, lock};

/// What a client, its clones and its guards share. When the last of them goes, the task ends.
#[derive(Debug)]
pub(crate) struct Upkeep {
    backend: Arc<dyn LockBackend>,
    clock: Arc<dyn Clock>,
    holds: Arc<HoldTable>,
    watchdog: Arc<Watchdog>,
    reaper: Arc<Reaper>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    pub(crate) fn new(backend: Arc<dyn LockBackend>, clock: Arc<dyn Clock>) -> Self {
        let watchdog = Watchdog::new(Arc::clone(&clock), &backend.capabilities());
        Self {
            backend,
            holds: Arc::default(),
            watchdog: Arc::new(watchdog),
            reaper: Arc::new(Reaper::new(Arc::clone(&clock))),
            clock,
            task: Mutex::default(),
        }
    }

    /// Sees to it that the task runs.
    ///
    /// The first call that locks starts it, on its runtime, so that a client can be made anywhere;
    /// and a later one again, if that runtime has ended since.
    pub(crate) fn ensure_running(&self) -> Result<(), Error> {
        let mut task = lock(&self.task);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let runtime = Handle::try_current().map_err(|error| {
            let message = "locks need a tokio runtime: call from inside one";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
        let (watchdog, reaper) = (Arc::clone(&self.watchdog), Arc::clone(&self.reaper));
        let backend = Arc::clone(&self.backend);
        *task = Some(runtime.spawn(async move {
            tokio::select! {
                () = watchdog.run(&*backend, &reaper) => {}
                () = reaper.run(&*backend) => {}
            }
        }));
        Ok(())
    }

    /// Forgets a hold whose last guard has gone.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.watchdog.remove(hold);
        if let Some(owner) = hold.owner() {
            self.holds.tidy(hold.lease().key(), owner);
        }
    }

    pub(crate) fn backend(&self) -> &dyn LockBackend {
        &*self.backend
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn holds(&self) -> &Arc<HoldTable> {
        &self.holds
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    pub(crate) fn reaper(&self) -> &Arc<Reaper> {
        &self.reaper
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.reaper.finish();
    }
}
