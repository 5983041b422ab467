//! Requests that run in the background because no call is waiting for their replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Requests without a caller, each of which runs in its own task. Clones share the same state.
#[derive(Clone, Default)]
pub(super) struct Late(Arc<State>);

#[derive(Default)]
struct State {
    under_way: AtomicUsize,
    all_ended: Notify,
}

/// Counts a request until the request has finished or its runtime has ended.
struct UnderWay(Arc<State>);

impl Late {
    /// Completes a request in a task on the current runtime. Outside a runtime, the request is
    /// dropped, and the lease expires after its TTL.
    pub(super) fn drive(&self, request: impl Future<Output = ()> + Send + 'static) {
        let under_way = UnderWay::new(&self.0);
        let task = async move {
            request.await;
            drop(under_way);
        };
        drop(Handle::try_current().map(|runtime| runtime.spawn(task)));
    }

    /// Waits until no request is in progress.
    pub(super) async fn all_ended(&self) {
        loop {
            let all_ended = self.0.all_ended.notified();
            if self.0.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            all_ended.await;
        }
    }
}

impl UnderWay {
    fn new(state: &Arc<State>) -> Self {
        state.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(state))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.all_ended.notify_waiters();
        }
    }
}
