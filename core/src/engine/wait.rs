//! The time limit of a call that waits for a lock.

use std::time::Duration;

use crate::clock::Instant;

/// The minimum time to wait for a reply, even if the caller's wait is shorter. This time is enough
/// for ten round trips to a nearby server.
const REPLY_WAIT: Duration = Duration::from_millis(50);

/// The time budget of a call, which all its stages share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    asked_at: Instant,
    /// No attempt starts after this time, and only the first reply may arrive later.
    end: Instant,
    /// Whether the call makes a single attempt and returns its result even if the attempt was not
    /// granted.
    once: bool,
}

impl Wait {
    /// Creates the wait of a call that makes one attempt and waits for the reply as long as
    /// necessary.
    pub(crate) fn once(asked_at: Instant) -> Self {
        Self { asked_at, end: Instant::FAR_FUTURE, once: true }
    }

    /// Creates a wait of at most `wait`, or an unlimited wait if `wait` is `None`. Zero means one
    /// attempt.
    pub(crate) fn lasting(wait: Option<Duration>, asked_at: Instant) -> Self {
        match wait {
            None => Self { asked_at, end: Instant::FAR_FUTURE, once: false },
            Some(Duration::ZERO) => Self::once(asked_at),
            Some(wait) => Self { asked_at, end: asked_at + wait, once: false },
        }
    }

    /// Limits the call to one attempt within this wait.
    pub(crate) fn but_once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(crate) fn is_once(self) -> bool {
        self.once
    }

    pub(crate) fn asked_at(self) -> Instant {
        self.asked_at
    }

    /// Returns the time after which no attempt starts and only the first reply is still awaited.
    pub(crate) fn end(self) -> Instant {
        self.end
    }

    /// Returns the time until which the first reply is awaited. Without this minimum, a call whose
    /// wait is shorter than a round trip could not find out whether the key is held.
    pub(crate) fn reply_end(self) -> Instant {
        self.end.max(self.asked_at + REPLY_WAIT)
    }

    /// Returns whether a caller must give up if the key was still held at `now`.
    pub(crate) fn is_over(self, now: Instant) -> bool {
        self.once || now >= self.end
    }
}
