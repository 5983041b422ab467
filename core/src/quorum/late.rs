//! The requests that a call no longer waits for: later calls of the quorum drive them to their ends.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::sync::{Mutex, lock};

/// The requests without a caller. A backend has no tasks of its own: a request that no later call drives is left to the TTL.
#[derive(Default)]
pub(super) struct Late(Mutex<FuturesUnordered<BoxFuture<'static, ()>>>);

impl Late {
    pub(super) fn push(&self, request: impl Future<Output = ()> + Send + 'static) {
        lock(&self.0).push(Box::pin(request));
    }

    /// Drives late requests while `call` runs.
    pub(super) async fn beside<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        poll_fn(|cx| {
            let output = call.as_mut().poll(cx);
            self.poll(cx);
            output
        })
        .await
    }

    /// A request may own the last reference to anything, so the list is unlocked while requests run.
    fn poll(&self, cx: &mut Context<'_>) {
        let mut requests = mem::take(&mut *lock(&self.0));
        while let Poll::Ready(Some(())) = requests.poll_next_unpin(cx) {}
        let mut place = lock(&self.0);
        // The requests that came meanwhile join the others, which need not be polled again.
        requests.extend(mem::replace(&mut *place, FuturesUnordered::new()));
        *place = requests;
    }
}
