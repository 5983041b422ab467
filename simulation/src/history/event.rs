//! The events that processes record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An event in a process.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Event {
    /// When, by a clock that all processes of the machine share.
    pub at: Duration,
    /// The number of the process. Processes that were started again have other numbers.
    pub process: u32,
    /// The number of the hold, of those of the process.
    pub hold: u64,
    /// The event.
    pub kind: EventKind,
}

/// An event.
///
/// Times are read so that none of them claims more than there was: before a look that finds a lease held, and before a release begins.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum EventKind {
    /// A caller received a guard, and then found it held.
    Entered {
        /// The key.
        key: String,
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
        /// Until when the guard said it would be held.
        deadline: Duration,
    },
    /// A caller looked, and its guard was lost.
    Lost,
    /// A caller begins to end its guard.
    Ends,
    /// The fenced resource received a write of a caller.
    Wrote {
        /// Whether it took the write.
        accepted: bool,
    },
    /// The process was killed, no earlier than this. Its hold has no meaning.
    Killed,
    /// Another process found the key free, so long after all others had ended. Its hold has no meaning.
    Freed {
        /// The key.
        key: String,
        /// How long after.
        after: Duration,
    },
}
