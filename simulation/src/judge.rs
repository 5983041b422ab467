//! The judge of promises.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Grant, LockGuard, LockKey};

use crate::workload::Taken;

/// The longest TTL in a simulation, a drift above all that clocks have, and the rounding of timers.
const BELIEF_AFTER_LOSS: Duration = Duration::from_millis(2_500 + 50);

/// The violations that a report tells of; more of the same run say nothing new.
const TOLD: usize = 5;

/// Watches all holders of a simulation.
#[derive(Default)]
pub(crate) struct Judge(Mutex<State>);

#[derive(Default)]
struct State {
    beliefs: HashMap<LockKey, Vec<Belief>>,
    /// The largest token that the store has granted or reserved for a key.
    granted: HashMap<LockKey, u64>,
    /// Tokens that a guard of an exclusive lock has.
    used: HashSet<(LockKey, u64)>,
    /// The token of the last write to the resource that a key guards.
    written: HashMap<LockKey, u64>,
    /// Until then, overlaps are among those that the promises grant.
    granted_overlap_until: Duration,
    granted_overlaps: u64,
    guards: u64,
    violations: Vec<String>,
}

/// A guard that a caller has.
struct Belief {
    taken: Weak<Taken>,
    /// Which of its guards.
    number: usize,
    units: u64,
    limit: u64,
}

impl Belief {
    fn is_held(&self) -> bool {
        self.taken.upgrade().is_some_and(|taken| taken.guards()[self.number].is_held())
    }
}

impl Judge {
    /// Notes that the store has granted a lease.
    pub(crate) fn granted(&self, key: &LockKey, grant: &Grant) {
        let mut state = self.state();
        let (first, last) = (grant.token(), grant.token() + u64::from(grant.spare_tokens()));
        let before = state.granted.insert(key.clone(), last).unwrap_or_default();
        if first <= before {
            state.violate(format!("V3: token {first} of {key} was granted after {before}"));
        }
    }

    /// Notes that a caller has received guards, each for some units of a limit.
    pub(crate) fn entered(
        &self,
        taken: Taken,
        limit: impl Fn(&LockGuard) -> u64,
        exclusive: bool,
        now: Duration,
    ) -> Arc<Taken> {
        let taken = Arc::new(taken);
        let mut state = self.state();
        for (number, guard) in taken.guards().iter().enumerate() {
            let (key, token) = (guard.key().clone(), guard.token().number());
            state.guards += 1;
            if exclusive && !state.used.insert((key.clone(), token)) {
                state.violate(format!("V3: two guards of {key} have token {token}"));
            }
            let (units, limit) = (guard.units().into(), limit(guard));
            let belief = Belief { taken: Arc::downgrade(&taken), number, units, limit };
            state.beliefs.entry(key).or_default().push(belief);
        }
        state.check(now);
        drop(state);
        taken
    }

    /// Looks for keys of which more units are believed to be held than there are.
    pub(crate) fn check(&self, now: Duration) {
        self.state().check(now);
    }

    /// Writes to the resource that the key guards, with the token of an exclusive holder that is sure of its lease.
    pub(crate) fn write(&self, guard: &LockGuard, now: Duration) {
        let mut state = self.state();
        let (key, token) = (guard.key(), guard.token().number());
        let last = state.written.get(key).copied().unwrap_or_default();
        if token >= last {
            state.written.insert(key.clone(), token);
        } else if guard.is_held() && now >= state.granted_overlap_until {
            state.violate(format!("V2: the holder of {key} with token {token} comes after {last}"));
        }
    }

    /// Notes that the store has lost leases, which their holders do not know yet.
    pub(crate) fn leases_were_lost(&self, now: Duration) {
        let mut state = self.state();
        state.granted_overlap_until = now + BELIEF_AFTER_LOSS;
    }

    /// Notes that a promise was broken.
    pub(crate) fn violate(&self, violation: String) {
        self.state().violate(violation);
    }

    /// The violations, the number of guards, and the number of overlaps that the promises grant.
    pub(crate) fn verdict(&self) -> (Vec<String>, u64, u64) {
        let state = self.state();
        (state.violations.clone(), state.guards, state.granted_overlaps)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&mut self, now: Duration) {
        let mut overlaps = Vec::new();
        for (key, beliefs) in &mut self.beliefs {
            beliefs.retain(|belief| belief.taken.strong_count() > 0);
            let held = beliefs.iter().filter(|belief| belief.is_held());
            let (units, limit) = held.fold((0, u64::MAX), |(units, limit), belief| {
                (units + belief.units, limit.min(belief.limit))
            });
            if units > limit {
                overlaps.push(format!("V1: {units} units of {key} are believed, of {limit}"));
            }
        }
        for overlap in overlaps {
            if now < self.granted_overlap_until {
                self.granted_overlaps += 1;
            } else {
                self.violate(overlap);
            }
        }
    }

    fn violate(&mut self, violation: String) {
        if self.violations.len() < TOLD && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}
