//! A renewal whose request has been sent and whose reply has not arrived yet.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::LeaseRecord;
use super::state::{Phase, RenewalAttempt};
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Lease, Renewal, Tenure};
use crate::contract::error::Error;
use crate::contract::loss::LossReason;
use crate::engine::deadline;
use crate::options::RenewalMode;

/// A renewal in progress. If this value is dropped before it is settled, the outcome of the renewal
/// is unknown.
#[derive(Debug)]
pub(crate) struct SentRenewal {
    record: Arc<LeaseRecord>,
    attempt: RenewalAttempt,
    /// The local TTL: the TTL in the store minus
    /// [`LockOptions::lock_delay`](crate::LockOptions::lock_delay).
    ttl: Duration,
    sent_at: Instant,
    /// The number of leases that share or may share the request, including this lease.
    batch_size: u16,
    settled: bool,
}

impl LeaseRecord {
    /// Starts a renewal with the same TTL as the last renewal. Returns `None` if there is nothing
    /// to renew, or if a renewal is already in progress.
    pub(crate) fn start_renewal(self: &Arc<Self>, now: Instant) -> Option<(SentRenewal, Lease)> {
        let mode = self.options.renewal;
        let (attempt, batch_size, wanted, ttl) = self.update(now, |state| {
            // A capped lease is renewed only to find out whether the store still holds it.
            let unneeded =
                mode == RenewalMode::Off || (state.renewal.is_capped && !state.renewal.is_notified);
            if state.is_over() || state.renewal.in_progress || unneeded {
                return None;
            }
            let attempt = state.start_renewal(now, mode);
            let ttl = state.validity.requested_ttl.min(self.max_until(state).since(now));
            Some((
                attempt,
                state.renewal.batch_size,
                self.wanted(state).clone().with_ttl(state.validity.requested_ttl),
                ttl,
            ))
        })?;
        let (renewing, lease) = SentRenewal::new(self, attempt, now, wanted, ttl);
        Some((renewing.with_batch_size(batch_size), lease))
    }

    /// Starts a renewal that changes the lease, after the current renewal has finished.
    ///
    /// All later renewals request the changed lease. If the new TTL is shorter, the deadline moves
    /// before the request is sent, because the store may apply the shorter TTL even if the reply is
    /// lost.
    pub(crate) async fn start_change(
        self: &Arc<Self>,
        change: impl Fn(Lease) -> Lease,
        clock: &dyn Clock,
    ) -> Result<(SentRenewal, Lease), Error> {
        let mode = self.options.renewal;
        loop {
            let changes = self.changes();
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            let now = clock.now();
            let started = self.update(now, |state| match state.phase {
                Phase::Lost(reason) => Err(Error::lost(reason)),
                _ if state.renewal.in_progress => Ok(None),
                _ => {
                    let wanted =
                        change(self.wanted(state).clone().with_ttl(state.validity.requested_ttl));
                    let ttl = wanted.ttl().min(self.max_until(state).since(now));
                    state.validity.requested_ttl = wanted.ttl();
                    state.renewal.changed_lease = Some(Box::new(wanted.clone()));
                    let since =
                        if flaw!("shorter-ttl-too-late") { Instant::FAR_FUTURE } else { now };
                    state.validity.deadline =
                        state.validity.deadline.min(deadline::deadline(since, ttl));
                    Ok(Some((state.start_renewal(now, mode), wanted, ttl)))
                }
            })?;
            if let Some((attempt, wanted, ttl)) = started {
                return Ok(SentRenewal::new(self, attempt, now, wanted, ttl));
            }
            clock::until(clock, self.next_moment(), changed).await;
        }
    }
}

