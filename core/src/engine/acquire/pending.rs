//! A lease that was asked for, and that the store may have.

use std::mem;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::contract::backend::{Claim, Grant, KeyWatch, Lease, LockBackend};
use crate::engine::deadline;
use crate::engine::hold::Granted;
use crate::engine::reaper::{Debt, Unwanted};
use crate::engine::upkeep::Upkeep;

/// A lease between the first attempt and its grant. If it is dropped while the store may have it, the reaper releases it.
#[derive(Debug)]
pub(crate) struct PendingLease<'r, 'a> {
    lease: &'a Lease,
    debt: Debt<'r>,
    grant: Option<Taken>,
    /// News of the lease since before the last attempt.
    watch: KeyWatch,
}

/// A grant that is in time.
#[derive(Debug)]
struct Taken {
    grant: Grant,
    sent_at: Instant,
    answered_at: Instant,
    lock_delay: Duration,
    is_unanswered: bool,
}

impl<'r, 'a> PendingLease<'r, 'a> {
    /// Begins to watch the lease, before the first attempt, so that nothing between it and the holding is missed.
    pub(crate) fn new(upkeep: &'r Upkeep, claim: &'a Claim) -> Self {
        let lease = claim.lease();
        let debt = Debt::new(Unwanted::new(lease.clone()), upkeep.reaper());
        let watch = upkeep.backend().watch_lease(lease);
        Self { lease, debt, grant: None, watch }
    }

    /// Forgets the news up to now.
    pub(super) fn skip_news(&mut self) {
        self.watch.skip();
    }

    /// From now on the store may have the lease, or a place in its queue.
    pub(super) fn incur(&mut self) {
        self.debt.incur();
    }

    /// The store has nothing of it, or the lease is among those that are held.
    pub(crate) fn forgive(&mut self) {
        self.debt.forgive();
    }

    /// Releases the lease that the store may have, and the place in its queue; the reaper goes on after `give_up`.
    pub(super) async fn leave(
        &mut self,
        backend: &dyn LockBackend,
        clock: &dyn Clock,
        give_up: Instant,
    ) {
        // Most often the store has neither, so an error says nothing.
        drop(self.debt.settle(backend, clock, clock.now(), give_up).await);
    }

    /// Until when its lease may be believed in, if it was granted so, or else as asked for.
    pub(super) fn deadline(
        &self,
        grant: Option<&Grant>,
        sent_at: Instant,
        lock_delay: Duration,
    ) -> Instant {
        let counts_from = sent_at - grant.map_or(Duration::ZERO, Grant::elapsed);
        deadline::deadline(counts_from, self.believed(grant, lock_delay))
    }

    /// The lease is ours, perhaps after an attempt for it that got no answer.
    pub(super) fn granted(
        &mut self,
        grant: Grant,
        [sent_at, answered_at]: [Instant; 2],
        lock_delay: Duration,
        is_unanswered: bool,
    ) {
        let sent_at = sent_at - grant.elapsed();
        self.grant = Some(Taken { grant, sent_at, answered_at, lock_delay, is_unanswered });
    }

    /// Takes the lease that was granted, once. Its release is owed until the lease is among those that are held.
    pub(crate) fn take(&mut self) -> Granted {
        let Taken { grant, sent_at, answered_at, lock_delay, is_unanswered } =
            self.grant.take().expect("it was granted");
        Granted {
            lease: self.lease.clone(),
            token: grant.token(),
            spare_tokens: grant.spare_tokens(),
            sent_at,
            answered_at,
            ttl: self.believed(Some(&grant), lock_delay),
            unanswered: is_unanswered.then(|| self.believed(None, lock_delay)),
            has_news: grant.has_news(),
            watch: mem::replace(&mut self.watch, KeyWatch::silent()),
        }
    }

    /// How much of a TTL in the store its holder believes in.
    fn believed(&self, grant: Option<&Grant>, lock_delay: Duration) -> Duration {
        let asked_for = self.lease.ttl();
        let granted = grant.and_then(Grant::ttl).unwrap_or(asked_for);
        granted.min(asked_for).saturating_sub(lock_delay)
    }
}
