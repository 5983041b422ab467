//! The checker of the rules.

mod belief;

pub(crate) use self::belief::{Limit, Terms};

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::Rule;
use leasehold_core::backend::{Grant, Lease, LeaseId};
use leasehold_core::{LeaseState, LockGuard, LockKey, LossReason};

use self::belief::Belief;
use crate::incident::{Fault, Incident};
use crate::report::Violation;
use crate::workload::Taken;

/// The longest TTL in a simulation, a drift above all that clocks have, and the rounding of timers.
const BELIEF_AFTER_LOSS: Duration = Duration::from_millis(2_500 + 50);

/// How long the effects of a fault last. A crash has effects for the longest TTL and its lock delay.
const AFTER_EFFECTS: Duration = Duration::from_secs(3);

/// How long a caller may have a guard before the caller checks it. This is two steps of a timer.
const LOOK: Duration = Duration::from_millis(2);

/// The maximum number of violations in a report. Further violations of a run would not add information.
const TOLD: usize = usize::MAX;

/// Watches all holders of a simulation.
pub(crate) struct Judge(Mutex<State>);

#[derive(Default)]
struct State {
    beliefs: BTreeMap<LockKey, Vec<Belief>>,
    /// The last grant that a store has made of a key.
    granted: HashMap<(usize, LockKey), Granted>,
    /// The leases that their holders are asked to give back.
    revoked: HashSet<LeaseId>,
    /// When a client was notified that its lease is requested back.
    heard: HashMap<(usize, LeaseId), Duration>,
    leases: HashMap<LeaseId, Seen>,
    /// Tokens that a guard of an exclusive lock has.
    used: HashSet<(LockKey, u64)>,
    /// The token of the last guard of an exclusive lock.
    entered: HashMap<LockKey, u64>,
    /// The token of the last write to the resource that a key guards.
    written: HashMap<LockKey, u64>,
    /// The incidents, if the network loses and delays nothing else.
    calm: Option<Vec<Incident>>,
    /// Until then, the guarantees permit overlaps.
    granted_overlap_until: Duration,
    /// When each of these overlaps started.
    overlaps: BTreeMap<LockKey, Duration>,
    tally: Tally,
    violations: Vec<Violation>,
}

/// A grant of a store.
#[derive(Clone, Copy)]
struct Granted {
    lease: LeaseId,
    /// The largest token that the store has granted or reserved with it.
    last_token: u64,
}

/// The last of the guards of a lease.
struct Seen {
    token: u64,
    /// When its caller began to end it.
    ended: Option<Duration>,
}

/// The figures of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) guards: u64,
    pub(crate) handed_over: u64,
    pub(crate) losses: u64,
    pub(crate) granted_overlaps: u64,
    pub(crate) longest_overlap: Duration,
}

impl Judge {
    /// Creates a judge. It expects more if the network loses and delays nothing except by the `calm` incidents.
    pub(crate) fn new(calm: Option<Vec<Incident>>) -> Self {
        Self(Mutex::new(State { calm, ..State::default() }))
    }

    /// Notes that a store has granted a lease.
    pub(crate) fn granted(&self, store: usize, lease: &Lease, grant: &Grant) {
        let (first, last_token) = (grant.token(), grant.token() + u64::from(grant.spare_tokens()));
        let (mut state, key) = (self.state(), lease.key());
        let granted = Granted { lease: lease.id(), last_token };
        let Some(before) = state.granted.insert((store, key.clone()), granted) else { return };
        if first <= before.last_token {
            let before = before.last_token;
            state.violate(
                Rule::TokenOrder,
                format!("token {first} of {key} was granted after {before}"),
            );
        }
        // Only a claim whose replies were lost is granted twice. Its caller renews the second grant, when a request to finish the first one
        // early may be over.
        state.forget_request(lease.id());
    }

    /// Notes that an operator has ended the leases of a key.
    pub(crate) fn freed(&self, store: usize, key: &LockKey) {
        let mut state = self.state();
        if let Some(Granted { lease, .. }) = state.granted.get(&(store, key.clone())).copied() {
            state.forget_request(lease);
        }
    }

    /// Notes that a store asks the holders of a key to finish early.
    pub(crate) fn revoked(&self, store: usize, key: &LockKey) {
        let mut state = self.state();
        if let Some(Granted { lease, .. }) = state.granted.get(&(store, key.clone())).copied() {
            state.revoked.insert(lease);
        }
    }

    /// Notes that a notification for the holders of a key has reached a client. The client may not have received its grant yet.
    pub(crate) fn heard(&self, store: usize, key: &LockKey, client: usize, now: Duration) {
        let mut state = self.state();
        if let Some(Granted { lease, .. }) = state.granted.get(&(store, key.clone())).copied()
            && state.revoked.contains(&lease)
        {
            state.heard.entry((client, lease)).or_insert(now);
        }
    }

    /// Notes that a caller has received guards.
    pub(crate) fn entered(&self, taken: Taken, terms: &Terms, now: Duration) -> Arc<Taken> {
        let taken = Arc::new(taken);
        let mut state = self.state();
        for (number, guard) in taken.guards().iter().enumerate() {
            state.tally.guards += 1;
            if terms.is_fenced && terms.limit == Limit::Whole {
                state.judge_token(guard, terms, now);
            }
            state.judge_hand_over(guard, terms, now);
            let belief = Belief::new(&taken, number, terms, now);
            state.beliefs.entry(guard.key().clone()).or_default().push(belief);
        }
        state.check(now);
        drop(state);
        taken
    }

