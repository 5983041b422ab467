//! The record of all events, and the resource that checks fencing tokens.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_simulation::{Event, EventKind, History};

use crate::now;

/// The record of all events. It lives in the process that is neither stopped nor killed.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    /// The largest token that the resource of a key has seen.
    fences: HashMap<String, u64>,
}

impl Record {
    pub(crate) fn add(&self, event: Event) {
        self.state().events.push(event);
    }

    /// Takes a write, or refuses it, and records that.
    pub(crate) fn write(&self, process: u32, hold: u64, key: String, token: u64) {
        let mut state = self.state();
        let fence = state.fences.entry(key).or_default();
        let accepted = *fence <= token;
        *fence = token.max(*fence);
        // Read with the state locked: writes are recorded in the order in which the resource receives them.
        let at = now();
        state.events.push(Event { at, process, hold, kind: EventKind::Wrote { accepted } });
    }

    /// Records that a process is killed, at `at` or later.
    pub(crate) fn killed(&self, process: u32, at: Duration) {
        self.add(Event { at, process, hold: 0, kind: EventKind::Killed });
    }

    /// Records that a key was free so long after all processes had ended.
    pub(crate) fn freed(&self, key: &str, after: Duration) {
        let kind = EventKind::Freed { key: key.to_owned(), after };
        self.add(Event { at: now(), process: 0, hold: 0, kind });
    }

    pub(crate) fn history(&self) -> History {
        History::new(self.state().events.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
