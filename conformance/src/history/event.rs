//! The events that processes record.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant, SystemClock};
use leasehold_core::{Error, ErrorKind, LossReason};
use serde::{Deserialize, Serialize};

use crate::history::run::{Kind, Register};

/// An event in a client process.
///
/// A [`Record`](super::record::Record) contains these events.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Event {
    /// The time of the event on the clock that guards use. All processes on the machine share this
    /// clock.
    pub at: Duration,
    /// The number of the process. A restarted process gets a new number.
    pub process: u32,
    /// The kind of the event.
    pub kind: EventKind,
}

/// The kind of an [`Event`].
///
/// Times are conservative. The time is read before the process checks whether a lease is valid, and
/// before it starts a release.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum EventKind {
    /// The process started.
    Started,
    /// A task requested a lock.
    Asked {
        /// The number of the call within the process.
        call: u64,
        /// The key.
        key: String,
        /// The longest time that the call may take, or `None` if the time is not checked, for
        /// example because the machine may delay the process.
        limit: Option<Duration>,
    },
    /// A call returned.
    Answered {
        /// The number of the call.
        call: u64,
        /// The outcome: `granted`, `busy`, `cancelled`, or the kind of the error.
        outcome: String,
    },
    /// A caller received a guard, which was held.
    Entered {
        /// The number of the hold within the process.
        hold: u64,
        /// The number of the call.
        call: u64,
        /// The number of the task.
        task: u32,
        /// The key.
        key: String,
        /// The type of the lock.
        kind: Kind,
        /// The fencing token, or [`NO_TOKEN`].
        token: u64,
        /// The number of permits of the guard.
        units: u32,
        /// The total number of permits of the key.
        limit: u32,
        /// The deadline of the guard.
        deadline: Duration,
        /// The lease.
        lease: LeaseInfo,
    },
    /// A caller checked its guard, which was held.
    Held {
        /// The number of the hold.
        hold: u64,
        /// The deadline of the guard.
        deadline: Duration,
    },
    /// A caller was notified that its guard was lost.
    Lost {
        /// The number of the hold.
        hold: u64,
        /// The last deadline of the guard, if the guard still exists.
        deadline: Option<Duration>,
        /// The reason, in one or two words.
        reason: String,
    },
    /// A caller started to release a guard, which was held.
    Ends {
        /// The number of the hold.
        hold: u64,
        /// The last deadline of the guard.
        deadline: Duration,
        /// Whether the caller waits for the release. If `false`, the caller drops the guard.
        waits: bool,
    },
    /// Work under a lock continued after the loss notification.
    WentOn {
        /// The number of the hold.
        hold: u64,
    },
    /// The resource received a write.
    Wrote {
        /// The number of the hold.
        hold: u64,
        /// The register.
        register: Register,
        /// Whether the register accepted the write.
        accepted: bool,
        /// Whether the write overwrote a write that the writer had not read.
        undid: bool,
    },
    /// A store granted a lease. Only a simulated store records its grants and revocations.
    Granted {
        /// The number of the store.
        store: u32,
        /// The key.
        key: String,
        /// The number of the lease.
        lease: u64,
        /// The fencing token.
        token: u64,
        /// The last of the tokens that the store has reserved for hand-offs of the lease.
        last_token: u64,
    },
    /// A store received a request to revoke the lease of a key.
    RevocationRequested {
        /// The number of the store.
        store: u32,
        /// The key.
        key: String,
    },
    /// A store notified the process that a key has a revocation request or was force-released.
    Notified {
        /// The number of the store.
        store: u32,
        /// The key.
        key: String,
    },
    /// An operator force-released the leases of a key.
    ForceReleased {
        /// The number of the store.
        store: u32,
        /// The key.
        key: String,
    },
    /// A member of a quorum lost all data, including its token counter.
    TokensLost {
        /// The number of the store.
        store: u32,
    },
    /// A task of the process ran although the process was paused.
    RanPaused,
    /// The process reported its resource usage.
    Uses(Usage),
    /// The process has finished its work, and should not have left anything behind.
    Finished(Usage),
    /// The campaign killed the process, at this time or later.
    Killed,
    /// The process exited on its own.
    Ended,
    /// A line from the process is missing in the record.
    Missing,
    /// The campaign was paused until now, because the machine did not run it.
    Stalled {
        /// How long it was paused.
        late: Duration,
    },
    /// The campaign acquired the key after all clients had exited.
    Freed {
        /// The key.
        key: String,
        /// The time since the clients exited.
        after: Duration,
    },
    /// Something remained although the clients had finished their work.
    Remained {
        /// A noun phrase for what remained.
        what: String,
    },
    /// A key still existed in the store after all clients had exited and their leases had expired.
    Left {
        /// The key.
        key: String,
    },
}

/// The lease of a guard.
///
/// [`EventKind::Entered`] contains a value of this type.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LeaseInfo {
    /// A number that identifies the lease within its process. A lease that is handed off keeps its
    /// number.
    pub id: u64,
    /// The TTL, converted to the clock of the record.
    pub ttl: Duration,
    /// Whether the client renews the lease.
    pub is_renewed: bool,
}

/// The resources that a process uses.
///
/// [`EventKind::Uses`] contains a value of this type.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// The resident memory in KiB.
    pub memory_kib: u64,
    /// The number of open file descriptors.
    pub fds: u64,
    /// The number of tasks in the runtime.
    pub tasks: u64,
    /// The number of entries in each map of the client.
    pub entries: BTreeMap<String, u64>,
}

/// The token of a guard whose store does not support fencing, in [`EventKind::Entered`].
pub const NO_TOKEN: u64 = 0;

/// Returns the outcome of a failed call, as [`EventKind::Answered`] contains it.
pub fn outcome_of(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Timeout => "busy".to_owned(),
        kind => format!("{kind:?}").to_lowercase(),
    }
}

/// Returns the reason for a loss, as [`EventKind::Lost`] contains it.
pub fn reason_of(reason: LossReason) -> String {
    format!("{reason:?}").to_lowercase()
}

/// Returns the current time on the clock that guards use.
///
/// ```
/// use std::time::Duration;
///
/// assert!(leasehold_conformance::history::event::now() > Duration::ZERO);
/// ```
pub fn now() -> Duration {
    since_boot(SystemClock.now())
}

/// Converts an instant of this clock to the time of an [`Event`].
pub fn since_boot(instant: Instant) -> Duration {
    instant.since(Instant::from_zero(Duration::ZERO))
}
