//! Counts the attempts of one call, both those sent to the store and those shared with other
//! callers in the process's queue.

use std::time::Duration;

use crate::clock::Instant;
use crate::retry::{Pauses, Retry};

/// The attempts of one call. A pause follows each attempt except the last one.
#[derive(Debug)]
pub(crate) struct RetryState {
    pauses: Pauses,
    began: Instant,
    pause_ends: Option<Instant>,
    may_end: bool,
    by_default: bool,
}

impl RetryState {
    pub(crate) fn new(retry: &Retry, began: Instant) -> Self {
        let (pauses, may_end) = (retry.pauses(), retry.may_end());
        Self { pauses, began, pause_ends: None, may_end, by_default: *retry == Retry::default() }
    }

    /// Returns whether the attempts can be used up before the wait ends.
    pub(crate) fn may_end(&self) -> bool {
        self.may_end
    }

    /// Returns whether the pauses are the default pauses, which the client may skip.
    pub(crate) fn are_by_default(&self) -> bool {
        self.by_default
    }

    /// Returns the end of the current pause, or the end of the next pause if no pause has started.
    /// Returns `None` if no attempts are left.
    pub(crate) fn pause_ends(
        &mut self,
        now: Instant,
        holder_left: Option<Duration>,
    ) -> Option<Instant> {
        if let Some(ends) = self.pause_ends
            && ends > now
        {
            return Some(ends);
        }
        let pause = self.pauses.after(now.since(self.began), holder_left)?;
        self.pause_ends = Some(now + pause);
        self.pause_ends
    }
}
