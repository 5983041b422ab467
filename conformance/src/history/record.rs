//! The record of all events, and the resource that processes write to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::history::event::{Event, EventKind, now};
use crate::history::line::{Line, Order, Said};
use crate::history::run::Register;

/// The record of all events. The process that contains the record is never paused or killed.
///
/// The [`history`](super) module shows how the parts work together.
#[derive(Debug, Default)]
pub struct Record(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    registers: HashMap<String, Registers>,
    /// The number of the next line of each process.
    lines: HashMap<u32, u64>,
}

/// The registers of one key.
#[derive(Debug, Default)]
struct Registers {
    /// The largest token that the fenced register has received.
    fence: u64,
    /// The value of the unfenced register.
    value: u64,
}

impl Record {
    /// Records a line from a process. If the line is a request to the resource, runs the request
    /// and returns the reply.
    pub fn hear(&self, process: u32, line: &str) -> Option<Order> {
        // The last line of a killed process may be incomplete.
        let Line { n, said } = serde_json::from_str(line).ok()?;
        let mut state = self.state();
        let next = state.lines.entry(process).or_default();
        let is_missing = *next != n;
        *next = n + 1;
        if is_missing {
            state.events.push(Event { at: now(), process, kind: EventKind::Missing });
        }
        match said.into_event(process) {
            Ok(event) => {
                state.events.push(event);
                None
            }
            Err(request) => state.serve(process, *request),
        }
    }

    /// Records an event with the current time.
    pub fn add(&self, process: u32, kind: EventKind) {
        self.add_at(now(), process, kind);
    }

    /// Records an event with the given time.
    pub fn add_at(&self, at: Duration, process: u32, kind: EventKind) {
        self.state().events.push(Event { at, process, kind });
    }

    /// Returns all events so far.
    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn serve(&mut self, process: u32, request: Said) -> Option<Order> {
        let (hold, value) = match request {
            Said::Read { hold, key } => (hold, self.registers.entry(key).or_default().value),
            Said::WriteFenced { hold, key, token } => {
                let register = self.registers.entry(key).or_default();
                let accepted = register.fence <= token;
                register.fence = token.max(register.fence);
                self.wrote(process, hold, Register::Fenced, accepted, false);
                (hold, token)
            }
            Said::WriteUnfenced { hold, key, read } => {
                let register = self.registers.entry(key).or_default();
                let undid = register.value != read;
                register.value += 1;
                let value = register.value;
                self.wrote(process, hold, Register::Unfenced, true, undid);
                (hold, value)
            }
            Said::Event { .. } => return None,
        };
        Some(Order::Done { hold, value })
    }

    /// The time is read while the state is locked, so writes are recorded in the order in which the
    /// resource receives them.
    fn wrote(&mut self, process: u32, hold: u64, register: Register, accepted: bool, undid: bool) {
        let kind = EventKind::Wrote { hold, register, accepted, undid };
        self.events.push(Event { at: now(), process, kind });
    }
}
