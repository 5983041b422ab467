//! The record of everything that happens in a simulation, for the checker of histories.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_conformance::history::checker::{Bounds, History};
use leasehold_conformance::history::event::{
    Event, EventKind, LeaseInfo, NO_TOKEN, Usage, reason_of,
};
use leasehold_conformance::history::fault::{Hit, Window};
use leasehold_conformance::history::run::{Kind, Register, Run};
use leasehold_conformance::{FaultKind, Rule};
use leasehold_core::backend::{Grant, Lease, LeaseId};
use leasehold_core::{LeaseState, LockGuard, LockKey};
use tokio::time::Instant;

use crate::clock::DriftingClock;
use crate::incident::{Incident, Target};
use crate::workload::Taken;

/// The time limits of the rules.
const BOUNDS: Bounds = Bounds {
    // The longest TTL in a simulation, a drift above the drift of all clocks, and the rounding of timers.
    ttl: Duration::from_millis(2_500 + 50),
    // With the TTL, shorter than the wait for each key at the end of a simulation.
    recovery: Duration::from_secs(10),
    // A crash has effects for the longest TTL and the lock delay.
    after_effects: Some(Duration::from_secs(3)),
};

/// The store ends leases whose holders still consider themselves holders.
static LEASES_LOST: Window = Window {
    promise: "data, failovers, clocks and operators: two callers consider themselves holders for at most a TTL",
    rules: &[Rule::Exclusion, Rule::EntryOrder, Rule::Fencing],
    longest: (1, 0),
    after: (1, 0),
};

/// Records the history of a simulation, in the simulation's time.
pub(crate) struct Recorder {
    zero: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    hits: Vec<Hit>,
    /// The client of each process. The number of the first process is one.
    clients: Vec<usize>,
    /// The last number of a call or a hold.
    last_number: u64,
    /// The number of each lease.
    leases: HashMap<LeaseId, u64>,
    /// The guards that callers have.
    guards: BTreeMap<LockKey, Vec<Watched>>,
    /// The token of the last write to the resource that a key guards.
    written: HashMap<LockKey, u64>,
}

/// The caller of a lock, and the terms of its leases.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) process: u32,
    pub(crate) call: u64,
    pub(crate) clock: DriftingClock,
    pub(crate) kind: Kind,
    /// The number of permits of the key. `None` if each guard has all of them.
    pub(crate) limit: Option<u32>,
    /// Whether tokens are in order.
    pub(crate) is_fenced: bool,
    /// Whether the watchdog renews the lease.
    pub(crate) is_renewed: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// A guard that a caller has.
struct Watched {
    taken: Weak<Taken>,
    /// The index of the guard.
    index: usize,
    process: u32,
    hold: u64,
    clock: DriftingClock,
    /// When the guard must report a loss, because of the limit on the time of the hold.
    max_until: Duration,
    /// The last deadline in the record.
    deadline: Duration,
    is_lost: bool,
}

impl Recorder {
    pub(crate) fn new(zero: Instant) -> Self {
        Self { zero, state: Mutex::default() }
    }

    /// Records the start of a process of a client, and returns the number of the process.
    pub(crate) fn started(&self, client: usize) -> u32 {
        let mut state = self.state();
        state.clients.push(client);
        let process = u32::try_from(state.clients.len()).expect("a simulation has few processes");
        self.add(&mut state, process, EventKind::Started);
        process
    }

    /// Records that a process was killed.
    pub(crate) fn killed(&self, process: u32) {
        self.record(process, EventKind::Killed);
    }

    /// Records that a process ran although it was paused.
    pub(crate) fn ran_paused(&self, process: u32) {
        self.record(process, EventKind::RanPaused);
    }

    /// Records the number of entries in each map of a client without work.
    pub(crate) fn finished(&self, process: u32, entries: [(&str, usize); 4]) {
        let entries = entries.map(|(map, count)| (map.to_owned(), count as u64)).into();
        let usage = Usage { entries, ..Usage::default() };
        self.record(process, EventKind::Finished(usage));
    }

    /// Records that something remained after all work.
    pub(crate) fn remained(&self, what: impl Into<String>) {
        self.record(0, EventKind::Remained { what: what.into() });
    }

    /// Records a call, and returns its number. The call must return within the limit, if there is one.
    pub(crate) fn asked(&self, process: u32, key: &str, limit: Option<Duration>) -> u64 {
        let mut state = self.state();
        let call = state.next_number();
        self.add(&mut state, process, EventKind::Asked { call, key: key.to_owned(), limit });
        call
    }

