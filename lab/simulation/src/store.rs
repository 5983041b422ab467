//! The simulated store, which runs the state machine that specifies all backends and has a separate clock.

use std::borrow::Cow;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::backend::{Claim, Grant, Lease, Reply, Request};
use leasehold_core::clock::Instant;
use leasehold_core::memory::Machine;
use leasehold_core::{Error, LockKey};

use crate::clock::Rate;

/// The last writes that a replica lacks when it takes over.
const REPLICATION_LAG: Duration = Duration::from_millis(40);

/// A request, as a message carries it.
pub(crate) type Message = Request<'static>;

/// The store's answer to a message.
pub(crate) type Answer = Result<Reply, Error>;

/// Returns all keys of a request.
pub(crate) fn keys(request: &Message) -> Vec<LockKey> {
    request.keys().cloned().collect()
}

/// Returns whether holders are notified of the request in addition to waiters.
pub(crate) fn concerns_holders(request: &Message) -> bool {
    matches!(request, Request::ForceRelease(..) | Request::RequestRevocation(..))
}

/// Returns whether the request grants or renews leases.
pub(crate) fn puts_ttl_in_force(request: &Message) -> bool {
    matches!(request, Request::Raise(..) | Request::Renew(_)) || !request.claims().is_empty()
}

/// Returns the grants in the answer to a request, each with its lease.
pub(crate) fn grants<'a>(request: &'a Message, answer: &'a Answer) -> Vec<(&'a Lease, &'a Grant)> {
    let grants = answer.as_ref().map(Reply::grants).unwrap_or_default();
    request.claims().iter().map(Claim::lease).zip(grants).collect()
}

/// One store, with a separate clock.
#[derive(Debug)]
pub(crate) struct Store {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    machine: Machine,
    /// The writes so far, from which a replica is made.
    log: Vec<(Instant, Message)>,
    /// The largest token so far.
    last_token: u64,
    /// By how much the clock was set forward.
    steps: Duration,
}

impl Store {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, state: Mutex::default() }
    }

    /// Applies a request. Also returns whether waiters for its keys must be notified.
    pub(crate) fn apply(&self, request: &Message, now: Duration) -> (Answer, bool) {
        let mut state = self.state();
        let before = state.machine.changes();
        let now = self.shown_at(now) + state.steps;
        let answer = state.apply(request, now);
        (answer, state.machine.changes() != before)
    }

    /// Loses all leases and queue entries.
    pub(crate) fn wipe(&self, now: Duration) {
        let mut state = self.state();
        state.log.clear();
        let now = self.shown_at(now) + state.steps;
        state.rebuild(now);
    }

    /// Loses all data, including the token counter and the identity.
    pub(crate) fn lose_all(&self) {
        let mut state = self.state();
        let steps = state.steps;
        *state = State { steps, ..State::default() };
    }

    /// Sets the clock forward.
    pub(crate) fn step(&self, by: Duration) {
        self.state().steps += by;
    }

    /// Loses the writes that a replica would lack.
    pub(crate) fn fail_over(&self, now: Duration) {
        let mut state = self.state();
        let now = self.shown_at(now) + state.steps;
        state.log.retain(|(at, _)| now.since(*at) >= REPLICATION_LAG);
        state.rebuild(now);
    }

    /// Returns the number of keys with a lease, a queue entry or a revocation request.
    pub(crate) fn keys(&self) -> usize {
        self.state().machine.keys()
    }

    fn shown_at(&self, now: Duration) -> Instant {
        Instant::from_zero(self.rate.shown_after(now))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, request: &Message, now: Instant) -> Answer {
        let answer = self.machine.apply(request, now);
        let tokens = grants(request, &answer).into_iter();
        let last = tokens.map(|(_, grant)| grant.token() + u64::from(grant.spare_tokens())).max();
        self.last_token = self.last_token.max(last.unwrap_or_default());
        if !matches!(request, Request::Inspect(_)) {
            self.log.push((now, request.clone()));
        }
        answer
    }

    /// Rebuilds the machine from the log. New tokens are larger than all tokens that the store has granted.
    fn rebuild(&mut self, now: Instant) {
        self.machine = Machine::default();
        for (at, request) in mem::take(&mut self.log) {
            drop(self.apply(&request, at));
        }
        let key = LockKey::new("~counter").expect("it is short and plain");
        let lease = Lease::new(&key, Duration::from_secs(1));
        let spare = u32::try_from(self.last_token).expect("a simulation is short");
        let spare = if leasehold_core::flaw!("failover-loses-token-counter") { 0 } else { spare };
        let claim = Claim::new(lease.clone()).with_spare_tokens(spare);
        for request in [Request::Acquire(Cow::Owned(claim)), Request::Release(Cow::Owned(lease))] {
            self.apply(&request, now).expect("no other client uses the key");
        }
    }
}
