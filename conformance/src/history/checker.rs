//! Checks a history: reads the events of all processes, and determines which guarantees were
//! violated.

mod bounds;
mod figures;
mod hold;
mod leases;
mod rules;
mod time;

use std::time::Duration;

use crate::history::event::{Event, EventKind};
use crate::history::fault::Hit;
use crate::history::run::{Cause, ClientRow, FaultRow, Run, WriteRow};

use self::hold::Holds;
use self::rules::Rules;
use self::time::Timeline;

pub use self::bounds::Bounds;

/// The events of several processes on one machine with a common clock, and the faults that
/// occurred.
///
/// The check applies every [`Rule`](crate::Rule). Lost updates of a resource without fencing are
/// only counted, because no lock can prevent a process from writing when it wakes up from a long
/// pause.
#[derive(Clone, Debug)]
pub struct History {
    start: Duration,
    events: Vec<Event>,
    faults: Vec<Hit>,
    bounds: Bounds,
}

impl History {
    /// Creates a history from the events of all processes, in any order. Events of one process that
    /// have the same time must be in their original order. All writes must also be in their
    /// original order.
    pub fn new(
        start: Duration,
        mut events: Vec<Event>,
        mut faults: Vec<Hit>,
        bounds: Bounds,
    ) -> Self {
        events.sort_by_key(|event| event.at);
        faults.sort_by_key(|hit| hit.from);
        Self { start, events, faults, bounds }
    }

    /// Checks the history. The caller must add the seed, the class and the machine to the returned
    /// run.
    pub fn check(&self) -> Run {
        let timeline = Timeline::new(self.start);
        let holds = Holds::of(&self.events);
        let mut rules = Rules::new(&timeline, &self.faults, self.bounds);
        rules.check_permits(&holds);
        rules.check_writes(&self.events, &holds);
        rules.check_tokens(&holds);
        rules.check_guards(&self.events, &holds);
        rules.check_losses(&self.events, &holds);
        rules.check_calls(&self.events, &holds);
        rules.check_leases(&self.events, &holds);
        rules.check_end(&self.events);
        let mut run = Run {
            seconds: timeline.seconds(self.events.last().map_or(self.start, |event| event.at)),
            ttl_ms: self.bounds.ttl.as_secs_f64() * 1_000.0,
            clients: self.clients(&timeline),
            holds: holds.rows(&timeline),
            faults: self.faults.iter().map(|hit| fault_row(hit, &timeline)).collect(),
            writes: self.writes(&timeline, &holds),
            ..Run::default()
        };
        figures::fill(&mut run, &self.events, &holds, rules);
        run
    }

    fn clients(&self, timeline: &Timeline) -> Vec<ClientRow> {
        let mut clients: Vec<ClientRow> = Vec::new();
        for event in &self.events {
            let client = clients.iter_mut().find(|client| client.process == event.process);
            let cause = match event.kind {
                EventKind::Started => {
                    let (process, started_ms) = (event.process, timeline.ms(event.at));
                    clients.push(ClientRow { process, started_ms, ended_ms: None, cause: None });
                    continue;
                }
                EventKind::Killed => Cause::Killed,
                EventKind::Ended => Cause::Ended,
                _ => continue,
            };
            if let Some(client) = client {
                client.ended_ms = Some(timeline.ms(event.at));
                client.cause = Some(cause);
            }
        }
        clients
    }

    fn writes(&self, timeline: &Timeline, holds: &Holds) -> Vec<WriteRow> {
        let row = |event: &Event| {
            let EventKind::Wrote { hold, register, accepted, undid } = event.kind else {
                return None;
            };
            let hold = holds.place(event.process, hold)?;
            let (process, at_ms) = (event.process, timeline.ms(event.at));
            Some(WriteRow { process, hold, at_ms, register, accepted, undid })
        };
        self.events.iter().filter_map(row).collect()
    }
}

fn fault_row(hit: &Hit, timeline: &Timeline) -> FaultRow {
    FaultRow {
        kind: hit.kind,
        target: hit.target.clone(),
        from_ms: timeline.ms(hit.from),
        until_ms: timeline.ms(hit.until),
        outside: hit.is_outside,
    }
}