    /// Records that a call returned.
    pub(crate) fn answered(&self, process: u32, call: u64, outcome: impl Into<String>) {
        self.record(process, EventKind::Answered { call, outcome: outcome.into() });
    }

    /// Records that a store granted a lease.
    pub(crate) fn granted(&self, store: usize, lease: &Lease, grant: &Grant) {
        let mut state = self.state();
        let (store, key) = (number(store), lease.key().to_string());
        let (token, lease) = (grant.token(), state.lease(lease.id()));
        let last_token = token + u64::from(grant.spare_tokens());
        self.add(&mut state, 0, EventKind::Granted { store, key, lease, token, last_token });
    }

    /// Records that an operator ended the leases of a key.
    pub(crate) fn force_released(&self, store: usize, key: &LockKey) {
        let mut state = self.state();
        let now = self.zero.elapsed();
        let hit = Hit::new(FaultKind::LeasesRevoked, now, now);
        state.hits.push(Hit { window: Some(&LEASES_LOST), ..hit });
        let (store, key) = (number(store), key.to_string());
        self.add(&mut state, 0, EventKind::ForceReleased { store, key });
    }

    /// Records that a store received a revocation request.
    pub(crate) fn revocation_requested(&self, store: usize, key: &LockKey) {
        let (store, key) = (number(store), key.to_string());
        self.record(0, EventKind::RevocationRequested { store, key });
    }

    /// Records that a process received a notification for the holders of a key. The process may not have received its grant yet.
    pub(crate) fn notified(&self, process: u32, store: usize, key: &LockKey) {
        let (store, key) = (number(store), key.to_string());
        self.record(process, EventKind::Notified { store, key });
    }

    /// Records that a store lost its token counter. Its holders have a majority of other stores.
    pub(crate) fn tokens_lost(&self, store: usize) {
        self.record(0, EventKind::TokensLost { store: number(store) });
    }

    /// Records that a caller received guards, and starts to watch the guards.
    pub(crate) fn entered(&self, taken: Taken, terms: &Terms) -> Arc<Taken> {
        let taken = Arc::new(taken);
        let mut state = self.state();
        let now = self.zero.elapsed();
        for (index, guard) in taken.guards().iter().enumerate() {
            let hold = state.next_number();
            // Clocks that are late, and the rounding of timers.
            let max_hold =
                terms.max_hold.map(|limit| limit + limit / 50 + Duration::from_millis(2));
            let mut watched = Watched {
                taken: Arc::downgrade(&taken),
                index,
                process: terms.process,
                hold,
                clock: terms.clock.clone(),
                max_until: max_hold.map_or(Duration::MAX, |limit| now + limit),
                deadline: Duration::ZERO,
                is_lost: false,
            };
            watched.deadline = watched.deadline_of(guard);
            let entered = EventKind::Entered {
                hold,
                call: terms.call,
                task: 0,
                key: guard.key().to_string(),
                kind: terms.kind,
                token: if terms.is_fenced { guard.token().number() } else { NO_TOKEN },
                units: guard.units(),
                limit: terms.limit.unwrap_or(guard.units()),
                deadline: watched.deadline,
                lease: LeaseInfo {
                    id: state.lease(guard.lease().id()),
                    ttl: terms.clock.time_of(guard.lease().ttl()),
                    is_renewed: terms.is_renewed,
                },
            };
            self.add(&mut state, terms.process, entered);
            state.guards.entry(guard.key().clone()).or_default().push(watched);
        }
        state.look(now);
        drop(state);
        taken
    }

    /// Checks all guards, and records each loss and each new deadline.
    pub(crate) fn look(&self) {
        self.state().look(self.zero.elapsed());
    }

    /// Writes to the resource that the key guards, with the token of an exclusive holder that is sure of its lease.
    pub(crate) fn write(&self, taken: &Arc<Taken>, index: usize) {
        let mut state = self.state();
        let guard = &taken.guards()[index];
        let (key, token) = (guard.key(), guard.token().number());
        let last = state.written.get(key).copied().unwrap_or_default();
        let accepted = token >= last;
        state.written.insert(key.clone(), last.max(token));
        let watched = state.guards.get(key).into_iter().flatten().find(|it| it.is(taken, index));
        let Watched { process, hold, .. } = watched.expect("the guard is watched");
        let (process, hold) = (*process, *hold);
        let wrote = EventKind::Wrote { hold, register: Register::Fenced, accepted, undid: false };
        self.add(&mut state, process, wrote);
    }

