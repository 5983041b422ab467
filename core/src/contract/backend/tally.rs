//! Event counters, indexed by the hash of the event's name. A watch that has not been polled yet
//! uses these counters to detect that it may have missed an event.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The number of counters is large enough that different names rarely share a counter. The model
/// tests use a single counter, which all events share.
const COUNTS: usize = if cfg!(shuttle) { 1 } else { 1024 };

/// The increment for one event. The lower half of a counter contains the number of listeners.
const EVENT: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Tally(Box<[AtomicU64]>);

impl Tally {
    /// Counts an event. Returns `false` if there are no listeners.
    pub(super) fn count(&self, hash: u64) -> bool {
        !self.at(hash).fetch_add(EVENT, Ordering::SeqCst).is_multiple_of(EVENT)
    }

    /// Counts an event for every name.
    pub(super) fn count_all(&self) {
        for count in &self.0 {
            count.fetch_add(EVENT, Ordering::SeqCst);
        }
    }

    /// Returns the number of events so far, modulo 2^32.
    pub(super) fn events(&self, hash: u64) -> u32 {
        events(self.at(hash).load(Ordering::SeqCst))
    }

    /// Adds a listener. Returns the number of events so far.
    pub(super) fn listen(&self, hash: u64) -> u32 {
        events(self.at(hash).fetch_add(1, Ordering::SeqCst))
    }

    /// Removes a listener.
    pub(super) fn leave(&self, hash: u64) {
        self.at(hash).fetch_sub(1, Ordering::SeqCst);
    }

    fn at(&self, hash: u64) -> &AtomicU64 {
        let index = usize::try_from(hash % COUNTS as u64).expect("it is below a usize");
        &self.0[index]
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU64::new(0)).collect())
    }
}

fn events(count: u64) -> u32 {
    u32::try_from(count / EVENT).expect("it is the upper half")
}
