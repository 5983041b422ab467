//! The events.

use std::fmt;
use std::time::Duration;

use crate::contract::backend::{Fingerprint, Operation, Share};
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::loss::LossReason;

/// The lock that an event is about.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// The name of the backend, such as `redis`.
    pub store: &'static str,
    /// The key.
    pub key: &'a LockKey,
    /// The kind of lock.
    pub kind: AskedKind,
}

/// The kind of a lock, as its caller asked for it. A writer that becomes a reader stays `Writer`.
///
/// Unlike the [`LockKind`](crate::LockKind) that a store tells, it sets elections apart.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum AskedKind {
    /// The leadership of an [`Election`](crate::election::Election).
    Election,
    /// A [`Mutex`](crate::Mutex) or [`ReentrantMutex`](crate::ReentrantMutex), also as a part of several locks.
    #[default]
    Mutex,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Permits,
    /// The reading side of an [`RwLock`](crate::RwLock).
    Reader,
    /// The writing side of an [`RwLock`](crate::RwLock).
    Writer,
}

/// A call has to wait.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// A holder, if one is known to this process.
    pub holder: Option<&'a Holder>,
}

/// A call has waited for long.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LongWait<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// A holder, if one is known to this process.
    pub holder: Option<&'a Holder>,
    /// The task that waits took the lock that is in its way; or the thread, outside of tasks. It waits for itself, unless it gave the guard
    /// to another task.
    pub by_caller: bool,
    /// How long, since the call.
    pub waited: Duration,
}

/// A waiting call asks the store again.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Woken<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The reason.
    pub by: WakeUp,
}

/// The reason why a waiting call asks the store again.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WakeUp {
    /// A pause or the holder's TTL is over, without news. Many of these mean that news do not arrive.
    Poll,
    /// The store told that something has changed.
    Push,
}

/// A call has its lock.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquired<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The number of the fencing token.
    pub token: u64,
    /// The source of the lease.
    pub path: GrantPath,
    /// The time since the call.
    pub took: Duration,
    /// Whether the call had to wait, and [`Observer::on_waiting`](super::Observer::on_waiting) came before.
    pub waited: bool,
}

/// The source of a call's lease.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GrantPath {
    /// The store granted a new lease.
    Granted,
    /// The holder before, a caller of this process, passed its lease on.
    HandedOver,
    /// The owner held the lease already.
    Reentered,
}

/// A call ends without its lock.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refused<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The reason.
    pub why: Refusal<'a>,
    /// A holder, if the refusal named one.
    pub holder: Option<&'a Holder>,
    /// The time since the call.
    pub took: Duration,
    /// Whether the call had to wait, and [`Observer::on_waiting`](super::Observer::on_waiting) came before.
    pub waited: bool,
}

/// The reason why a call ends without its lock.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal<'a> {
    /// Another holds the key, and the call makes one attempt only.
    Busy,
    /// The caller dropped the call.
    Cancelled,
    /// The call failed.
    Failed(&'a Error),
    /// Another held the key until the wait or the attempts were used up.
    TimedOut,
}

/// A holder has passed its lease on within the process.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandedOver<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The token of the former holder.
    pub token: u64,
    /// The token of the next holder.
    pub next_token: u64,
    /// How long the former holder had the lease.
    pub held: Duration,
}

/// A lock has been held for long.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LongHold<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The holder's token.
    pub token: u64,
    /// How long so far.
    pub held: Duration,
}

/// The store has confirmed a renewal.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The holder's token.
    pub token: u64,
    /// How long after the renewal had first fallen due its confirmation came: a round trip, if all is well. Zero if it came early.
    pub lag: Duration,
    /// How long until the new deadline.
    pub remaining: Duration,
}

/// A renewal failed or was not answered.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RenewalFailed<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The holder's token.
    pub token: u64,
    /// The failure.
    pub error: &'a Error,
    /// How long until the deadline.
    pub remaining: Duration,
}

/// A lease has become unconfirmed.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unconfirmed<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The holder's token.
    pub token: u64,
    /// The failure of the renewal; `None` if it was abandoned.
    pub error: Option<&'a Error>,
    /// How long until the deadline.
    pub remaining: Duration,
}

/// A lease was lost.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lost<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The holder's token.
    pub token: u64,
    /// The name of the lease, as in the store.
    pub lease: Fingerprint,
    /// The reason.
    pub reason: LossReason,
    /// How long the lease was held.
    pub held: Duration,
}

/// A holder has given its lease back.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Released<'a> {
    /// The lock.
    pub lock: Subject<'a>,
    /// The holder's token.
    pub token: u64,
    /// How long the lease was held.
    pub held: Duration,
}

/// The store did not confirm a release.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReleaseFailed<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The key.
    pub key: &'a LockKey,
    /// The failure.
    pub error: &'a Error,
    /// Whether the background task tries again. If not, the TTL frees the key.
    pub retried: bool,
}

/// An operator has ended a lease.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Forced<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The key.
    pub key: &'a LockKey,
    /// The former holder.
    pub holder: &'a Holder,
    /// The operator's reason.
    pub why: &'a str,
}

/// A request to the store failed.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoreError<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The operation.
    pub operation: Operation,
    /// The failure.
    pub error: &'a Error,
}

/// The store answers, or does not.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Store<'a> {
    /// The name of the backend.
    pub store: &'static str,
    /// The change.
    pub change: StoreChange<'a>,
}

/// A change of the store, as this client sees it.
///
/// See [`Observer`](crate::observe::Observer) for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StoreChange<'a> {
    /// A request was not answered, or could not be sent.
    Down {
        /// The operation.
        operation: Operation,
        /// The failure.
        error: &'a Error,
    },
    /// The store answers.
    Up {
        /// How long it did not; `None` with the first answer that the client gets.
        after: Option<Duration>,
    },
}

/// An event on its way to those that listen.
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
    /// That of a reader-writer lock.
    pub(crate) fn of_rw_lock(share: Share) -> Self {
        if share.is_exclusive() { Self::Writer } else { Self::Reader }
    }

    #[cfg(feature = "metrics")]
    pub(super) const ALL: [Self; 5] =
        [Self::Election, Self::Mutex, Self::Permits, Self::Reader, Self::Writer];

    /// Its name, in one word.
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
    /// The name: `poll` or `push`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Push => "push",
        }
    }
}

impl GrantPath {
    /// The name: `granted`, `handed_over` or `reentered`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::HandedOver => "handed_over",
            Self::Reentered => "reentered",
        }
    }
}

impl Refusal<'_> {
    /// The name: `busy`, `cancelled`, `failed` or `timed_out`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timed_out",
        }
    }

    /// The failure, if there is one.
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
