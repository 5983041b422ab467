//! The stages of one `lock()` call, in call order. No stage calls another: `engine.rs` calls them all.

pub(crate) mod reentrancy;

pub(crate) mod queue;

pub(crate) mod acquire;

pub(crate) mod watchdog;

pub(crate) mod guard;

pub(crate) mod deadline;
pub(crate) mod hold;
pub(crate) mod reaper;
pub(crate) mod upkeep;

use crate::clock::Instant;

/// How long a call may wait: one budget for all stages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// One attempt, whatever it takes.
    No,
    /// Until this instant.
    Until(Instant),
}

impl Wait {
    /// The instant past which nothing is waited for.
    pub(crate) fn deadline(self, now: Instant) -> Instant {
        match self {
            Self::No => now,
            Self::Until(deadline) => deadline,
        }
    }
}
