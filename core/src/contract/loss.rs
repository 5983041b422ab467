//! The states of a lease, and the reasons why a lease is lost.

use std::fmt;

/// The state of a lease, as far as the holder's process knows it without a request to the store.
///
/// ```
/// use leasehold_core::{LeaseState, LockGuard};
///
/// fn report(guard: &LockGuard) -> String {
///     match guard.state() {
///         LeaseState::Held => format!("held for at least {:?}", guard.remaining()),
///         LeaseState::Unconfirmed => format!("renewal overdue; held for another {:?}", guard.remaining()),
///         LeaseState::Lost(reason) => format!("lost: {reason}"),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseState {
    /// The lease is in force, and no renewal is overdue.
    Held,
    /// The lease is in force until its deadline, but a renewal is overdue: the last renewal failed
    /// or was not answered.
    Unconfirmed,
    /// The lease ended before its holder released it. A lost lease never becomes valid again.
    Lost(LossReason),
}

/// The reason why a lease ended before its holder released it.
///
/// See [`LockGuard::lost`](crate::LockGuard::lost) for an example that waits for a loss.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed without a confirmed renewal.
    Expired,
    /// The lease was held for as long as [`LockOptions::max_hold`](crate::LockOptions::max_hold)
    /// allows.
    MaxHold,
    /// The client was shut down.
    Shutdown,
    /// The store reports that another lease holds the key.
    Taken,
    /// The store no longer contains the lease. The lease expired in the store, or was deleted,
    /// flushed, evicted or ended by an operator.
    ///
    /// The store does not record how a lease ended, so the holder cannot distinguish a forced
    /// release from other causes. The log of the operator's process contains the reason for a
    /// forced release.
    Vanished,
    /// The process was forked, and the lease still belongs to the parent process. Only the child
    /// process's copy of the guard reports this loss.
    Forked,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the deadline passed without a confirmed renewal",
            Self::MaxHold => "the lock was held for as long as max_hold allows",
            Self::Shutdown => "the client was shut down",
            Self::Taken => "another client holds the key",
            Self::Vanished => {
                "an operator, another client or a failover removed the lease from the store"
            }
            Self::Forked => "the process was forked, and the lease belongs to the parent",
        })
    }
}
