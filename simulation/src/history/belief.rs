//! A time for which a caller believed in its lease.

use std::collections::HashMap;
use std::time::Duration;

use super::event::{Event, EventKind};

/// A hold, of all processes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct HoldId {
    pub(super) process: u32,
    hold: u64,
}

impl HoldId {
    pub(super) fn of(event: &Event) -> Self {
        Self { process: event.process, hold: event.hold }
    }
}

/// The time for which a caller surely believed in its lease.
#[derive(Debug)]
pub(super) struct Belief<'a> {
    pub(super) id: HoldId,
    pub(super) key: &'a str,
    pub(super) token: u64,
    pub(super) units: u32,
    pub(super) limit: u32,
    pub(super) from: Duration,
    pub(super) until: Duration,
    /// The last deadline that is known. A caller that was stopped believes up to then, whether it looks or not.
    deadline: Duration,
    is_over: bool,
}

impl<'a> Belief<'a> {
    /// All beliefs of a history, in the order in which they began.
    pub(super) fn all_of(events: &'a [Event]) -> Vec<Self> {
        let (mut beliefs, mut places) = (Vec::new(), HashMap::new());
        for event in events {
            if let Some(belief) = Self::begun_by(event) {
                places.insert(belief.id, beliefs.len());
                beliefs.push(belief);
            } else if event.kind == EventKind::Killed {
                let of_process = |belief: &&mut Self| belief.id.process == event.process;
                beliefs.iter_mut().filter(of_process).for_each(|belief| belief.end(event.at));
            } else if let Some(place) = places.get(&HoldId::of(event)) {
                beliefs[*place].note(event);
            }
        }
        beliefs.iter_mut().for_each(|belief| belief.end(Duration::MAX));
        beliefs
    }

    fn begun_by(event: &'a Event) -> Option<Self> {
        let EventKind::Entered { key, token, units, limit, deadline } = &event.kind else {
            return None;
        };
        Some(Self {
            id: HoldId::of(event),
            key,
            token: *token,
            units: *units,
            limit: *limit,
            from: event.at,
            until: event.at,
            deadline: *deadline,
            is_over: false,
        })
    }

    fn note(&mut self, event: &Event) {
        match event.kind {
            EventKind::Held { deadline } if !self.is_over => {
                self.until = event.at;
                self.deadline = deadline;
            }
            EventKind::Lost | EventKind::Ends => self.end(event.at),
            _ => {}
        }
    }

    /// Ends it at `at`, or at the deadline if that was earlier.
    fn end(&mut self, at: Duration) {
        if !self.is_over {
            self.until = self.until.max(self.deadline.min(at));
            self.is_over = true;
        }
    }
}
