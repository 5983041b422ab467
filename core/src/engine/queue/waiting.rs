//! The wait of a queued caller.

use std::future::poll_fn;
use std::time::Duration;

use super::key_queue::{HeldLease, KeyStatus};
use super::key_queues::SharedKeyQueue;
use super::store_access::Next;
use super::waiter::{Message, Messages};
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::engine::retry_state::RetryState;
use crate::engine::wait::Wait;
use crate::sync::lock;

/// How often a caller that counts its attempts checks whether the caller with the turn has got its
/// first reply.
const FIRST_ANSWER: Duration = Duration::from_millis(25);

/// A queued caller. Dropping this value removes the caller from the queue.
#[derive(Debug)]
pub(super) struct Waiting<'a, H: HeldLease> {
    pub(super) queue: SharedKeyQueue<H, Next<H>>,
    pub(super) key: &'a LockKey,
    pub(super) ticket: u64,
    pub(super) messages: Messages<Next<H>>,
    /// Whether the caller was removed from the queue.
    pub(super) has_left: bool,
}

impl<H: HeldLease> Waiting<'_, H> {
    pub(super) async fn wait(
        mut self,
        outage_wait: Duration,
        wait: Wait,
        retries: &mut RetryState,
        clock: &dyn Clock,
    ) -> Result<Next<H>, Error> {
        let mut knows_of_outage = false;
        // The clock is read only if the attempts or the wait can end.
        let has_end = retries.may_end() || wait.end() < Instant::FAR_FUTURE;
        loop {
            let now = if has_end { clock.now() } else { wait.asked_at() };
            let told_at = if knows_of_outage { lock(&self.queue).outage_since() } else { None };
            let answer = retries.may_end().then(|| self.answer(now));
            let told_at = told_at
                .map_or(Instant::FAR_FUTURE, |since| since.max(wait.asked_at()) + outage_wait);
            let end = if now < wait.end() { wait.end() } else { wait.reply_end() };
            let next_try = match answer {
                None => Instant::FAR_FUTURE,
                Some(None) => now + FIRST_ANSWER,
                Some(Some(answer)) => match retries.pause_ends(now, holder_left(&answer)) {
                    Some(ends) => ends,
                    None => return answer,
                },
            };
            let next_attempt = told_at.min(end).min(next_try);
            let message = poll_fn(|cx| self.messages.poll(cx));
            match clock::until(clock, next_attempt, message).await {
                Some(Message::Next(next)) => {
                    self.has_left = true;
                    if matches!(next, Next::Guard(_)) {
                        return Ok(next);
                    }
                    let now = clock.now();
                    // A stalled runtime may deliver the turn before it reports that the wait has
                    // ended.
                    if now < wait.end() {
                        return Ok(next);
                    }
                    let answer = self.answer(now);
                    // Dropping the turn changes the state of the queue, so the result must be read
                    // first.
                    drop(next);
                    return answer.unwrap_or_else(|| Err(unanswered(self.key)));
                }
                Some(Message::Outage) => knows_of_outage = true,
                Some(Message::Closed) => return Err(Error::closed()),
                None => {
                    let now = clock.now();
                    if now >= told_at.min(wait.end())
                        && let Some(verdict) = self.verdict(wait, now)
                    {
                        return verdict;
                    }
                }
            }
        }
    }

    /// Returns the result for a caller whose wait or `outage_wait` has ended.
    fn verdict(&self, wait: Wait, now: Instant) -> Option<Result<Next<H>, Error>> {
        match self.answer(now) {
            Some(Ok(_)) if now < wait.end() => None,
            None if now >= wait.reply_end() => Some(Err(unanswered(self.key))),
            answer => answer,
        }
    }

    /// Returns what the callers in this process know about the key: the store does not respond, or
    /// another client held the key while this caller was queued.
    fn answer(&self, now: Instant) -> Option<Result<Next<H>, Error>> {
        let queue = lock(&self.queue);
        let known = match &queue.status {
            KeyStatus::Out(outage) => Err(outage.error.repeated()),
            _ if queue.was_seen_held_by(self.ticket) => Ok(queue.known()),
            _ => return None,
        };
        drop(queue);
        Some(known.map(|known| Next::Held(known.holder(now))))
    }
}

/// Returns the remaining time of the holder's lease, if it is known.
fn holder_left<H: HeldLease>(answer: &Result<Next<H>, Error>) -> Option<Duration> {
    match answer {
        Ok(Next::Held(Some(holder))) => holder.remaining(),
        Ok(_) | Err(_) => None,
    }
}

/// Creates the error for a caller whose wait ended before the store's first reply.
fn unanswered(key: &LockKey) -> Error {
    Error::new(ErrorKind::Indeterminate, "no reply in time")
        .with_operation(Operation::Acquire)
        .with_key(key)
}

impl<H: HeldLease> Drop for Waiting<'_, H> {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        lock(&self.queue).leave(self.ticket);
        // A turn or lease that has arrived in the meantime goes to the next caller after the queue
        // has been unlocked.
        drop(self.messages.leave());
    }
}
