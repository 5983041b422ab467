//! Waits for changes of a lease.

use std::pin::pin;
use std::sync::Arc;

use super::LeaseRecord;
use super::state::Term;
use crate::clock::{self, Clock, Instant};
use crate::contract::loss::{LeaseState, LossReason};
use crate::sync::{Notify, lock};

impl LeaseRecord {
    /// Waits until the holder in this term loses the lease. Returns `None` if the holder's last
    /// guard is dropped first.
    pub(crate) async fn wait_lost(&self, term: Term, clock: &dyn Clock) -> Option<LossReason> {
        let outcome = |now| {
            let lost = self.loss_of(term, now);
            (lost.is_some() || self.is_abandoned(term)).then_some(lost)
        };
        self.wait_for(outcome, clock).await
    }

    /// Waits until the lease is lost or its last guard has been dropped.
    pub(crate) async fn wait_ended(&self, clock: &dyn Clock) {
        self.wait_for(|now| self.is_over(now).then_some(()), clock).await;
    }

    /// Waits until the lease is unconfirmed or lost.
    pub(crate) async fn wait_unconfirmed(&self, clock: &dyn Clock) -> LeaseState {
        let outcome = |now| Some(self.state(now)).filter(|state| *state != LeaseState::Held);
        self.wait_for(outcome, clock).await
    }

    /// Checks the lease after every change, and when its deadline or the time limit of a renewal
    /// has passed, until there is an outcome.
    async fn wait_for<T>(&self, outcome: impl Fn(Instant) -> Option<T>, clock: &dyn Clock) -> T {
        loop {
            let changes = self.changes();
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            if let Some(outcome) = outcome(clock.now()) {
                return outcome;
            }
            clock::until(clock, self.next_moment(), changed).await;
        }
    }

    /// Waits until a client asks the holder in this term to finish early. Returns `false` if the
    /// holder's last guard is dropped first.
    pub(crate) async fn wait_revocation_requested(&self, term: Term) -> bool {
        loop {
            let changes = self.changes();
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            let asked = self.is_revocation_requested_in(term);
            if asked || self.is_abandoned(term) {
                return asked;
            }
            changed.await;
        }
    }

    /// Returns the notifier for the changes that tasks can wait for.
    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(lock(&self.state).changed.get_or_insert_default())
    }

    /// Returns the next time at which the lease can change without an event.
    pub(super) fn next_moment(&self) -> Instant {
        let state = lock(&self.state);
        // The retry of a renewal is never due after the deadline.
        if state.renewal.in_progress { state.renewal.due } else { state.validity.deadline }
    }
}
