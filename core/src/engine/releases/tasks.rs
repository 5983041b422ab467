//! Handles releases while no background task is running.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::contract::backend::LockBackend;
use crate::sync::atomic::AtomicUsize;

/// How long drops wait for their releases. This time is enough for a new connection and a release,
/// even on a busy machine. If the store is down, a program that exits is delayed only briefly.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tasks that send releases, and the backend to use while no task is running.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tasks {
    pub(in crate::engine) alive: AtomicUsize,
    /// Set when the first task starts.
    pub(in crate::engine) backend: OnceLock<Arc<dyn LockBackend>>,
}

/// The part of the queue of releases that belongs to the fallback thread.
#[derive(Debug, Default)]
pub(in crate::engine) struct FallbackThread {
    pub(in crate::engine) works: bool,
    /// After this time, drops do not wait. `None` if no release is pending.
    patience_ends: Option<Instant>,
    /// The drops that are waiting. Each drop waits until its sender is dropped.
    pub(in crate::engine) waiting: Vec<Sender<Infallible>>,
}

impl FallbackThread {
    /// Resumes the waiting drops, because no release is pending.
    pub(super) fn note_empty(&mut self) {
        self.patience_ends = None;
        self.waiting.clear();
    }

    /// Registers a waiting drop. Returns `None` if drops currently do not wait.
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
