//! A group of connections.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::remote::{Link, RunError};

/// How long a connection may be idle before it is closed.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// The pause between two connection attempts of a group, after the first few attempts. A server that
/// recovers has to accept at most 20 connections per second of each runtime of a client.
const PAUSE: Duration = Duration::from_millis(250);

/// The maximum number of connection attempts of a group without a [`PAUSE`].
const BURST: usize = 4;

/// A group of connections for calls with the same urgency.
pub(super) struct Lane<L> {
    /// A permit for each call in progress.
    pub(super) turns: Arc<Semaphore>,
    connections: usize,
    state: Mutex<State<L>>,
    /// Notifies calls that wait for a connection.
    changed: Notify,
}

struct State<L> {
    idle: Vec<Idle<L>>,
    /// The number of calls that wait for a connection.
    waiting: usize,
    /// The number of connection attempts in progress.
    attempts: usize,
    /// The time of the next connection attempt, if all attempts had been made with a pause.
    next: Instant,
    /// The error of the last connection attempt, unless a connection has worked since then.
    failure: Option<RunError>,
    /// The number of failed connection attempts.
    failures: u64,
    /// When the last connection may be closed, even if it is idle.
    kept_until: Instant,
}

struct Idle<L> {
    link: L,
    since: Instant,
}

/// A call that waits for a connection.
pub(super) struct Waiting<'a, L> {
    lane: &'a Lane<L>,
    /// The number of failed connection attempts before the call.
    failures: u64,
}

/// What a call does that needs a connection.
pub(super) enum Step<L> {
    Use(L),
    Fail(RunError),
    /// The call starts a connection attempt, which then ends with [`Lane::connected`].
    Connect,
    /// The call waits for a change, or until this time.
    Wait(Option<Instant>),
}

impl<L: Link> Lane<L> {
    pub(super) fn new(connections: usize) -> Self {
        let now = Instant::now();
        let state = State {
            idle: Vec::new(),
            waiting: 0,
            attempts: 0,
            next: now,
            failure: None,
            failures: 0,
            kept_until: now,
        };
        Self {
            turns: Arc::new(Semaphore::new(connections)),
            connections,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub(super) fn wait(&self) -> Waiting<'_, L> {
        let mut state = self.state();
        state.waiting += 1;
        Waiting { lane: self, failures: state.failures }
    }

    /// Ends a connection attempt.
    pub(super) fn connected(&self, connected: Result<L, RunError>) {
        self.state().attempts -= 1;
        match connected {
            Ok(link) => self.put_back(link),
            Err(error) => {
                let mut state = self.state();
                state.failure = Some(error);
                state.failures += 1;
            }
        }
        // Even an unusable connection ends the attempt that calls may wait for.
        self.changed.notify_waiters();
    }

    /// Returns the error of the last connection attempt, unless a connection has worked since then.
    pub(super) fn failure(&self) -> Option<RunError> {
        self.state().take_failure()
    }

    /// Keeps a connection after a call.
    pub(super) fn put_back(&self, link: L) {
        // There may be connections of several runtimes.
        const MANY: usize = 256;

        let mut state = self.state();
        if !link.is_usable() || self.turns.is_closed() || state.idle.len() >= MANY {
            drop(state);
            return;
        }
        state.failure = None;
        state.idle.push(Idle { link, since: Instant::now() });
        let is_wanted = state.waiting > 0;
        drop(state);
        if is_wanted {
            self.changed.notify_waiters();
        }
    }

    /// Keeps the last connection for this time, even if it is idle.
    pub(super) fn keep_last(&self, time: Duration) {
        let mut state = self.state();
        let until = Instant::now().checked_add(time);
        state.kept_until = until.map_or(state.kept_until, |until| until.max(state.kept_until));
    }

    /// Returns whether there is a connection, in use or idle.
    pub(super) fn has_connection(&self) -> bool {
        let state = self.state();
        self.is_in_use(&state) || state.has_idle()
    }

    /// Returns whether a call would get a connection without a wait.
    pub(super) fn has_idle_connection(&self) -> bool {
        self.turns.available_permits() > 0 && self.state().has_idle()
    }

    /// Returns whether a call uses a connection.
    fn is_in_use(&self, state: &State<L>) -> bool {
        let calls = self.connections.saturating_sub(self.turns.available_permits());
        calls > state.waiting
    }

    /// Closes connections that were not used for [`IDLE`], except the last one if it is
    /// [kept](Self::keep_last) longer. Returns whether there are idle connections left.
    pub(super) fn close_idle(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let mut idle = mem::take(&mut state.idle);
        let is_kept = now < state.kept_until;
        let last = idle.pop_if(|_| is_kept);
        let (young, old): (Vec<_>, Vec<_>) =
            idle.into_iter().partition(|idle| now.duration_since(idle.since) < IDLE);
        state.idle = young;
        state.idle.extend(last);
        let is_left = !state.idle.is_empty();
        // The mutex is unlocked first, because dropping a connection may run arbitrary code.
        drop(state);
        drop(old);
        is_left
    }

    /// Closes all idle connections.
    pub(super) fn disconnect(&self) {
        let idle = mem::take(&mut self.state().idle);
        drop(idle);
    }

    /// Returns the number of idle connections.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.state().idle.len()
    }

    fn state(&self) -> MutexGuard<'_, State<L>> {
        // The state is consistent after every statement, so a panic cannot corrupt it.
        unpoisoned(&self.state)
    }
}

impl<'a, L: Link> Waiting<'a, L> {
    /// Returns a future that is ready as soon as [`step`](Self::step) may have a different result.
    pub(super) fn change(&self) -> Notified<'a> {
        self.lane.changed.notified()
    }

    pub(super) fn step(&self) -> Step<L> {
        let now = Instant::now();
        let mut state = self.lane.state();
        if let Some(link) = state.take_idle() {
            return Step::Use(link);
        }
        // Another call may return its connection, or another attempt may succeed.
        let has_hope = state.attempts > 0 || self.lane.is_in_use(&state);
        if !has_hope
            && state.failures != self.failures
            && let Some(failure) = state.take_failure()
        {
            return Step::Fail(failure);
        }
        if state.attempts >= state.waiting {
            return Step::Wait(None);
        }
        // The first attempts need no pause.
        let burst = u32::try_from(self.lane.connections.min(BURST)).unwrap_or(1);
        let allowed = state.next.checked_sub(PAUSE * (burst - 1)).unwrap_or(now);
        if allowed <= now {
            state.next = state.next.max(now) + PAUSE;
            state.attempts += 1;
            return Step::Connect;
        }
        if !has_hope && let Some(failure) = state.take_failure() {
            return Step::Fail(failure);
        }
        Step::Wait(Some(allowed))
    }
}

impl<L> Drop for Waiting<'_, L> {
    fn drop(&mut self) {
        unpoisoned(&self.lane.state).waiting -= 1;
    }
}

impl<L: Link> State<L> {
    /// Removes the connection that was used last, so that connections that are not needed become old.
    fn take_idle(&mut self) -> Option<L> {
        let last = self.idle.iter().rposition(Idle::is_usable)?;
        Some(self.idle.remove(last).link)
    }

    fn has_idle(&self) -> bool {
        self.idle.iter().any(Idle::is_usable)
    }

    /// Returns the error of the last connection attempt, and keeps a copy.
    fn take_failure(&mut self) -> Option<RunError> {
        let copy = self.failure.as_ref()?.repeated();
        self.failure.replace(copy)
    }
}

impl<L: Link> Idle<L> {
    fn is_usable(&self) -> bool {
        self.link.is_usable()
    }
}
