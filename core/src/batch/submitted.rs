//! A caller's view of a queued request.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::batch::lane::{SendBatch, Shared, start};
use crate::contract::error::{Error, ErrorKind};
use crate::sync::{lock, timeout};

/// A request that was [submitted](super::Batcher::submit).
///
/// If this value is dropped before the request was sent, the request is never sent.
///
/// See [`Batcher`](super::Batcher) for an example.
#[must_use = "the request is withdrawn when this value is dropped"]
pub struct Submitted<'a, S: SendBatch> {
    shared: &'a Arc<Shared<S>>,
    number: u64,
    reply: oneshot::Receiver<Result<S::Reply, Error>>,
}

impl<'a, S: SendBatch> Submitted<'a, S> {
    pub(super) fn new(
        shared: &'a Arc<Shared<S>>,
        number: u64,
        reply: oneshot::Receiver<Result<S::Reply, Error>>,
    ) -> Self {
        Self { shared, number, reply }
    }

    /// Waits for the reply. If no lane makes progress, starts a new lane on the caller's runtime.
    ///
    /// After a lane has taken the request, this method waits for at most twice the time in
    /// [`BatchLimits::new`](super::BatchLimits::new).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the request was not sent because the runtime of all
    /// lanes was shut down, or because a new lane is needed and the caller is outside of a tokio
    /// runtime. Returns [`ErrorKind::Indeterminate`] if the request may have been sent
    /// and the runtime of its lane has stalled or was shut down.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A request that has not been sent yet is never sent.
    pub async fn reply(mut self) -> Result<S::Reply, Error> {
        let mut was_taken = false;
        loop {
            match timeout(self.shared.limits.time, &mut self.reply).await {
                Ok(Ok(reply)) => return reply,
                Ok(Err(_dropped)) => return Err(runtime_ended()),
                Err(_elapsed) => {}
            }
            if self.hurry()? {
                continue;
            }
            if was_taken {
                // The reply may have arrived after the time limit.
                return self.reply.try_recv().unwrap_or_else(|_missing| Err(stalled()));
            }
            was_taken = true;
        }
    }

    /// Starts an additional lane if one is allowed and the request is still queued, because the
    /// existing lanes may first have to send many batches. Returns whether the request is queued.
    fn hurry(&self) -> Result<bool, Error> {
        let mut state = lock(&self.shared.state);
        if !state.queue.contains(self.number) {
            return Ok(false);
        }
        let lane = match self.shared.new_lane(&mut state, Instant::now()) {
            Ok(lane) => lane,
            Err(error) => {
                // Another lane must not send the request after its caller received the error.
                let withdrawn = state.queue.remove(self.number);
                drop(state);
                drop(withdrawn);
                return Err(error);
            }
        };
        drop(state);
        start(lane);
        Ok(true)
    }
}

impl<S: SendBatch> fmt::Debug for Submitted<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").field("number", &self.number).finish_non_exhaustive()
    }
}

fn runtime_ended() -> Error {
    let message = "the runtime that sent the request was shut down, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

fn stalled() -> Error {
    let message = "the runtime that sends the request is stalled, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message)
}
