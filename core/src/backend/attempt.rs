//! Outcomes of requests.

use crate::backend::{Contention, Grant};
use crate::key::LockKey;

/// What an attempt to acquire came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Attempt {
    /// The lease is in force.
    Granted(Grant),
    /// Others hold the key.
    Held(Contention),
}

/// What an attempt to acquire several keys at once came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttemptAll {
    /// All leases are in force: one grant per claim, in their order.
    Granted(Vec<Grant>),
    /// Others hold a key, and nothing was granted.
    Held {
        /// The first key that was not to be had.
        key: LockKey,
        /// What is known about it.
        contention: Contention,
    },
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    /// The TTL is in force from when the store received the request.
    Renewed,
    /// As [`Renewal::Renewed`], and somebody [asks](crate::backend::LockBackend::request_revocation) the holder to finish early.
    RevocationRequested,
    /// This lease is not in force, and another is.
    Taken,
    /// This lease is not in force, and none is.
    Vanished,
}

/// What a release came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Release {
    /// This lease was not in force.
    NotHeld,
    /// This lease was in force and is no more.
    Released,
}
