//! Outcomes of requests.

use crate::contract::backend::{Contention, Grant};
use crate::contract::key::LockKey;

/// The outcome of an attempt to acquire.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Attempt {
    /// The lease is in force.
    Granted(Grant),
    /// Others hold the key.
    Held(Contention),
}

/// The outcome of an attempt to acquire several keys at once.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttemptAll {
    /// All leases are in force: one grant per claim, in their order.
    Granted(Vec<Grant>),
    /// Others hold a key, and nothing was granted.
    Held {
        /// The first key that was not to be had.
        key: LockKey,
        /// The contention for it.
        contention: Contention,
    },
}

/// The outcome of a renewal.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    /// The TTL is in force from when the store received the request.
    Renewed,
    /// As [`Renewal::Renewed`], and an operator or a waiter [asks](crate::backend::LockBackend::request_revocation) the holder to finish early.
    RevocationRequested,
    /// This lease is not in force, and another is.
    Taken,
    /// This lease is not in force, and none is.
    Vanished,
}

/// The outcome of a release.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Release {
    /// This lease was not in force.
    NotHeld,
    /// This lease was in force and is no more.
    Released,
}
