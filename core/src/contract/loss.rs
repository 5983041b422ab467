//! The states of a lease, and the reasons for which it is lost.

use std::fmt;

/// The state of a lease, as its holder's process knows it without asking the store.
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
    /// In force, and the last renewal that was due succeeded.
    Held,
    /// In force until the deadline, but the last renewal failed or got no answer.
    Unconfirmed,
    /// Ended before its holder released it. Final.
    Lost(LossReason),
}

/// The reason for which a lease ended before its holder released it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{LockClient, LossReason};
///
/// let client = LockClient::new(MemoryBackend::new());
/// let guard = client.mutex("job")?.lock().await?;
/// client.admin().force_release("job", "an example").await?;
/// match guard.lost().await {
///     Some(LossReason::Expired) => eprintln!("the network or this process was interrupted"),
///     Some(reason) => eprintln!("stopped: {reason}"),
///     None => {} // the guard was released
/// }
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed without a confirmed renewal.
    Expired,
    /// It was held for as long as [`LockOptions::max_hold`](crate::LockOptions::max_hold) allows.
    MaxHold,
    /// The client was shut down.
    Shutdown,
    /// The store says that another holds the key.
    Taken,
    /// The store no longer knows the lease: it expired there, or was deleted, flushed, evicted or ended by an operator.
    ///
    /// A forced release is not told apart: the holder does the same in either case, and no store keeps a mark of the lease that it ended.
    /// The reason is in the log of the operator's process.
    Vanished,
    /// The process was forked. The lease still belongs to the parent, and only the copy of the guard is lost.
    Forked,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed without a confirmed renewal",
            Self::MaxHold => "it was held for as long as max_hold allows",
            Self::Shutdown => "the client was shut down",
            Self::Taken => "the store says that another holds the key",
            Self::Vanished => {
                "the store no longer has it (expired, deleted or ended by an operator)"
            }
            Self::Forked => "the process was forked, and the lease belongs to the parent",
        })
    }
}
