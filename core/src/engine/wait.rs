//! The time that a call may wait.

use std::time::Duration;

use crate::clock::Instant;

/// How long to wait for a reply at least, even if the wait is shorter. Ten round trips to a nearby
/// server fit into this time.
const REPLY_WAIT: Duration = Duration::from_millis(50);

/// The time budget of a call, which all stages share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    asked_at: Instant,
    /// No attempt starts after this time. Only the first reply may arrive later.
    end: Instant,
    /// Whether the call makes a single attempt and returns its refusal or error.
    once: bool,
}

impl Wait {
    /// One attempt, which waits for the reply as long as necessary.
    pub(crate) fn once(asked_at: Instant) -> Self {
        Self { asked_at, end: Instant::FAR_FUTURE, once: true }
    }

    /// Waits for at most `wait`, or without a limit if it is `None`. Zero means one attempt.
    pub(crate) fn lasting(wait: Option<Duration>, asked_at: Instant) -> Self {
        match wait {
            None => Self { asked_at, end: Instant::FAR_FUTURE, once: false },
            Some(Duration::ZERO) => Self::once(asked_at),
            Some(wait) => Self { asked_at, end: asked_at + wait, once: false },
        }
    }

    /// One attempt within this wait.
    pub(crate) fn but_once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(crate) fn is_once(self) -> bool {
        self.once
    }

    pub(crate) fn asked_at(self) -> Instant {
        self.asked_at
    }

    /// Returns the time after which no attempt starts, and after which no reply except the first is
    /// awaited.
    pub(crate) fn end(self) -> Instant {
        self.end
    }

    /// Returns the time until which the first reply is awaited. If a wait is shorter than a round
    /// trip, the call could not otherwise know whether the key is held.
    pub(crate) fn reply_end(self) -> Instant {
        self.end.max(self.asked_at + REPLY_WAIT)
    }

    /// Returns whether a caller that was refused at `now` has to give up.
    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.once || now >= self.end
    }
}
