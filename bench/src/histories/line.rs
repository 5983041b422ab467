//! What processes say to each other, a line each.

use std::time::Duration;

use leasehold_simulation::Event;
use serde::{Deserialize, Serialize};

/// What a process is to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) ttl: Duration,
    /// Its number.
    pub(crate) process: u32,
}

/// What a process says.
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

/// What it is told: the resource has received the write.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) hold: u64,
}

pub(crate) fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("lines are plain data") + "\n"
}
