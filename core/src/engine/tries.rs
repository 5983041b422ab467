//! The attempts of one call, at the store and in line behind another caller of its process.

use std::time::Duration;

use crate::clock::Instant;
use crate::retry::{Pauses, Retry};

/// The attempts of one call. Each is followed by a pause, and the last one by none.
#[derive(Debug)]
pub(crate) struct Tries {
    pauses: Pauses,
    began: Instant,
    pause_ends: Option<Instant>,
    may_end: bool,
    by_default: bool,
}

impl Tries {
    pub(crate) fn new(retry: &Retry, began: Instant) -> Self {
        let (pauses, may_end) = (retry.pauses(), retry.may_end());
        Self { pauses, began, pause_ends: None, may_end, by_default: *retry == Retry::default() }
    }

    /// Whether attempts may be used up before the wait is over.
    pub(crate) fn may_end(&self) -> bool {
        self.may_end
    }

    /// Whether the pauses have lengths that no caller has stated.
    pub(crate) fn are_by_default(&self) -> bool {
        self.by_default
    }

    /// The end of the pause that the call is in, or else of the next one; `None` if the attempts are used up.
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
