//! The calls in progress between clients and their store.

use std::sync::Arc;

use tokio::sync::watch::Sender;

/// Counts the calls of a scene's clients. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Sender<Counts>>);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    begun: u64,
    under_way: u64,
    /// Whether time is advancing. While time is advancing, calls wait, because the client's clock
    /// may already have advanced while the store's clock has not.
    is_moving: bool,
}

/// A call that is in progress until this value is dropped.
#[derive(Debug)]
pub(crate) struct Call(Calls);

/// Marks time as advancing until this value is dropped.
#[derive(Debug)]
pub(crate) struct Move(Calls);

impl Calls {
    /// Starts a call. Waits while time is advancing.
    pub(crate) async fn begin(&self) -> Call {
        while !self.is_begun() {
            let moved = self.0.subscribe().wait_for(|counts| !counts.is_moving).await.map(drop);
            moved.expect("the sender is still there");
        }
        Call(self.clone())
    }

    fn is_begun(&self) -> bool {
        self.0.send_if_modified(|counts| {
            counts.begun += u64::from(!counts.is_moving);
            counts.under_way += u64::from(!counts.is_moving);
            !counts.is_moving
        })
    }

    /// Starts to advance time, unless more than `begun` calls were started.
    pub(crate) fn begin_move(&self, begun: u64) -> Option<Move> {
        let is_idle = self.begun() == begun;
        is_idle.then(|| {
            self.0.send_modify(|counts| counts.is_moving = true);
            Move(self.clone())
        })
    }

    /// Returns the number of calls that were started.
    pub(crate) fn begun(&self) -> u64 {
        self.0.borrow().begun
    }

    /// Waits until no call is in progress.
    pub(crate) async fn over(&self) {
        let counts = self.0.subscribe().wait_for(|counts| counts.under_way == 0).await.map(drop);
        counts.expect("the sender is still there");
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.under_way -= 1);
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.is_moving = false);
    }
}
