//! A caller in line.

use std::future::poll_fn;
use std::time::Duration;

use super::asker::Next;
use super::line::{Held, Stand};
use super::lines::SharedLine;
use super::waiter::{Message, Messages};
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::engine::tries::Tries;
use crate::engine::wait::Wait;
use crate::sync::lock;

/// How often a caller that counts its attempts looks whether the caller with the turn has had its first answer.
const FIRST_ANSWER: Duration = Duration::from_millis(25);

/// A caller in line. Dropping it leaves the line.
#[derive(Debug)]
pub(super) struct Waiting<'a, H: Held> {
    pub(super) line: SharedLine<H, Next<H>>,
    pub(super) key: &'a LockKey,
    pub(super) ticket: u64,
    pub(super) messages: Messages<Next<H>>,
    /// It was taken out of the line.
    pub(super) has_left: bool,
}

impl<H: Held> Waiting<'_, H> {
    pub(super) async fn wait(
        mut self,
        outage_wait: Duration,
        wait: Wait,
        tries: &mut Tries,
        clock: &dyn Clock,
    ) -> Result<Next<H>, Error> {
        let mut knows_of_outage = false;
        // Only a caller whose attempts or wait may end needs the time.
        let has_end = tries.may_end() || wait.end() < Instant::FAR_FUTURE;
        loop {
            let now = if has_end { clock.now() } else { wait.asked_at() };
            let told_at = if knows_of_outage { lock(&self.line).outage_since() } else { None };
            let answer = tries.may_end().then(|| self.answer(now));
            let told_at = told_at
                .map_or(Instant::FAR_FUTURE, |since| since.max(wait.asked_at()) + outage_wait);
            let end = if now < wait.end() { wait.end() } else { wait.reply_end() };
            let next_try = match answer {
                None => Instant::FAR_FUTURE,
                Some(None) => now + FIRST_ANSWER,
                Some(Some(answer)) => match tries.pause_ends(now, holder_left(&answer)) {
                    Some(ends) => ends,
                    None => return answer,
                },
            };
            let look_at = told_at.min(end).min(next_try);
            let message = poll_fn(|cx| self.messages.poll(cx));
            match clock::until(clock, look_at, message).await {
                Some(Message::Next(next)) => {
                    self.has_left = true;
                    if matches!(next, Next::Guard(_)) {
                        return Ok(next);
                    }
                    let now = clock.now();
                    // A runtime that was stalled may tell of the turn before it tells that the time is over.
                    if now < wait.end() {
                        return Ok(next);
                    }
                    let answer = self.answer(now);
                    // Passed on once the line was looked at, which that changes.
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

    /// The answer to a caller whose wait is over, or whose patience with an outage.
    fn verdict(&self, wait: Wait, now: Instant) -> Option<Result<Next<H>, Error>> {
        match self.answer(now) {
            Some(Ok(_)) if now < wait.end() => None,
            None if now >= wait.reply_end() => Some(Err(unanswered(self.key))),
            answer => answer,
        }
    }

    /// The state of the key as far as callers of this process know it: the store does not answer, or other clients held it while this caller was in line.
    fn answer(&self, now: Instant) -> Option<Result<Next<H>, Error>> {
        let line = lock(&self.line);
        let known = match &line.stand {
            Stand::Out(outage) => Err(outage.error.repeated()),
            _ if line.was_seen_held_by(self.ticket) => Ok(line.known()),
            _ => return None,
        };
        drop(line);
        Some(known.map(|known| Next::Held(known.holder(now))))
    }
}

/// How long the lease of the holder lasts, if an answer tells.
fn holder_left<H: Held>(answer: &Result<Next<H>, Error>) -> Option<Duration> {
    match answer {
        Ok(Next::Held(Some(holder))) => holder.remaining(),
        Ok(_) | Err(_) => None,
    }
}

/// The error of a caller whose wait ended before the store had answered for the first time.
fn unanswered(key: &LockKey) -> Error {
    Error::new(ErrorKind::Indeterminate, "no reply in time")
        .with_operation(Operation::Acquire)
        .with_key(key)
}

impl<H: Held> Drop for Waiting<'_, H> {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        lock(&self.line).leave(self.ticket);
        // A turn or a lease that came meanwhile is passed on with the line unlocked.
        drop(self.messages.leave());
    }
}
