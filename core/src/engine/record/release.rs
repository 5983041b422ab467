//! The release of a lease: what the store may have, and when the key becomes free.

use std::pin::pin;
use std::time::Duration;

use super::state::{InStore, Phase};
use super::validity::Validity;
use super::{LeaseRecord, State};
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Lease, LockBackend, Release, Renewal, Tenure};
use crate::contract::error::Error;
use crate::contract::loss::LossReason;
use crate::sync::lock;

impl LeaseRecord {
    /// Asks the store to release the lease. If the key must stay locked, a final renewal sets the
    /// TTL to the remaining time instead.
    pub(crate) async fn end(
        &self,
        backend: &dyn LockBackend,
        now: Instant,
    ) -> Result<Release, Error> {
        let (lease, locked_for) = {
            let state = lock(&self.state);
            (self.stored(&state), state.granted.locked_until.since(now))
        };
        if locked_for.is_zero() {
            return backend.release(&lease).await;
        }
        let locked_for = locked_for.max(backend.capabilities().min_ttl());
        let last = lease.with_ttl(locked_for).with_tenure(Tenure::Fixed);
        match backend.renew(&last).await? {
            Renewal::Renewed | Renewal::RevocationRequested => Ok(Release::Released),
            Renewal::Taken | Renewal::Vanished => Ok(Release::NotHeld),
        }
    }

    /// Hands the release over to the queue of releases. Returns the earliest time for the release
    /// and the TTL that the store may have.
    ///
    /// While a renewal is in progress, an earlier release could be undone by the renewal.
    pub(crate) fn end_later(&self) -> (Instant, Duration) {
        // Declared before the lock, so that it is dropped after the lock.
        let _unneeded;
        let mut state = lock(&self.state);
        state.in_store = InStore::Ending;
        if matches!(state.phase, Phase::Held | Phase::Unconfirmed) {
            // The caller panicked before it received a guard.
            state.phase = Phase::Released;
        }
        state.check();
        _unneeded = state.take_unneeded();
        let (due, locked_until) = (state.renewal.due, state.granted.locked_until);
        let not_before =
            if state.renewal.in_progress { due.min(locked_until) } else { Instant::ZERO };
        (not_before, self.stored_ttl(&state))
    }

    /// Records that the store has ended the lease.
    pub(crate) fn ended(&self) {
        let mut state = lock(&self.state);
        state.in_store = InStore::Nothing;
        state.check();
    }

    /// Records that the queue of releases has given up. If the lease has expired but still has
    /// guards, the last guard tries again, because a session may have kept the lease in force.
    pub(crate) fn not_ended(&self) {
        let mut state = lock(&self.state);
        let has_expired = matches!(state.loss(), Some(LossReason::Expired | LossReason::MaxHold));
        let is_tried_again = has_expired && state.holders.guards > 0;
        state.in_store = if is_tried_again { InStore::Granted } else { InStore::Nothing };
        state.check();
    }

    /// Returns the lease that the store may have.
    fn stored(&self, state: &State) -> Lease {
        self.wanted(state).clone().with_ttl(self.stored_ttl(state))
    }

    /// Returns the longest TTL that the store may have.
    fn stored_ttl(&self, state: &State) -> Duration {
        let Validity { requested_ttl, confirmed_ttl, .. } = state.validity;
        match state.phase {
            Phase::Requested => self.lease.ttl(),
            // The store may not have received a shorter TTL yet.
            _ => requested_ttl.max(confirmed_ttl) + self.options.lock_delay,
        }
    }

    /// If the key must stay locked after the lease, waits for any renewal in progress. Without this
    /// wait, the renewal in progress could reach the store after the final renewal and free the key
    /// too early. Returns the current time.
    pub(crate) async fn wait_to_close(&self, clock: &dyn Clock, mut now: Instant) -> Instant {
        while self.options.min_hold.is_some() {
            let changes = self.changes();
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            let renewing_until = self.update(now, |state| {
                let undoes = state.renewal.in_progress
                    && !state.is_over()
                    && now < state.granted.locked_until;
                undoes.then_some(state.renewal.due.min(state.granted.locked_until))
            });
            let Some(until) = renewing_until else { break };
            clock::until(clock, until, changed).await;
            now = clock.now();
        }
        now
    }

    /// Allows the key to become free immediately after the release.
    pub(crate) fn waive_min_hold(&self) {
        lock(&self.state).granted.locked_until = Instant::ZERO;
    }

    /// Returns whether the lease was lost but stays in force in the store as long as other leases
    /// of its session are renewed.
    pub(crate) fn may_outlast_its_loss(&self, now: Instant) -> bool {
        self.update(now, |state| {
            let is_kept = self.wanted(state).tenure() == Tenure::Kept;
            state.loss().is_some() && is_kept && self.must_be_released(state)
        })
    }

    /// Returns whether the lease must be released when its last guard leaves: no release is
    /// pending, and the lease was not lost with a [`LockOptions::lock_delay`], which keeps the key
    /// locked.
    pub(super) fn must_be_released(&self, state: &State) -> bool {
        let stays = state.loss().is_some() && !self.options.lock_delay.is_zero();
        state.in_store == InStore::Granted && !stays
    }
}
