//! The lines that the campaign and its processes send to each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::event::{Event, EventKind};

/// The plan for a process, which is the first line that the process reads.
///
/// [`Process::start`](super::process::Process::start) sends the plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    /// The URL of the store.
    pub url: String,
    /// The TTL of all leases.
    pub ttl: Duration,
    /// The longest time that a task waits for a lock.
    pub patience: Duration,
    /// The number of the process.
    pub process: u32,
    /// The number of tasks that acquire locks.
    pub tasks: u32,
    /// How often the process reports its resource usage.
    pub sample_every: Duration,
    /// The name of a flaw that the program adds to the store, if any.
    pub flaw: Option<String>,
}

/// A line that a process writes.
///
/// [`Record::hear`](super::record::Record::hear) reads such lines.
#[derive(Debug, Deserialize, Serialize)]
pub struct Line {
    /// The number of the line. The record uses the numbers to detect missing lines.
    pub n: u64,
    /// The content of the line.
    pub said: Said,
}

/// An event of a process, or a request to the resource.
///
/// [`Line`] contains a value of this type.
#[derive(Debug, Deserialize, Serialize)]
pub enum Said {
    /// An event.
    Event {
        /// The time of the event.
        at: Duration,
        /// The kind of the event.
        kind: EventKind,
    },
    /// A request to read the unfenced register of a key.
    Read {
        /// The number of the hold.
        hold: u64,
        /// The key.
        key: String,
    },
    /// A request to write to the fenced register of a key.
    WriteFenced {
        /// The number of the hold.
        hold: u64,
        /// The key.
        key: String,
        /// The fencing token.
        token: u64,
    },
    /// A request to increment the value of the unfenced register of a key.
    WriteUnfenced {
        /// The number of the hold.
        hold: u64,
        /// The key.
        key: String,
        /// The value that the process has read.
        read: u64,
    },
}

/// A line that the campaign sends to a process.
///
/// [`Record::hear`](super::record::Record::hear) returns such lines.
#[derive(Debug, Deserialize, Serialize)]
pub enum Order {
    /// The resource has completed a hold's request and returned this value.
    Done {
        /// The number of the hold.
        hold: u64,
        /// The value.
        value: u64,
    },
    /// Finish the work and leave nothing behind.
    Finish,
}

impl Said {
    /// Converts the content of a line to an event of the process with this number. If the content
    /// is a request and not an event, returns the content unchanged, as an error.
    pub fn into_event(self, process: u32) -> Result<Event, Box<Self>> {
        match self {
            Self::Event { at, kind } => Ok(Event { at, process, kind }),
            request => Err(Box::new(request)),
        }
    }
}

/// Serializes a line as text.
///
/// [`Process::start`](super::process::Process::start) sends lines in this format.
pub fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("lines are plain data") + "\n"
}
