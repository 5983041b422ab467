//! The time in which no task is there to send releases.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::contract::backend::LockBackend;
use crate::sync::atomic::AtomicUsize;

/// How long drops wait until nothing is left: enough for a new connection and a release on a busy machine, and a program
/// whose store is down ends hardly later.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tasks that send releases, and the store for the time when there are none.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tasks {
    pub(in crate::engine) alive: AtomicUsize,
    /// Known from the first task on.
    pub(in crate::engine) backend: OnceLock<Arc<dyn LockBackend>>,
}

/// The part of the reaper's queue that belongs to the thread.
#[derive(Debug, Default)]
pub(in crate::engine) struct StandIn {
    pub(in crate::engine) works: bool,
    /// By when drops wait no more; `None` while nothing is left.
    patience_ends: Option<Instant>,
    /// The drops that wait: each until its sender is gone.
    pub(in crate::engine) waiting: Vec<Sender<Infallible>>,
}

impl StandIn {
    /// Nothing is left: lets the drops go on that waited for it.
    pub(super) fn note_empty(&mut self) {
        self.patience_ends = None;
        self.waiting.clear();
    }

    /// Has a drop wait, unless the time for that is over.
    pub(in crate::engine) fn wait(&mut self) -> Option<(Receiver<Infallible>, Instant)> {
        let now = Instant::now();
        let ends = *self.patience_ends.get_or_insert(now + PATIENCE);
        (now < ends).then(|| {
            let (sender, receiver) = mpsc::channel();
            self.waiting.push(sender);
            (receiver, ends)
        })
    }
}
