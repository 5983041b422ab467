//! The one task that a client runs: watchdog and reaper.

use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::backend::LockBackend;
use crate::error::{Error, ErrorKind};
use crate::lock::reaper::Reaper;
use crate::lock::watchdog::Watchdog;
use crate::sync::lock;

/// Keeps the task running for as long as the client is used.
///
/// It is started by the first call that locks, on the runtime of that call, so that a client can be
/// made anywhere; and again if that runtime has ended since.
#[derive(Debug, Default)]
pub(crate) struct Background {
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    pub(crate) fn ensure_running(
        &self,
        watchdog: &Arc<Watchdog>,
        reaper: &Arc<Reaper>,
        backend: &Arc<dyn LockBackend>,
    ) -> Result<(), Error> {
        let mut task = lock(&self.task);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let runtime = Handle::try_current().map_err(|error| {
            let message = "locks need a tokio runtime: call from inside one";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
        let (watchdog, reaper, backend) =
            (Arc::clone(watchdog), Arc::clone(reaper), Arc::clone(backend));
        *task = Some(runtime.spawn(async move {
            tokio::select! {
                () = watchdog.run(&*backend) => {}
                () = reaper.run(&*backend) => {}
            }
        }));
        Ok(())
    }
}
