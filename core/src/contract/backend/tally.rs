//! Counts of events by the hashes of names, which tell a watch without a place in any map that it may have missed one.

use crate::sync::atomic::{AtomicU64, Ordering};

/// So many that few events are taken for one of another name. The models have as few as possible, so that many are.
const COUNTS: usize = if cfg!(shuttle) { 1 } else { 1024 };

/// One event; a count has the number of listeners in its lower half.
const EVENT: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Tally(Box<[AtomicU64]>);

impl Tally {
    /// Counts an event; `false` if no watch listens for one.
    pub(super) fn count(&self, hash: u64) -> bool {
        !self.at(hash).fetch_add(EVENT, Ordering::SeqCst).is_multiple_of(EVENT)
    }

    /// Counts an event of each name.
    pub(super) fn count_all(&self) {
        for count in &self.0 {
            count.fetch_add(EVENT, Ordering::SeqCst);
        }
    }

    /// How many events there were, modulo 2^32.
    pub(super) fn events(&self, hash: u64) -> u32 {
        events(self.at(hash).load(Ordering::SeqCst))
    }

    /// Adds a listener, and tells how many events there were before.
    pub(super) fn listen(&self, hash: u64) -> u32 {
        events(self.at(hash).fetch_add(1, Ordering::SeqCst))
    }

    /// Takes a listener away.
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
