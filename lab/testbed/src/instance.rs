//! A server's process, while there is one.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::Process;

/// The process of a server that is killed, paused and started again. The process dies with this.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    process: Option<Process>,
    paused: AtomicBool,
}

impl Instance {
    /// Takes the place of the process before, which dies.
    pub(crate) fn put(&mut self, process: Process) {
        self.process = Some(process);
        self.paused = AtomicBool::new(false);
    }

    /// Whether it is there and not paused.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && !self.paused.load(Ordering::Relaxed)
    }

    /// # Panics
    ///
    /// If the server is not running.
    pub(crate) fn id(&self) -> u32 {
        self.process().id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Panics
    ///
    /// If the server is not running.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().expect("it was started").exited()
    }

    /// # Panics
    ///
    /// If the server is not running.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
        self.process().pause();
    }

    /// # Panics
    ///
    /// If the server is not running.
    pub(crate) fn resume(&self) {
        self.process().resume();
        self.paused.store(false, Ordering::Relaxed);
    }

    pub(crate) fn kill(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn terminate(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate();
        }
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was not killed")
    }
}
