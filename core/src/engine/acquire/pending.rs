//! A requested lease that the store may have granted.

use std::mem;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::contract::backend::{Claim, Grant, KeyWatch, Lease, LockBackend, Subject};
use crate::engine::deadline;
use crate::engine::hold::Granted;
use crate::engine::reaper::{Debt, Unwanted};
use crate::engine::upkeep::Upkeep;

/// A lease between the first attempt and its grant. If this value is dropped while the store may
/// hold the lease, the reaper releases the lease.
#[derive(Debug)]
pub(crate) struct PendingLease<'r, 'a> {
    lease: &'a Lease,
    debt: Debt<'r>,
    grant: Option<Taken>,
    /// A watch for notifications about the lease, created before the last attempt.
    watch: KeyWatch,
}

/// A grant that arrived in time.
#[derive(Debug)]
struct Taken {
    grant: Grant,
    sent_at: Instant,
    answered_at: Instant,
    lock_delay: Duration,
    is_unanswered: bool,
}

impl<'r, 'a> PendingLease<'r, 'a> {
    /// Subscribes to changes of the lease. Call this function before the first attempt, so that no
    /// change is missed.
    pub(crate) fn new(upkeep: &'r Upkeep, claim: &'a Claim) -> Self {
        let lease = claim.lease();
        let debt = Debt::new(Unwanted::new(lease.clone()), upkeep.reaper());
        let watch = upkeep.backend().watch(Subject::Lease(lease));
        Self { lease, debt, grant: None, watch }
    }

    /// Discards the notifications that have arrived so far.
    pub(super) fn skip_news(&mut self) {
        self.watch.skip();
    }

    /// Records that the store may now hold the lease or a queue entry.
    pub(super) fn incur(&mut self) {
        self.debt.incur();
    }

    /// Records that no release is pending, because the store does not hold the lease or a guard now
    /// owns it.
    pub(crate) fn forgive(&mut self) {
        self.debt.forgive();
    }

    /// Releases the lease and the queue entry that the store may hold. After `give_up`, the reaper
    /// continues the release.
    pub(super) async fn leave(
        &mut self,
        backend: &dyn LockBackend,
        clock: &dyn Clock,
        give_up: Instant,
    ) {
        // The store usually has neither a lease nor a queue entry, so any error can be ignored.
        drop(self.debt.settle(backend, clock, clock.now(), give_up).await);
    }

    /// Returns the deadline of the lease, based on `grant` if there is one and otherwise on the
    /// requested TTL.
    pub(super) fn deadline(
        &self,
        grant: Option<&Grant>,
        sent_at: Instant,
        lock_delay: Duration,
    ) -> Instant {
        deadline::deadline(sent_at, self.believed(grant, lock_delay))
    }

    /// Records the grant. `is_unanswered` means that an earlier attempt got no reply.
    pub(super) fn granted(
        &mut self,
        grant: Grant,
        [sent_at, answered_at]: [Instant; 2],
        lock_delay: Duration,
        is_unanswered: bool,
    ) {
        self.grant = Some(Taken { grant, sent_at, answered_at, lock_delay, is_unanswered });
    }

    /// Returns the granted lease. The lease can be taken once, and its release stays pending until
    /// a guard owns the lease.
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

    /// Returns how much of the store's TTL the holder may use.
    fn believed(&self, grant: Option<&Grant>, lock_delay: Duration) -> Duration {
        let asked_for = self.lease.ttl();
        let granted = grant.and_then(Grant::ttl).unwrap_or(asked_for);
        granted.min(asked_for).saturating_sub(lock_delay)
    }
}
