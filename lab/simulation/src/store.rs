//! The store: the state machine that specifies all backends, with a life of its own.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{
    Attempt, AttemptAll, Claim, Enlistment, Fingerprint, Grant, Lease, StoreId,
};
use leasehold_core::clock::Instant;
use leasehold_core::memory::{Machine, Op, Outcome};

use crate::clock::Rate;

/// The last writes that a replica lacks when it takes over.
const REPLICATION_LAG: Duration = Duration::from_millis(40);

/// A request to the store, as a message carries it.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Enlist(Enlistment),
    ForceRelease(LockKey, Option<Fingerprint>),
    Inspect(LockKey),
    Release(Lease),
    Renew(Lease),
    Revoke(LockKey, Option<Fingerprint>),
    Standing(StoreId),
    TryAcquire(Claim),
    TryAcquireAll(Vec<Claim>),
}

impl Request {
    pub(crate) fn keys(&self) -> Vec<LockKey> {
        match self {
            Self::ForceRelease(key, _) | Self::Inspect(key) | Self::Revoke(key, _) => {
                vec![key.clone()]
            }
            Self::Release(lease) | Self::Renew(lease) => vec![lease.key().clone()],
            Self::TryAcquire(claim) => vec![claim.key().clone()],
            Self::TryAcquireAll(claims) => claims.iter().map(|claim| claim.key().clone()).collect(),
            Self::Enlist(_) | Self::Standing(_) => Vec::new(),
        }
    }

    /// Whether holders are notified of the request in addition to waiters.
    pub(crate) fn concerns_holders(&self) -> bool {
        matches!(self, Self::ForceRelease(..) | Self::Revoke(..))
    }

    /// Whether it begins or renews leases.
    pub(crate) fn puts_ttl_in_force(&self) -> bool {
        matches!(self, Self::Renew(_) | Self::TryAcquire(_) | Self::TryAcquireAll(_))
    }

    fn op(&self) -> Op<'_> {
        match self {
            Self::Enlist(enlistment) => Op::Enlist(enlistment),
            Self::ForceRelease(key, only) => Op::ForceRelease(key, *only),
            Self::Inspect(key) => Op::Inspect(key),
            Self::Release(lease) => Op::Release(lease),
            Self::Renew(lease) => Op::Renew(lease),
            Self::Revoke(key, only) => Op::RequestRevocation(key, *only),
            Self::Standing(fresh) => Op::Standing(*fresh),
            Self::TryAcquire(claim) => Op::TryAcquire(claim),
            Self::TryAcquireAll(claims) => Op::TryAcquireAll(claims),
        }
    }

    /// The grants in an outcome of this request, each with its lease.
    pub(crate) fn grants<'a>(&'a self, outcome: &'a Outcome) -> Vec<(&'a Lease, &'a Grant)> {
        match (self, outcome) {
            (Self::TryAcquire(claim), Outcome::Attempt(Attempt::Granted(grant))) => {
                vec![(claim.lease(), grant)]
            }
            (Self::TryAcquireAll(claims), Outcome::AttemptAll(AttemptAll::Granted(grants))) => {
                claims.iter().map(Claim::lease).zip(grants).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// One store, with a clock of its own.
#[derive(Debug)]
pub(crate) struct Store {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    machine: Machine,
    /// The writes so far, from which a replica is made.
    log: Vec<(Instant, Request)>,
    /// The largest token so far.
    last_token: u64,
    /// By how much the clock was set forward.
    steps: Duration,
}

impl Store {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, state: Mutex::default() }
    }

    /// Applies a request; and whether something about its keys has changed for waiters.
    pub(crate) fn apply(&self, request: &Request, now: Duration) -> (Outcome, bool) {
        let mut state = self.state();
        let before = state.machine.changes();
        let now = self.shown_at(now) + state.steps;
        let outcome = state.apply(request, now);
        (outcome, state.machine.changes() != before)
    }

    /// Loses all leases and places.
    pub(crate) fn wipe(&self, now: Duration) {
        let mut state = self.state();
        state.log.clear();
        let now = self.shown_at(now) + state.steps;
        state.rebuild(now);
    }

    /// Loses everything, also its tokens and its identity.
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

    /// How many keys have a lease, a place or a mark.
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
    fn apply(&mut self, request: &Request, now: Instant) -> Outcome {
        let outcome = self.machine.apply(request.op(), now);
        let tokens = request.grants(&outcome).into_iter();
        let last = tokens.map(|(_, grant)| grant.token() + u64::from(grant.spare_tokens())).max();
        self.last_token = self.last_token.max(last.unwrap_or_default());
        if !matches!(request, Request::Inspect(_)) {
            self.log.push((now, request.clone()));
        }
        outcome
    }

    /// Makes the machine anew from the log, with its tokens above all that it ever gave.
    fn rebuild(&mut self, now: Instant) {
        self.machine = Machine::default();
        for (at, request) in mem::take(&mut self.log) {
            self.apply(&request, at);
        }
        let key = LockKey::new("~counter").expect("it is short and plain");
        let lease = Lease::new(&key, Duration::from_secs(1));
        let spare = u32::try_from(self.last_token).expect("a simulation is short");
        let spare = if leasehold_core::flaw!("failover-loses-token-counter") { 0 } else { spare };
        let claim = Claim::new(lease.clone()).with_spare_tokens(spare);
        self.apply(&Request::TryAcquire(claim), now);
        self.apply(&Request::Release(lease), now);
    }
}
