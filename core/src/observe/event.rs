//! The events that observers receive.

use std::fmt;
use std::time::Duration;

use crate::contract::backend::{Fingerprint, Mode, Operation};
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::loss::LossReason;

/// The lock that an event is about.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// The name of the backend, for example `redis`.
    pub store: &'static str,
    /// The key of the lock.
    pub key: &'a LockKey,
    /// The type of the lock.
    pub kind: AskedKind,
}

/// The type of a lock, as requested by the caller. A writer that is downgraded to a reader is still
/// reported as `Writer`.
///
/// In contrast, a [`LockKind`](crate::LockKind) is derived from the data in the store, and cannot
/// always distinguish an election from a semaphore.
///
/// ```
/// use leasehold_core::observe::AskedKind;
///
/// assert_eq!(AskedKind::Reader.name(), "read");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum AskedKind {
    /// The leadership of an [`Election`](crate::election::Election).
    Election,
    /// A [`Mutex`](crate::Mutex) or [`ReentrantMutex`](crate::ReentrantMutex), including one that
    /// is part of a [`MultiLock`](crate::MultiLock).
    #[default]
    Mutex,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Permits,
    /// The read lock of an [`RwLock`](crate::RwLock).
    Reader,
    /// The write lock of an [`RwLock`](crate::RwLock).
    Writer,
}

/// Event emitted when a call has to wait.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// A holder of the lock, if this process knows one.
    pub holder: Option<&'a Holder>,
}

/// Event emitted when a call has waited for a long time.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LongWait<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// A holder of the lock, if this process knows one.
    pub holder: Option<&'a Holder>,
    /// Whether the task that is waiting for the lock also acquired the lock's current lease.
    /// For a caller outside a task, this field states whether the same thread acquired the lease.
    ///
    /// If this field is `true`, the task is waiting for itself, unless it has passed the guard to
    /// another task.
    pub by_caller: bool,
    /// The time since the call began.
    pub waited: Duration,
}

/// Event emitted when a waiting call sends another request to the store.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Woken<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The reason for the request.
    pub by: WakeUp,
}

/// The reason why a waiting call sends another request to the store.
///
/// ```
/// use leasehold_core::observe::WakeUp;
///
/// assert_eq!(WakeUp::Push.name(), "push");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WakeUp {
    /// A pause ended or the holder's TTL passed without a notification. Frequent polls indicate
    /// that notifications are not arriving.
    Poll,
    /// The store sent a notification.
    Push,
}

/// Event emitted when a call has acquired its lock.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquired<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The fencing token, as a number.
    pub token: u64,
    /// How the call obtained its lease.
    pub path: GrantPath,
    /// The time since the call began.
    pub took: Duration,
    /// Whether the call had to wait, in which case
    /// [`Observer::on_waiting`](super::Observer::on_waiting) was called earlier.
    pub waited: bool,
}

/// How a call obtained its lease.
///
/// ```
/// use leasehold_core::observe::GrantPath;
///
/// assert_eq!(GrantPath::HandedOver.name(), "handed_over");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GrantPath {
    /// The store granted a new lease.
    Granted,
    /// The previous holder, a caller of this process, handed off its lease.
    HandedOver,
    /// The owner already held the lease.
    Reentered,
}

/// Event emitted when a call ends without acquiring its lock.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refused<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The reason for the refusal.
    pub why: Refusal<'a>,
    /// A holder of the lock, if the store reported one.
    pub holder: Option<&'a Holder>,
    /// The time since the call began.
    pub took: Duration,
    /// Whether the call had to wait, in which case
    /// [`Observer::on_waiting`](super::Observer::on_waiting) was called earlier.
    pub waited: bool,
}

/// The reason why a call ends without acquiring its lock.
///
/// ```
/// use leasehold_core::observe::Refusal;
///
/// assert_eq!(Refusal::TimedOut.name(), "timed_out");
/// assert!(Refusal::Busy.error().is_none());
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal<'a> {
    /// Another owner holds the key, and the call makes only one attempt.
    Busy,
    /// The caller dropped the future of the call.
    Cancelled,
    /// The call failed.
    Failed(&'a Error),
    /// Another owner held the key until the wait was over or no attempts were left.
    TimedOut,
}

/// Event emitted when a holder has handed off its lease within the process.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandedOver<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the previous holder.
    pub token: u64,
    /// The token of the next holder.
    pub next_token: u64,
    /// How long the previous holder held the lease.
    pub held: Duration,
}

/// Event emitted when a lock has been held for a long time.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LongHold<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the holder.
    pub token: u64,
    /// How long the lock has been held so far.
    pub held: Duration,
}

