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

use std::time::Duration;

use crate::backend::Contention;
use crate::clock::Instant;
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::key::LockKey;

/// How long a call may wait: one budget for all stages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// One attempt, whatever it takes.
    No,
    /// Until this instant.
    Until(Instant),
}

/// Others hold a key that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) key: LockKey,
    /// One of them, if the store told.
    pub(crate) holder: Option<Holder>,
}

/// The error of whoever calls, or still waits, when the client is shut down.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was shut down")
}

impl Held {
    /// The store tells nothing of them, or was not asked.
    pub(crate) fn by_somebody(key: &LockKey) -> Self {
        Self { key: key.clone(), holder: None }
    }

    pub(crate) fn as_told(key: LockKey, contention: &Contention) -> Self {
        Self { key, holder: contention.holder().cloned() }
    }
}

impl Wait {
    /// So long from `now`, or for ever; without any time, one attempt.
    pub(crate) fn lasting(wait: Option<Duration>, now: Instant) -> Self {
        match wait {
            None => Self::Until(Instant::FAR_FUTURE),
            Some(Duration::ZERO) => Self::No,
            Some(wait) => Self::Until(now + wait),
        }
    }

    /// The instant past which nothing is waited for.
    pub(crate) fn deadline(self, now: Instant) -> Instant {
        match self {
            Self::No => now,
            Self::Until(deadline) => deadline,
        }
    }

    /// The instant past which no further attempt begins, and none is waited for.
    pub(crate) fn end(self) -> Instant {
        match self {
            Self::No => Instant::FAR_FUTURE,
            Self::Until(deadline) => deadline,
        }
    }
}