impl SentRenewal {
    /// Creates a renewal that changes the lease of `record` to `lease` with this local TTL. Also
    /// returns the lease to request from the store.
    fn new(
        record: &Arc<LeaseRecord>,
        attempt: RenewalAttempt,
        sent_at: Instant,
        lease: Lease,
        ttl: Duration,
    ) -> (Self, Lease) {
        // A lease that cannot be renewed for its full TTL will not be renewed again.
        let tenure = if ttl < lease.ttl() { Tenure::Fixed } else { lease.tenure() };
        let lease = lease.with_ttl(ttl + record.lock_delay()).with_tenure(tenure);
        (
            Self {
                record: Arc::clone(record),
                attempt,
                ttl,
                sent_at,
                batch_size: 1,
                settled: false,
            },
            lease,
        )
    }

    /// Sets the number of leases that share or may share the request.
    pub(crate) fn with_batch_size(mut self, batch_size: u16) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Returns the number of leases that may share the request.
    pub(crate) fn batch_size(&self) -> u16 {
        self.batch_size
    }

    /// Returns the class of the time limit. Renewals in the same class have similar time limits.
    pub(crate) fn class(&self) -> u32 {
        deadline::attempt_class(self.attempt.pace)
    }

    pub(crate) fn record(&self) -> &Arc<LeaseRecord> {
        &self.record
    }

    /// Returns when to stop waiting for the reply. At that time, the watchdog would try again.
    pub(crate) fn attempt_end(&self) -> Instant {
        match self.record.options.renewal {
            RenewalMode::Watchdog => deadline::attempt_end(self.sent_at, self.attempt.pace),
            RenewalMode::Off => Instant::FAR_FUTURE,
        }
    }

    /// Records the reply, or that no reply arrived. A lease that has ended never becomes valid
    /// again.
    ///
    /// A reply that arrives after the next renewal has started can end the lease but cannot extend
    /// it.
    pub(crate) fn settle(&mut self, reply: Option<&Result<Renewal, Error>>, now: Instant) {
        self.settled = true;
        let silence;
        let error = match reply {
            Some(reply) => reply.as_ref().err(),
            None => {
                silence = Error::no_reply();
                Some(&silence)
            }
        };
        if let Some(error) = error {
            self.record.report_renewal_failed(error, now);
        }
        let sent_at = if flaw!("renewal-deadline-from-reply") { now } else { self.sent_at };
        let mode = self.record.options.renewal;
        let mut renewed = None;
        self.record.update_after(error, now, |state| {
            let (is_last, max) = (state.end_renewal(self.attempt), self.record.max_until(state));
            if state.is_over() && !flaw!("lost-lease-revived") {
                return;
            }
            match reply {
                Some(Ok(_)) if is_last && flaw!("refused-renewal-counts") => {
                    state.renewed(sent_at, self.ttl, max, mode);
                }
                Some(Ok(Renewal::Taken)) => state.not_held(LossReason::Taken),
                Some(Ok(Renewal::Vanished)) => state.not_held(LossReason::Vanished),
                _ if !is_last => {}
                Some(Ok(outcome @ (Renewal::Renewed | Renewal::RevocationRequested))) => {
                    renewed = Some((state.validity.lag(now), state.validity.confirmed_at));
                    state.renewed(sent_at, self.ttl, max, mode);
                    state.renewal.reports_changes = true;
                    state.holders.revocation_requested |= *outcome == Renewal::RevocationRequested;
                }
                Some(Err(error)) if !error.may_have_been_applied() => state.not_renewed(now, mode),
                unanswered => {
                    if unanswered.is_none() {
                        state.split_batch(self.batch_size);
                    }
                    state.validity.note_unanswered(self.ttl);
                    state.not_renewed(now, mode);
                }
            }
        });
        if let Some((lag, before)) = renewed {
            self.record.report_renewed(lag, before, self.sent_at, now);
        }
    }
}

impl Drop for SentRenewal {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let renewal = self.record.options.renewal;
        self.record.update(self.sent_at, |state| {
            if state.end_renewal(self.attempt) && !state.is_over() {
                state.validity.note_unanswered(self.ttl);
                state.not_renewed(self.sent_at, renewal);
                // A caller that repeatedly starts and abandons renewals must not delay the
                // watchdog's renewal.
                state.renewal.due = state.renewal.due.min(self.attempt.due_before);
            }
        });
        self.record.wake_list.push(&self.record);
    }
}
