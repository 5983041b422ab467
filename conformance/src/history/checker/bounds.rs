//! The time limits for checking a history.

use std::time::Duration;

/// The time limits for checking a history.
///
/// [`History::new`](super::History::new) takes an argument of this type.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The TTL of all leases.
    pub ttl: Duration,
    /// How long the store may take to recover from a fault, and how long clients may take to notice
    /// that a key is free.
    pub recovery: Duration,
    /// How long after the end of a fault a lease may still be lost because of the fault. `None` if
    /// no fault is needed to explain a loss, because the machine may delay any process.
    pub after_effects: Option<Duration>,
}
