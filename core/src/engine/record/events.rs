//! The events that report what happens to a lease of this process.

use std::time::Duration;

use super::LeaseRecord;
use super::state::{Phase, Snapshot, Term};
use crate::clock::Instant;
use crate::contract::error::Error;
use crate::observe::{
    AskedKind, Event, HandedOver, LongHold, Lost, Released, RenewalFailed, Renewed, Subject,
    Unconfirmed,
};

impl LeaseRecord {
    /// Emits the event for a new phase of the lease.
    pub(super) fn report(&self, at: Snapshot, error: Option<&Error>, now: Instant) {
        let (lock, token, held) = (self.subject(), self.number(at.term), now.since(at.since));
        self.events.emit(match at.phase {
            Phase::Lost(reason) => {
                let lease = self.lease().id().fingerprint();
                Event::Lost(Lost { lock, token, lease, reason, held })
            }
            Phase::Released => Event::Released(Released { lock, token, held }),
            Phase::Unconfirmed => {
                let remaining = at.deadline.since(now);
                Event::Unconfirmed(Unconfirmed { lock, token, error, remaining })
            }
            // A renewal has its own event.
            Phase::Requested | Phase::Held => return,
        });
    }

    /// Emits the event for a renewal that was sent at `sent_at`. The previous renewal was sent at
    /// `before`.
    pub(super) fn report_renewed(
        &self,
        lag: Duration,
        before: Instant,
        sent_at: Instant,
        now: Instant,
    ) {
        let (lock, at) = (self.subject(), self.standing());
        let (token, remaining) = (self.number(at.term), at.deadline.since(now));
        self.events.emit(Event::Renewed(Renewed { lock, token, lag, remaining }));
        let (long, held) = (self.events.long_hold(), sent_at.since(at.since));
        // A leader holds its lock as long as it can, so a long hold is normal in an election.
        if self.kind != AskedKind::Election && before.since(at.since) < long && held >= long {
            self.events.emit(Event::LongHold(LongHold { lock, token, held }));
        }
    }

    pub(super) fn report_renewal_failed(&self, error: &Error, now: Instant) {
        let (lock, at) = (self.subject(), self.standing());
        let (token, remaining) = (self.number(at.term), at.deadline.since(now));
        self.events.emit(Event::RenewalFailed(RenewalFailed { lock, token, error, remaining }));
    }

    /// Emits the event for a hand-off: the holder before `term` has handed off the lease after
    /// holding it for `held`.
    pub(crate) fn report_handed_over(&self, term: Term, held: Duration) {
        let (lock, next_token) = (self.subject(), self.number(term));
        let token = next_token - 1;
        self.events.emit(Event::HandedOver(HandedOver { lock, token, next_token, held }));
    }

    fn subject(&self) -> Subject<'_> {
        self.events.subject(self.lease().key(), self.kind)
    }
}