    /// Notes that a caller begins to end its guards.
    pub(crate) fn ends(&self, taken: &Taken, now: Duration) {
        let mut state = self.state();
        for guard in taken.guards() {
            if let Some(seen) = state.leases.get_mut(&guard.lease().id()) {
                seen.ended = Some(now);
            }
        }
    }

    /// Notes that a caller has seen the loss of a lease that it had since `entered`.
    pub(crate) fn lost(&self, guard: &LockGuard, terms: &Terms, entered: Duration, now: Duration) {
        let LeaseState::Lost(reason) = guard.state() else { return };
        let (mut state, key) = (self.state(), guard.key());
        state.tally.losses += 1;
        let touches = |incident: &Incident| {
            let concerns =
                !matches!(incident.fault, Fault::Stall { key: it, .. } if it != key.as_str());
            concerns && incident.at <= now && incident.end() + AFTER_EFFECTS >= entered
        };
        let calm = state.calm.as_ref().is_some_and(|all| !all.iter().any(touches));
        let is_wanted = reason == LossReason::MaxHold || !terms.renews;
        if calm && !is_wanted && state.granted_overlap_until <= entered {
            state.violate(
                Rule::ExplainedFailure,
                format!("{key} is lost without a fault: {reason}"),
            );
        }
    }

    /// Checks that the holders of each key do not use more permits than the key has.
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
            state.violate(
                Rule::Fencing,
                format!("the holder of {key} with token {token} comes after {last}"),
            );
        }
    }

    /// Notes that a store has lost leases, which their holders do not know yet.
    pub(crate) fn leases_were_lost(&self, now: Duration) {
        let mut state = self.state();
        state.granted_overlap_until = now + BELIEF_AFTER_LOSS;
    }

    /// Notes that a store counts its tokens from the beginning. Its holders have a majority of other stores.
    pub(crate) fn forgot(&self, store: usize) {
        self.state().granted.retain(|(of, _), _| *of != store);
    }

    /// Notes that a rule was violated.
    pub(crate) fn violate(&self, rule: Rule, text: String) {
        self.state().violate(rule, text);
    }

    /// The violations and the figures.
    pub(crate) fn verdict(&self) -> (Vec<Violation>, Tally) {
        let state = self.state();
        (state.violations.clone(), state.tally)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A request to finish early ends with the grant that it is for: the same claim may be granted anew after it.
    fn forget_request(&mut self, lease: LeaseId) {
        self.revoked.remove(&lease);
        self.heard.retain(|(_, heard), _| *heard != lease);
    }

    /// Each exclusive holder has a larger token than all earlier holders.
    fn judge_token(&mut self, guard: &LockGuard, terms: &Terms, now: Duration) {
        let (key, token) = (guard.key(), guard.token().number());
        if !terms.is_reentrant && !self.used.insert((key.clone(), token)) {
            self.violate(Rule::TokenOrder, format!("two guards of {key} have token {token}"));
        }
        let last = self.entered.entry(key.clone()).or_default();
        let before = *last;
        *last = before.max(token);
        if token < before && guard.is_held() && now >= self.granted_overlap_until {
            self.violate(
                Rule::EntryOrder,
                format!("{key} is entered with token {token} after {before}"),
            );
        }
    }

    /// A lease passes to another caller of the process only if it is as good as a new one, and if no other process wants it back.
    fn judge_hand_over(&mut self, guard: &LockGuard, terms: &Terms, now: Duration) {
        let (id, token, key) = (guard.lease().id(), guard.token().number(), guard.key());
        let seen = Seen { token, ended: None };
        let Some(Seen { token: before, ended: Some(ended) }) = self.leases.insert(id, seen) else {
            return;
        };
        if before >= token {
            return;
        }
        self.tally.handed_over += 1;
        if self.heard.get(&(terms.client, id)).is_some_and(|heard| *heard < ended) {
            self.violate(Rule::HandOff, format!("{key} is handed over though it is asked back"));
        }
        let half = guard.lease().ttl() / 2;
        if now < ended + LOOK && guard.is_held() && guard.remaining() + LOOK < half {
            let left = guard.remaining();
            self.violate(
                Rule::HandOff,
                format!("{key} is handed over with {left:?} left, less than {half:?}"),
            );
        }
    }

    fn check(&mut self, now: Duration) {
        let mut broken = Vec::new();
        for (key, beliefs) in &mut self.beliefs {
            beliefs.retain(Belief::is_alive);
            let (units, limit) = belief::sum(beliefs);
            if units > limit {
                let message = format!("{units} units of {key} are believed, of {limit}");
                broken.push((key.clone(), Rule::Exclusion, message));
            } else if let Some(since) = self.overlaps.remove(key) {
                self.tally.longest_overlap = self.tally.longest_overlap.max(now - since);
            }
            if beliefs.iter().any(|belief| belief.is_beyond(now)) {
                broken.push((
                    key.clone(),
                    Rule::HonestGuard,
                    format!("{key} is held for longer than it may"),
                ));
            }
        }
        for (key, rule, text) in broken {
            if now >= self.granted_overlap_until || rule != Rule::Exclusion {
                self.violate(rule, text);
            } else if let Entry::Vacant(overlap) = self.overlaps.entry(key) {
                overlap.insert(now);
                self.tally.granted_overlaps += 1;
            }
        }
    }

    fn violate(&mut self, rule: Rule, text: String) {
        let violation = Violation { rule, text };
        if self.violations.len() < TOLD && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}
