//! A caller in line.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::line::Stand;
use super::{LocalQueue, Next};
use crate::clock::{self, Clock, Instant};
use crate::error::{Error, ErrorKind, Operation};
use crate::key::LockKey;
use crate::lock::Wait;
use crate::sync::Notify;

/// A caller in line. Dropping it leaves the line.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    pub(super) queue: &'a LocalQueue,
    pub(super) key: &'a LockKey,
    pub(super) ticket: u64,
    pub(super) next: oneshot::Receiver<Next>,
    /// Notified when an outage begins.
    pub(super) outage: Arc<Notify>,
}

impl Waiting<'_> {
    pub(super) async fn wait(
        mut self,
        outage_wait: Duration,
        wait: Wait,
        clock: &dyn Clock,
    ) -> Result<Next, Error> {
        loop {
            let outage = Arc::clone(&self.outage);
            let mut begins = pin!(outage.notified());
            begins.as_mut().enable();
            let told_at = self.queue.at(self.key, |line, _| line.outage_since());
            let told_at = told_at
                .map_or(Instant::FAR_FUTURE, |since| since.max(wait.asked_at()) + outage_wait);
            let look_at = told_at.min(wait.end());
            let event = clock::until(clock, look_at, select(&mut self.next, begins)).await;
            let now = clock.now();
            let next = match event {
                Some(Either::Left((next, _))) => {
                    Some(next.expect("a turn is passed on for as long as a caller is in line"))
                }
                Some(Either::Right(_)) => continue,
                None => None,
            };
            match next {
                Some(next @ (Next::Guard(_) | Next::Held(_))) => return Ok(next),
                // A runtime that was stalled may tell of the turn before it tells that the time is over.
                Some(next) if now < wait.end() => return Ok(next),
                late => {
                    let verdict = self.verdict(now >= wait.end(), now);
                    drop(late);
                    if let Some(verdict) = verdict {
                        return verdict;
                    }
                }
            }
        }
    }

    /// The answer to a caller whose wait is over, or whose patience with an outage.
    fn verdict(&self, is_over: bool, now: Instant) -> Option<Result<Next, Error>> {
        let known = self.queue.at(self.key, |line, _| match &line.stand {
            Stand::Out(outage) => Some(Err(outage.error.repeated())),
            _ if !is_over => None,
            _ if line.was_seen_held_by(self.ticket) => Some(Ok(line.known())),
            _ => Some(Err(unanswered(self.key))),
        })?;
        Some(known.map(|known| Next::Held(known.holder(now))))
    }
}

/// The error of a caller whose wait ended before the store had answered for the first time.
fn unanswered(key: &LockKey) -> Error {
    Error::new(ErrorKind::Indeterminate, "no reply in time")
        .with_operation(Operation::Acquire)
        .with_key(key)
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Dropped with the lines unlocked: it may wake a task.
        let _left = self.queue.at(self.key, |line, _| line.waiters.remove(&self.ticket));
    }
}