/// Event emitted when the store has confirmed a renewal.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the holder.
    pub token: u64,
    /// The time from the scheduled time of the renewal until the store confirmed the renewal. The
    /// lag is normally one round trip. If the client renewed the lease early and the store
    /// confirmed the renewal before the scheduled time, the lag is zero.
    pub lag: Duration,
    /// The time until the new deadline.
    pub remaining: Duration,
}

/// Event emitted when a renewal failed or the store did not reply to it.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RenewalFailed<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the holder.
    pub token: u64,
    /// The error of the renewal.
    pub error: &'a Error,
    /// The time until the deadline.
    pub remaining: Duration,
}

/// Event emitted when a lease has become unconfirmed.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unconfirmed<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the holder.
    pub token: u64,
    /// The error with which the renewal failed, or `None` if the renewal was abandoned.
    pub error: Option<&'a Error>,
    /// The time until the deadline.
    pub remaining: Duration,
}

/// Event emitted when a lease was lost.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lost<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the holder.
    pub token: u64,
    /// The fingerprint of the lease, as reported by
    /// [`Admin::inspect`](crate::admin::Admin::inspect).
    pub lease: Fingerprint,
    /// The reason for the loss.
    pub reason: LossReason,
    /// How long the lease was held.
    pub held: Duration,
}

/// Event emitted when a holder has released its lease.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Released<'a> {
    /// The lock that the event is about.
    pub lock: Subject<'a>,
    /// The token of the holder.
    pub token: u64,
    /// How long the lease was held.
    pub held: Duration,
}

/// Event emitted when the store did not confirm a release.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseFailed<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The key of the lease.
    pub key: &'a LockKey,
    /// The error of the release.
    pub error: &'a Error,
    /// Whether the background task retries the release. If the release is not retried, the lease
    /// expires after its TTL.
    pub retried: bool,
}

/// Event emitted when an operator has ended a lease.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Forced<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The key of the lease.
    pub key: &'a LockKey,
    /// The former holder of the lease.
    pub holder: &'a Holder,
    /// The reason that the operator gave.
    pub why: &'a str,
}

/// Event emitted when a request to the store failed.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoreError<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The operation that failed.
    pub operation: Operation,
    /// The error of the request.
    pub error: &'a Error,
}

/// Event emitted when the store starts or stops responding.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Store<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// Whether the store started or stopped responding.
    pub change: StoreChange<'a>,
}

/// A change of the store's availability, as this client sees it.
///
/// See [`Observer`](crate::observe::Observer) for an example that receives the events of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StoreChange<'a> {
    /// A request was not answered or could not be sent.
    Down {
        /// The operation that failed.
        operation: Operation,
        /// The error of the request.
        error: &'a Error,
    },
    /// The store has started responding.
    Up {
        /// How long the store did not respond, or `None` if this is the first reply that the client
        /// received.
        after: Option<Duration>,
    },
}

/// An event that is being delivered to the observers and the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    Waiting(Waiting<'a>),
    LongWait(LongWait<'a>),
    Woken(Woken<'a>),
    Acquired(Acquired<'a>),
    Refused(Refused<'a>),
    HandedOver(HandedOver<'a>),
    LongHold(LongHold<'a>),
    Renewed(Renewed<'a>),
    RenewalFailed(RenewalFailed<'a>),
    Unconfirmed(Unconfirmed<'a>),
    Lost(Lost<'a>),
    Released(Released<'a>),
    ReleaseFailed(ReleaseFailed<'a>),
    Forced(Forced<'a>),
    StoreError(StoreError<'a>),
    Store(Store<'a>),
}

impl AskedKind {
    /// Returns the type for a reader or writer that requests `mode`.
    pub(crate) fn of_rw_lock(mode: Mode) -> Self {
        if mode.is_exclusive() { Self::Writer } else { Self::Reader }
    }

    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 5] =
        [Self::Election, Self::Mutex, Self::Permits, Self::Reader, Self::Writer];

    /// Returns the name of the lock type, as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Election => "election",
            Self::Mutex => "mutex",
            Self::Permits => "permits",
            Self::Reader => "read",
            Self::Writer => "write",
        }
    }
}

impl WakeUp {
    /// Returns the name of the reason: `poll` or `push`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Push => "push",
        }
    }
}

impl GrantPath {
    /// Returns the name of the path: `granted`, `handed_over` or `reentered`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::HandedOver => "handed_over",
            Self::Reentered => "reentered",
        }
    }
}

impl Refusal<'_> {
    /// Returns the name of the reason: `busy`, `cancelled`, `failed` or `timed_out`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timed_out",
        }
    }

    /// Returns the error if the call failed.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Busy | Self::Cancelled | Self::TimedOut => None,
        }
    }
}

impl fmt::Display for AskedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
