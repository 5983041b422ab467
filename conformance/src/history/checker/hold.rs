//! The periods in which callers considered themselves the holders of locks.

use std::collections::HashMap;
use std::time::Duration;

use crate::history::event::{Event, EventKind, LeaseInfo};
use crate::history::run::{End, HoldRow, Kind};

use super::time::Timeline;

/// A period in which a caller certainly considered itself a holder.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) process: u32,
    pub(super) task: u32,
    pub(super) key: String,
    pub(super) kind: Kind,
    pub(super) token: u64,
    pub(super) units: u32,
    pub(super) limit: u32,
    pub(super) lease: LeaseInfo,
    pub(super) deadline_at_entry: Duration,
    /// When the caller requested the lock, if this was recorded.
    pub(super) asked: Option<Duration>,
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) end: End,
    /// When the caller was notified of a loss, and the reason.
    pub(super) lost: Option<(Duration, String)>,
    /// The last known deadline. A paused caller counts as a holder until this time, even if it does
    /// not check its guard.
    pub(super) deadline: Duration,
    is_over: bool,
}

/// All holds of a history, in the order of their start.
#[derive(Debug)]
pub(super) struct Holds {
    all: Vec<Hold>,
    places: HashMap<(u32, u64), usize>,
    /// The time when each call started.
    asked: HashMap<(u32, u64), Duration>,
}

impl Holds {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut holds = Self { all: Vec::new(), places: HashMap::new(), asked: HashMap::new() };
        events.iter().for_each(|event| holds.note(event));
        for hold in &mut holds.all {
            hold.end_by(Duration::MAX, None, End::Deadline);
        }
        holds
    }

    pub(super) fn all(&self) -> &[Hold] {
        &self.all
    }

    pub(super) fn place(&self, process: u32, hold: u64) -> Option<usize> {
        self.places.get(&(process, hold)).copied()
    }

    /// Returns the indices of the holds of each key, in the order of their start.
    pub(super) fn by_key(&self) -> Vec<(&str, Vec<usize>)> {
        let mut keys: Vec<(&str, Vec<usize>)> = Vec::new();
        for (place, hold) in self.all.iter().enumerate() {
            match keys.iter_mut().find(|(key, _)| *key == hold.key) {
                Some((_, places)) => places.push(place),
                None => keys.push((&hold.key, vec![place])),
            }
        }
        keys
    }

    pub(super) fn rows(&self, timeline: &Timeline) -> Vec<HoldRow> {
        let row = |hold: &Hold| HoldRow {
            process: hold.process,
            task: hold.task,
            key: hold.key.clone(),
            kind: hold.kind,
            token: hold.token,
            units: hold.units,
            limit: hold.limit,
            from_ms: timeline.ms(hold.from),
            until_ms: timeline.ms(hold.until),
            end: hold.end,
            lost_ms: hold.lost.as_ref().map(|(at, _)| timeline.ms(*at)),
        };
        self.all.iter().map(row).collect()
    }

    fn note(&mut self, event: &Event) {
        let Event { at, process, kind } = event;
        if let EventKind::Asked { call, .. } = kind {
            self.asked.insert((*process, *call), *at);
        }
        if let EventKind::Entered {
            hold,
            call,
            task,
            key,
            kind,
            token,
            units,
            limit,
            deadline,
            lease,
        } = kind
        {
            self.places.insert((*process, *hold), self.all.len());
            self.all.push(Hold {
                process: *process,
                task: *task,
                key: key.clone(),
                kind: *kind,
                token: *token,
                units: *units,
                limit: *limit,
                lease: *lease,
                deadline_at_entry: *deadline,
                asked: self.asked.get(&(*process, *call)).copied(),
                from: *at,
                until: *at,
                end: End::Deadline,
                lost: None,
                deadline: *deadline,
                is_over: false,
            });
            return;
        }
        // A process that finishes shuts down its client, which releases forgotten guards.
        let end_of_process = match kind {
            EventKind::Killed => Some(End::Killed),
            EventKind::Finished(_) => Some(End::Dropped),
            _ => None,
        };
        if let Some(end) = end_of_process {
            let of_process = |hold: &&mut Hold| hold.process == *process;
            for hold in self.all.iter_mut().filter(of_process) {
                hold.end_by(*at, None, end);
            }
            return;
        }
        let (hold, deadline, end) = match kind {
            EventKind::Held { hold, deadline } => (*hold, *deadline, None),
            EventKind::Lost { hold, reason, deadline } => {
                self.note_loss(*process, *hold, *at, reason);
                return self.end(*process, *hold, *at, *deadline, End::Lost);
            }
            EventKind::Ends { hold, deadline, waits } => {
                (*hold, *deadline, Some(if *waits { End::Released } else { End::Dropped }))
            }
            _ => return,
        };
        match end {
            Some(end) => self.end(*process, hold, *at, Some(deadline), end),
            None => {
                if let Some(hold) = self.get_mut(*process, hold) {
                    hold.look(*at, deadline);
                }
            }
        }
    }

    fn note_loss(&mut self, process: u32, hold: u64, at: Duration, reason: &str) {
        if let Some(hold) = self.get_mut(process, hold) {
            hold.lost.get_or_insert((at, reason.to_owned()));
        }
    }

    fn end(&mut self, process: u32, hold: u64, at: Duration, deadline: Option<Duration>, end: End) {
        if let Some(hold) = self.get_mut(process, hold) {
            hold.end_by(at, deadline, end);
        }
    }

    fn get_mut(&mut self, process: u32, hold: u64) -> Option<&mut Hold> {
        let place = self.place(process, hold)?;
        self.all.get_mut(place)
    }
}

impl Hold {
    /// Returns whether the holder excludes all other holders.
    pub(super) fn is_alone(&self) -> bool {
        self.units == self.limit
    }

    pub(super) fn is_at(&self, at: Duration) -> bool {
        self.from <= at && at < self.until
    }

    /// Returns whether the caller ever considered itself a holder. A guard may be lost by the time
    /// that its caller receives it.
    pub(super) fn is_real(&self) -> bool {
        self.from < self.until
    }

    /// Returns whether both holds may have the same token. The guards of one owner of a reentrant
    /// mutex share a lease, and a writer that becomes a reader keeps its lease.
    pub(super) fn shares_lease_with(&self, later: &Self) -> bool {
        let may_share = matches!(
            (self.kind, later.kind),
            (Kind::Reentrant, Kind::Reentrant) | (Kind::Writer, Kind::Reader)
        );
        may_share && self.process == later.process && self.lease.id == later.lease.id
    }

    /// Returns whether this hold was granted before `entered` but received its guard later, because
    /// its grant arrived late.
    pub(super) fn is_late(&self, entered: &Self) -> bool {
        self.token < entered.token && self.asked.is_some_and(|asked| asked < entered.from)
    }

    fn look(&mut self, at: Duration, deadline: Duration) {
        if !self.is_over {
            self.until = self.until.max(at);
            self.deadline = deadline;
        }
    }

    /// Ends the hold at `at`, or at its last deadline if that was earlier.
    fn end_by(&mut self, at: Duration, deadline: Option<Duration>, end: End) {
        if self.is_over {
            return;
        }
        self.deadline = deadline.unwrap_or(self.deadline);
        self.end = if self.deadline <= at { End::Deadline } else { end };
        self.until = self.until.max(self.deadline.min(at));
        self.is_over = true;
    }
}
