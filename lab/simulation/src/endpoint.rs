//! The client's end of a connection to a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold_core::LockKey;
use leasehold_core::backend::{KeyWatch, KeyWatches, Subject};

use crate::processor::Processor;
use crate::schedule::LinkId;

/// The state of one process that concerns one store.
pub(crate) struct Endpoint {
    pub(crate) id: LinkId,
    pub(crate) process: u32,
    pub(crate) processor: Processor,
    /// The endpoint does not receive notifications.
    is_muted: bool,
    /// The process has ended.
    is_dead: AtomicBool,
    numbers: AtomicU64,
    waiters: KeyWatches,
    holders: KeyWatches,
}

impl Endpoint {
    pub(crate) fn new(id: LinkId, process: u32, processor: Processor, is_muted: bool) -> Self {
        Self {
            id,
            process,
            processor,
            is_muted,
            is_dead: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            waiters: KeyWatches::default(),
            holders: KeyWatches::default(),
        }
    }

    pub(crate) fn kill_process(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    pub(crate) fn receives_notifications(&self) -> bool {
        !self.is_muted && !self.is_dead()
    }

    /// Returns the number of the next message on this connection.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Lease(lease) => self.holders.watch(lease.key()),
            subject => self.waiters.watch(subject.key()),
        }
    }

    pub(crate) fn notify_waiters(&self, key: &LockKey) {
        self.waiters.notify(key.as_str());
    }

    pub(crate) fn notify_holders(&self, key: &LockKey) {
        self.holders.notify(key.as_str());
    }

    pub(crate) fn watched_keys(&self) -> usize {
        self.waiters.watched_keys() + self.holders.watched_keys()
    }
}
