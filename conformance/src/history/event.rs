//! The events that processes record.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant, SystemClock};
use serde::{Deserialize, Serialize};

use crate::history::run::{Kind, Register};

/// An event in a process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Event {
    /// The time on the clock that guards go by, which all processes of the machine share.
    pub at: Duration,
    /// The number of the process. Processes that were started again have other numbers.
    pub process: u32,
    /// The event.
    pub kind: EventKind,
}

/// An event.
///
/// Times are read so that none of them claims more than there was: before a look that finds a lease held, and before a release begins.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum EventKind {
    /// The process started.
    Started,
    /// A task asked for a lock.
    Asked {
        /// The number of the call, of those of the process.
        call: u64,
        /// The key.
        key: String,
    },
    /// The call has ended.
    Answered {
        /// The number of the call.
        call: u64,
        /// `granted`, `busy`, `cancelled`, or the kind of the error.
        outcome: String,
    },
    /// A caller received a guard, and then found it held.
    Entered {
        /// The number of the hold, of those of the process.
        hold: u64,
        /// The call that it answers.
        call: u64,
        /// The task.
        task: u32,
        /// The key.
        key: String,
        /// The kind of lock.
        kind: Kind,
        /// The fencing token.
        token: u64,
        /// The units of the key that the guard has.
        units: u32,
        /// The units of the key that there are.
        limit: u32,
        /// Until when the guard said it would be held.
        deadline: Duration,
    },
    /// A caller looked, and its guard was held.
    Held {
        /// The hold.
        hold: u64,
        /// Until when the guard said it would be held.
        deadline: Duration,
    },
    /// A caller heard that its guard was lost.
    Lost {
        /// The hold.
        hold: u64,
        /// The last deadline of the guard, if the guard is still there.
        deadline: Option<Duration>,
        /// The reason, in a word or two.
        reason: String,
    },
    /// A caller begins to end its guard, which was held.
    Ends {
        /// The hold.
        hold: u64,
        /// The last deadline of the guard.
        deadline: Duration,
        /// Whether it waits for the release. Else the guard is dropped.
        waits: bool,
    },
    /// Work under a lock went on, although it had been told of the loss before.
    WentOn {
        /// The hold.
        hold: u64,
    },
    /// The resource received a write.
    Wrote {
        /// The hold.
        hold: u64,
        /// The register.
        register: Register,
        /// Whether the register took the write.
        accepted: bool,
        /// Whether it undid a write that the writer had not read.
        undid: bool,
    },
    /// The process tells of the resources that it uses.
    Uses(Usage),
    /// The process has finished its work, and nothing of it should be left.
    Finished(Usage),
    /// The campaign killed the process, no earlier than this.
    Killed,
    /// The process has ended by itself.
    Ended,
    /// A line of the process is missing in the record.
    Missing,
    /// The campaign stood still until now, since the machine did not run it.
    Stalled {
        /// How late it was.
        late: Duration,
    },
    /// Another process found the key free, so long after all others had ended.
    Freed {
        /// The key.
        key: String,
        /// How long after.
        after: Duration,
    },
    /// A key was left in the store after all others had ended and their leases, too.
    Left {
        /// The key.
        key: String,
    },
}

/// The resources that a process uses.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// The resident memory, in KiB.
    pub memory_kib: u64,
    /// The open file descriptors.
    pub fds: u64,
    /// The tasks of the runtime.
    pub tasks: u64,
    /// The entries in the maps of the client, by map.
    pub entries: BTreeMap<String, u64>,
}

/// The time on the clock that guards go by.
pub fn now() -> Duration {
    since_boot(SystemClock.now())
}

/// An instant of that clock.
pub fn since_boot(instant: Instant) -> Duration {
    instant.since(Instant::from_zero(Duration::ZERO))
}
