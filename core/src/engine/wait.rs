//! The time that a call may wait.

use std::time::Duration;

use crate::clock::Instant;

/// How long an answer is waited for, however short the wait: ten round trips to a server nearby.
const REPLY_WAIT: Duration = Duration::from_millis(50);

/// How long a call may wait: one budget for all stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    asked_at: Instant,
    /// No attempt begins past it, and only the first answer is waited for.
    end: Instant,
    /// A refusal or failure of the first attempt is the outcome.
    once: bool,
}

impl Wait {
    /// One attempt, for as long as the store takes to answer.
    pub(crate) fn once(asked_at: Instant) -> Self {
        Self { asked_at, end: Instant::FAR_FUTURE, once: true }
    }

    /// So long, or for ever; without any time, one attempt.
    pub(crate) fn lasting(wait: Option<Duration>, asked_at: Instant) -> Self {
        match wait {
            None => Self { asked_at, end: Instant::FAR_FUTURE, once: false },
            Some(Duration::ZERO) => Self::once(asked_at),
            Some(wait) => Self { asked_at, end: asked_at + wait, once: false },
        }
    }

    /// One attempt, within this wait.
    pub(crate) fn but_once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(crate) fn is_once(self) -> bool {
        self.once
    }

    pub(crate) fn asked_at(self) -> Instant {
        self.asked_at
    }

    /// The instant past which no attempt begins, and none but the first is waited for.
    pub(crate) fn end(self) -> Instant {
        self.end
    }

    /// The instant past which a first answer is not waited for. A wait that is shorter than a round trip would tell nothing else.
    pub(crate) fn reply_end(self) -> Instant {
        self.end.max(self.asked_at + REPLY_WAIT)
    }

    /// Whether a caller that was refused at `now` is not to ask again.
    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.once || now >= self.end
    }
}
