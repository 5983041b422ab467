//! The lines that processes write to each other.

use std::time::Duration;

use leasehold_simulation::Event;
use serde::{Deserialize, Serialize};

/// The task of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) ttl: Duration,
    /// Its number.
    pub(crate) process: u32,
}

/// A line that a process writes.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Line {
    Event(Event),
    /// It writes to the resource that the key guards.
    Write {
        hold: u64,
        key: String,
        token: u64,
    },
}

/// The answer to a write: the resource has received it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) hold: u64,
}

pub(crate) fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("lines are plain data") + "\n"
}
