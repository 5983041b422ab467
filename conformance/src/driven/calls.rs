//! The calls that are under way between clients and their store.

use std::sync::Arc;

use tokio::sync::watch::Sender;

/// Counts the calls of a scene's clients. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Sender<Counts>>);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    begun: u64,
    under_way: u64,
}

/// A call that is under way until it is dropped.
#[derive(Debug)]
pub(crate) struct Call(Calls);

impl Calls {
    pub(crate) fn begin(&self) -> Call {
        self.0.send_modify(|counts| {
            counts.begun += 1;
            counts.under_way += 1;
        });
        Call(self.clone())
    }

    /// How many were begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.0.borrow().begun
    }

    /// Waits until none is under way.
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
