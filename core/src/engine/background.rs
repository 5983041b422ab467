//! The background work of a client. One task per runtime renews the leases and sends queued
//! releases.

use std::sync::Arc;

use crate::clock::{Clock, Instant};
use crate::contract::backend::{LockBackend, check_timer};
use crate::contract::error::{Error, ErrorKind};
use crate::engine::process::Process;
use crate::engine::record::LeaseRecord;
use crate::engine::reentrancy::OwnerTable;
use crate::engine::releases::ReleaseQueue;
use crate::engine::watchdog::Watchdog;
use crate::observe::Events;
use crate::sync::{Handle, Id, JoinHandle, Mutex, lock};

/// The state shared by a client, its clones and its guards. The tasks end when the last clone and
/// guard are dropped.
#[derive(Debug)]
pub(crate) struct Background {
    backend: Arc<dyn LockBackend>,
    clock: Arc<dyn Clock>,
    owners: Arc<OwnerTable>,
    watchdog: Arc<Watchdog>,
    releases: Arc<ReleaseQueue>,
    events: Events,
    process: Process,
    /// All tasks share the work, so no lease depends on a runtime that has ended or is not driven.
    /// A list is sufficient, because a process has few runtimes.
    tasks: Mutex<Vec<(Id, JoinHandle<()>)>>,
}

impl Background {
    pub(crate) fn new(
        backend: Arc<dyn LockBackend>,
        clock: Arc<dyn Clock>,
        events: Events,
    ) -> Self {
        let watchdog = Watchdog::new(Arc::clone(&clock), &backend.capabilities(), events.clone());
        Self {
            backend,
            owners: Arc::default(),
            watchdog: Arc::new(watchdog),
            releases: Arc::new(ReleaseQueue::new(Arc::clone(&clock), events.clone())),
            clock,
            events,
            process: Process::current(),
            tasks: Mutex::default(),
        }
    }

    /// Ensures that a task runs on the current runtime.
    ///
    /// The first lock call starts the task, so that a client can be created anywhere. Outside a
    /// runtime, a task on any runtime is sufficient.
    pub(crate) fn ensure_running(&self) -> Result<(), Error> {
        let runtime = Handle::try_current();
        let mut tasks = lock(&self.tasks);
        let runs = match &runtime {
            Ok(runtime) => {
                let id = runtime.id();
                tasks.iter().any(|(of, task)| *of == id && !task.is_finished())
            }
            Err(_) => tasks.iter().any(|(_, task)| !task.is_finished()),
        };
        if runs {
            return Ok(());
        }
        let runtime = runtime.map_err(|error| {
            let message = "locks need a tokio runtime; make this call inside one";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
        // Check for a timer before a lease is granted, because without a timer, the task would
        // panic and leases would not be renewed.
        if self.clock.is_real_time() {
            check_timer()?;
        }
        tasks.retain(|(_, task)| !task.is_finished());
        tasks.push((runtime.id(), runtime.spawn(self.task())));
        Ok(())
    }

    fn task(&self) -> impl Future<Output = ()> + Send + 'static {
        let (watchdog, releases) = (Arc::clone(&self.watchdog), Arc::clone(&self.releases));
        let backend = Arc::clone(&self.backend);
        let running = releases.attend(&backend);
        async move {
            // Dropped last, after releases in progress have returned to the queue.
            let _running = running;
            // Each wake-up polls both futures, in this order.
            tokio::select! {
                biased;
                () = watchdog.run(&*backend, &releases) => {}
                () = releases.run(&*backend) => {}
            }
        }
    }

    /// Removes a record after its last guard has been dropped.
    pub(crate) fn forget(&self, record: &LeaseRecord) {
        self.watchdog.remove(record);
        if let Some(owner) = record.owner() {
            self.owners.tidy(record.lease().key(), owner);
        }
    }

    /// Returns the process that created the client.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn backend(&self) -> &dyn LockBackend {
        &*self.backend
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns the clock for futures that must not keep the client alive.
    pub(crate) fn shared_clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn owners(&self) -> &Arc<OwnerTable> {
        &self.owners
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    pub(crate) fn releases(&self) -> &Arc<ReleaseQueue> {
        &self.releases
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.process.was_left() {
            self.releases.finish();
        }
    }
}