    /// Records that a caller begins to end its guards.
    pub(crate) fn ends(&self, taken: &Arc<Taken>) {
        let mut state = self.state();
        for (index, guard) in taken.guards().iter().enumerate() {
            let mut all = state.guards.get(guard.key()).into_iter().flatten();
            let watched = all.find(|it| it.is(taken, index)).expect("the guard is watched");
            if !watched.is_lost {
                let Watched { process, hold, .. } = *watched;
                let deadline = watched.deadline_of(guard);
                self.add(&mut state, process, EventKind::Ends { hold, deadline, waits: false });
            }
        }
    }

    /// Records that the network lost and delayed messages from the start until now.
    pub(crate) fn network_disturbed(&self) {
        let until = self.zero.elapsed();
        self.state().hits.push(Hit::new(FaultKind::NetworkDisturbed, Duration::ZERO, until));
    }

    /// Checks the history of a simulation with these incidents.
    pub(crate) fn check(&self, incidents: &[Incident]) -> Run {
        let mut state = self.state();
        let mut hits = std::mem::take(&mut state.hits);
        // The record already contains each lease that an operator ended.
        let others = incidents.iter().filter(|it| it.kind != FaultKind::LeasesRevoked);
        hits.extend(others.map(|it| hit_of(it, &state.clients)));
        let events = std::mem::take(&mut state.events);
        History::new(Duration::ZERO, events, hits, BOUNDS).check()
    }

    fn record(&self, process: u32, kind: EventKind) {
        self.add(&mut self.state(), process, kind);
    }

    fn add(&self, state: &mut State, process: u32, kind: EventKind) {
        state.events.push(Event { at: self.zero.elapsed(), process, kind });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn lease(&mut self, id: LeaseId) -> u64 {
        let next = self.leases.len() as u64;
        *self.leases.entry(id).or_insert(next)
    }

    fn look(&mut self, at: Duration) {
        let Self { guards, events, .. } = self;
        for guards in guards.values_mut() {
            guards.retain(|watched| watched.taken.strong_count() > 0);
            for watched in guards {
                let process = watched.process;
                events.extend(watched.look(at).map(|kind| Event { at, process, kind }));
            }
        }
    }
}

impl Watched {
    fn is(&self, taken: &Arc<Taken>, index: usize) -> bool {
        self.index == index && self.taken.as_ptr() == Arc::as_ptr(taken)
    }

    /// The deadline in the simulation's time.
    fn deadline_of(&self, guard: &LockGuard) -> Duration {
        self.clock.reaches(guard.deadline()).min(self.max_until)
    }

    /// Reads the state of the guard as the caller would, and returns an event if the state has changed.
    ///
    /// Reading the state of a guard after its deadline wakes tasks. Guards of a paused process are therefore not read, and count as held until the
    /// recorded deadline.
    fn look(&mut self, now: Duration) -> Option<EventKind> {
        let taken = self.taken.upgrade().filter(|_| !self.clock.processor().is_paused())?;
        let guard = &taken.guards()[self.index];
        let (state, deadline, hold) = (guard.state(), self.deadline_of(guard), self.hold);
        let (was_lost, before) = (self.is_lost, self.deadline);
        self.is_lost = matches!(state, LeaseState::Lost(_));
        self.deadline = deadline;
        match state {
            LeaseState::Lost(_) if was_lost => None,
            LeaseState::Lost(reason) => {
                let reason = reason_of(reason);
                Some(EventKind::Lost { hold, deadline: Some(deadline), reason })
            }
            _ if !was_lost && deadline == before && now <= deadline => None,
            _ => Some(EventKind::Held { hold, deadline }),
        }
    }
}

fn number(store: usize) -> u32 {
    u32::try_from(store).expect("a simulation has few stores")
}

fn hit_of(incident: &Incident, clients: &[usize]) -> Hit {
    let hit = Hit::new(incident.kind, incident.at, incident.end());
    match (incident.kind, incident.target) {
        (FaultKind::KeyStalled, Target::Key { key, .. }) => {
            Hit { key: Some(key.to_owned()), ..hit }
        }
        (FaultKind::ClientStopped, Target::Client(client)) => {
            let processes = (1..).zip(clients).filter(|(_, of)| **of == client);
            Hit { stopped: processes.map(|(process, _)| process).collect(), ..hit }
        }
        (
            FaultKind::DataFlushed | FaultKind::FailoverCommanded | FaultKind::MemberClockForward,
            _,
        ) => Hit { window: Some(&LEASES_LOST), ..hit },
        _ => hit,
    }
}
