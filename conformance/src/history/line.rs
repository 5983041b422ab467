//! The lines that the campaign and its processes write to each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::event::{Event, EventKind};

/// The task of a process, which is the first line that it reads.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    /// The store.
    pub url: String,
    /// The TTL of all leases.
    pub ttl: Duration,
    /// The longest wait for a lock.
    pub patience: Duration,
    /// Its number.
    pub process: u32,
    /// The tasks that lock.
    pub tasks: u32,
    /// How often it tells of the resources that it uses.
    pub sample_every: Duration,
    /// The flaw that the program gives the store, by a name that the program knows.
    pub flaw: Option<String>,
}

/// A line that a process writes.
#[derive(Debug, Deserialize, Serialize)]
pub struct Line {
    /// The number of the line: a line that is missing shows.
    pub n: u64,
    /// The line.
    pub said: Said,
}

/// A part of a process's history, or a request to the resource.
#[derive(Debug, Deserialize, Serialize)]
pub enum Said {
    /// An event.
    Event {
        /// When.
        at: Duration,
        /// The event.
        kind: EventKind,
    },
    /// It reads the unfenced register of a key.
    Read {
        /// The hold.
        hold: u64,
        /// The key.
        key: String,
    },
    /// It writes to the fenced register of a key.
    WriteFenced {
        /// The hold.
        hold: u64,
        /// The key.
        key: String,
        /// The fencing token.
        token: u64,
    },
    /// It writes to the unfenced register of a key the value after the one that it has read.
    WriteUnfenced {
        /// The hold.
        hold: u64,
        /// The key.
        key: String,
        /// The value that it has read.
        read: u64,
    },
}

/// A line that the campaign writes to a process.
#[derive(Debug, Deserialize, Serialize)]
pub enum Order {
    /// The resource has done the request of a hold, and has this value.
    Done {
        /// The hold.
        hold: u64,
        /// The value.
        value: u64,
    },
    /// Finish the work, and leave nothing.
    Finish,
}

impl Said {
    /// The event of a process, if it is one.
    pub fn into_event(self, process: u32) -> Result<Event, Self> {
        match self {
            Self::Event { at, kind } => Ok(Event { at, process, kind }),
            request => Err(request),
        }
    }
}

/// A line as text.
pub fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("lines are plain data") + "\n"
}
