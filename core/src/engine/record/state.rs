//! The mutable state of a lease's record.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::validity::Validity;
use crate::clock::Instant;
use crate::contract::backend::{KeyWatch, Lease};
use crate::contract::loss::{LeaseState, LossReason};
use crate::contract::owner::OwnerId;
use crate::engine::deadline;
use crate::options::RenewalMode;
use crate::sync::Notify;

/// The maximum number of leases in one renewal request. This number is large enough to make the
/// cost of the round trip per lease small. The number is also small enough that a batch occupies
/// the store only briefly (a few hundred microseconds on Redis).
pub(crate) const MAX_BATCH: u16 = 256;

/// If a batch of renewals gets no reply, it is retried in this many parts. A TTL allows three
/// attempts, so a lease whose renewal hangs must be alone in the third attempt. After an outage,
/// each batch costs this number of requests instead of one request per lease.
const PARTS: u16 = 16;

/// A place in the watchdog's schedule, which consists of a bucket and an index into the bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Fresh(u32),
    Due(Instant, u32),
}

/// The mutable state of a lease's record. Only [`LeaseRecord::update`](super::LeaseRecord) ends the
/// lease or extends its deadline, and this function first checks whether the deadline has passed.
#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) phase: Phase,
    pub(super) in_store: InStore,
    pub(super) granted: Granted,
    pub(super) validity: Validity,
    pub(super) renewal: RenewalState,
    pub(super) holders: Holders,
    /// The lease's place in the watchdog's schedule. This field changes only while the schedule is
    /// locked.
    pub(super) place: Option<Place>,
    /// Notifies tasks of every change. The notifier is created for the first task that waits.
    pub(super) changed: Option<Arc<Notify>>,
    /// The turn among the callers in this process, which ends with the lease.
    pub(super) turn: Option<T>,
    pub(super) watch: KeyWatch,
}

/// The store's grant.
#[derive(Debug)]
pub(super) struct Granted {
    /// The token of the first holder. Each later holder has the next token.
    pub(super) token: u64,
    /// When the granted request was sent.
    pub(super) sent_at: Instant,
    /// The key stays locked until this time, even after a release.
    pub(super) locked_until: Instant,
}

/// The renewals of the lease.
#[derive(Debug)]
pub(super) struct RenewalState {
    /// When the watchdog must check the lease next.
    pub(super) due: Instant,
    /// Whether a renewal is in progress. The flag stays set until the renewal's retry is due,
    /// because two concurrent renewals could reach the store in either order.
    pub(super) in_progress: bool,
    /// The number of the last renewal. A reply to an earlier renewal is too late.
    pub(super) number: u32,
    /// The number of leases that may share the next renewal request, including this lease.
    pub(super) batch_size: u16,
    /// The lease that renewals request, if its mode or description differs from the grant.
    pub(super) changed_lease: Option<Box<Lease>>,
    /// Whether the deadline has reached its limit, so that only notifications cause renewals.
    pub(super) is_capped: bool,
    /// Whether the store already reports changes of this lease, if the store reports changes at
    /// all.
    pub(super) reports_changes: bool,
    /// Whether a notification has arrived since the last renewal started.
    pub(super) is_notified: bool,
    /// Whether a notification caused the last renewal.
    pub(super) caused_by_notification: bool,
}

/// The guards, which belong to one holder at a time.
#[derive(Debug)]
pub(super) struct Holders {
    /// The number of previous holders.
    pub(super) term: Term,
    /// The number of holders after the first holder that can get a token.
    pub(super) spare_tokens: u32,
    /// The number of guards.
    pub(super) guards: u32,
    /// The owner that can lock the key again, if the lock is reentrant.
    pub(super) owner: Option<OwnerId>,
    /// The task that acquired the lease, or the thread if the caller was not in a task.
    pub(super) acquired_by: OwnerId,
    /// When the lease was requested or handed off by the previous holder.
    pub(super) since: Instant,
    /// After this time, the lease is not handed off, because other processes may also be waiting.
    /// The time is set when the first holder leaves.
    pub(super) hand_off_until: Instant,
    /// Whether a client has asked the holder to finish early.
    pub(super) revocation_requested: bool,
}

/// Identifies one of the successive holders of a lease. All guards in a term belong to one owner
/// and share a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Term(pub(super) u32);

/// The part of the state that events describe.
#[derive(Clone, Copy)]
pub(super) struct Snapshot {
    pub(super) phase: Phase,
    pub(super) term: Term,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

/// A renewal of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenewalAttempt {
    pub(super) number: u32,
    /// The TTL within which the renewal and its retries must succeed.
    pub(super) pace: Duration,
    /// When the lease was due before this renewal.
    pub(super) due_before: Instant,
}

/// The lease as its guards see it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// The caller does not have a guard yet.
    Requested,
    Held,
    Unconfirmed,
    Lost(LossReason),
    Released,
}

/// Whether the store may have a lease, and what ends the lease.
///
/// [`State::is_possible`] lists which values are possible in each [`Phase`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum InStore {
    /// No grant has arrived. After a request, the store may have the lease or a queue entry, and a
    /// [`PendingRelease`](crate::engine::releases::PendingRelease) is responsible for both.
    Requested,
    /// The lease was granted, and no release is pending. After a loss, the store may have ended the
    /// lease.
    Granted,
    /// A release is pending.
    Ending,
    /// The store has ended the lease, or no further release is sent.
    Nothing,
}

impl<T> State<T> {
    /// Creates the state of a lease that has not been requested yet.
    pub(super) fn requested(
        requested_ttl: Duration,
        owner: Option<OwnerId>,
        watch: KeyWatch,
    ) -> Self {
        Self {
            phase: Phase::Requested,
            in_store: InStore::Requested,
            granted: Granted { token: 0, sent_at: Instant::ZERO, locked_until: Instant::ZERO },
            validity: Validity {
                deadline: Instant::ZERO,
                requested_ttl,
                confirmed_ttl: requested_ttl,
                confirmed_at: Instant::ZERO,
                unanswered_ttl: None,
            },
            renewal: RenewalState {
                due: Instant::ZERO,
                in_progress: false,
                number: 0,
                batch_size: MAX_BATCH,
                changed_lease: None,
                is_capped: false,
                reports_changes: false,
                is_notified: false,
                caused_by_notification: false,
            },
            holders: Holders {
                term: Term::default(),
                spare_tokens: 0,
                guards: 0,
                owner,
                acquired_by: OwnerId::current(),
                since: Instant::ZERO,
                hand_off_until: Instant::FAR_FUTURE,
                revocation_requested: false,
            },
            place: None,
            changed: None,
            turn: None,
            watch,
        }
    }

    /// Returns whether the guards may see `phase` while the store may have `in_store`.
    fn is_possible(&self) -> bool {
        use InStore::{Ending, Granted, Nothing, Requested};

        match self.phase {
            Phase::Requested => matches!(self.in_store, Requested | Ending | Nothing),
            Phase::Held | Phase::Unconfirmed => self.in_store == Granted,
            // Guards of a lost lease can exist before, during and after the release.
            Phase::Lost(_) => matches!(self.in_store, Granted | Ending | Nothing),
            Phase::Released => matches!(self.in_store, Ending | Nothing),
        }
    }

    /// Checks in debug builds that this state is possible.
    pub(super) fn check(&self) {
        debug_assert!(self.is_possible(), "{:?}, {:?}", self.phase, self.in_store);
    }

    /// Returns the number of the token that the holder in this term has.
    pub(super) fn number(&self, term: Term) -> u64 {
        self.granted.token + if flaw!("hand-off-keeps-token") { 0 } else { u64::from(term.0) }
    }

    /// Returns the part of the state that events describe.
    pub(super) fn standing(&self) -> Snapshot {
        Snapshot {
            phase: self.phase,
            term: self.holders.term,
            since: self.holders.since,
            deadline: self.validity.deadline,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Lost(_) | Phase::Released)
    }

    pub(super) fn as_seen(&self) -> LeaseState {
        match self.phase {
            Phase::Requested | Phase::Held | Phase::Released => LeaseState::Held,
            Phase::Unconfirmed => LeaseState::Unconfirmed,
            Phase::Lost(reason) => LeaseState::Lost(reason),
        }
    }

    pub(super) fn loss(&self) -> Option<LossReason> {
        match self.phase {
            Phase::Lost(reason) => Some(reason),
            Phase::Requested | Phase::Held | Phase::Unconfirmed | Phase::Released => None,
        }
    }

    /// Ends the lease if its deadline has passed, and ends the current renewal if its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.is_over() || self.phase == Phase::Requested {
            return;
        }
        let grace = if flaw!("deadline-ignored") {
            self.validity.requested_ttl * 60
        } else {
            Duration::ZERO
        };
        if now >= self.validity.deadline + grace {
            let reason =
                if self.renewal.is_capped { LossReason::MaxHold } else { LossReason::Expired };
            self.phase = Phase::Lost(reason);
        } else if self.renewal.in_progress && now >= self.renewal.due {
            self.renewal.in_progress = false;
            self.phase = Phase::Unconfirmed;
            self.split_batch(self.renewal.batch_size);
            self.validity.note_unanswered(self.validity.requested_ttl);
        }
    }

    pub(super) fn take_unneeded(&mut self) -> (Option<T>, KeyWatch) {
        (self.turn.take(), mem::replace(&mut self.watch, KeyWatch::silent()))
    }

    pub(super) fn due_only_at_deadline(&self, renewal: RenewalMode) -> bool {
        self.renewal.is_capped || renewal == RenewalMode::Off
    }

    /// Starts a renewal at `now`.
    ///
    /// The renewal may never be polled again, for example because its runtime has stopped. The
    /// lease is therefore due again at the time when the watchdog should retry a renewal that got
    /// no reply.
    pub(super) fn start_renewal(&mut self, now: Instant, renewal: RenewalMode) -> RenewalAttempt {
        self.renewal.in_progress = true;
        self.renewal.number = self.renewal.number.wrapping_add(1);
        self.renewal.caused_by_notification = mem::take(&mut self.renewal.is_notified);
        let (pace, due_before) = (self.validity.renewal_ttl(), self.renewal.due);
        self.renewal.due = self.retry_due(deadline::attempt_end(now, pace), renewal);
        RenewalAttempt { number: self.renewal.number, pace, due_before }
    }

    /// Ends this renewal. Returns `false` if another renewal has started since.
    pub(super) fn end_renewal(&mut self, attempt: RenewalAttempt) -> bool {
        let is_last = self.renewal.number == attempt.number;
        self.renewal.in_progress &= !is_last;
        is_last
    }

    /// Records that the store has applied `ttl` no earlier than `sent_at`.
    pub(super) fn renewed(
        &mut self,
        sent_at: Instant,
        ttl: Duration,
        max: Instant,
        renewal: RenewalMode,
    ) {
        let ttl = self.validity.limited_ttl(ttl);
        self.phase = Phase::Held;
        self.renewal.batch_size = MAX_BATCH;
        self.validity.confirmed_at = sent_at;
        self.validity.confirmed_ttl = ttl;
        self.validity.deadline = deadline::deadline(sent_at, ttl);
        self.renewal.is_capped = sent_at + self.validity.requested_ttl >= max;
        self.renewal.due = if self.due_only_at_deadline(renewal) {
            self.validity.deadline
        } else {
            deadline::renewal_due(sent_at, ttl).min(self.validity.deadline)
        };
        self.apply_notification(sent_at, renewal);
    }

    /// Schedules an early renewal, because this store reports changes of a lease only after its
    /// first renewal.
    pub(super) fn request_reports(&mut self, since: Instant, renewal: RenewalMode) {
        if renewal == RenewalMode::Off {
            return;
        }
        // A capped lease is renewed only because of notifications, so set the flag as if a
        // notification had arrived.
        self.renewal.is_notified = self.renewal.is_capped;
        self.renewal.due = self.renewal.due.min(deadline::settled_at(since));
    }

    /// Returns whether the store sends a notification when the lease ends.
    pub(super) fn is_watched(&self) -> bool {
        self.renewal.reports_changes && !self.watch.is_silent()
    }

    /// Makes the lease due at `instant`, unless a renewal is in progress. Returns `false` if the
    /// lease was already due by then.
    pub(super) fn bring_forward(&mut self, instant: Instant) -> bool {
        let is_earlier = !self.renewal.in_progress && instant < self.renewal.due;
        if is_earlier {
            self.renewal.due = instant;
        }
        is_earlier
    }

    /// Makes the lease due because of a notification.
    ///
    /// The due time is calculated from the last renewal. If notifications about many leases keep
    /// arriving, the leases that have waited longest are renewed first.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soon = if self.phase == Phase::Unconfirmed {
            deadline::notification_due_after_failure(now)
        } else {
            deadline::notification_due(self.validity.confirmed_at)
        };
        self.renewal.due = self.renewal.due.min(soon);
    }

    /// Reduces the batch size after a request for `size` leases got no reply, so that a renewal
    /// that hangs delays fewer leases.
    pub(super) fn split_batch(&mut self, size: u16) {
        self.renewal.batch_size = (size / PARTS).max(1);
    }

    /// Records that the store does not have the lease.
    pub(super) fn not_held(&mut self, reason: LossReason) {
        self.phase = Phase::Lost(reason);
        self.in_store = InStore::Nothing;
    }

    /// Records that the store did not confirm the renewal.
    pub(super) fn not_renewed(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unconfirmed;
        self.renewal.due = self.retry_due(now, renewal);
        // Without this flag, a capped lease would not be renewed again.
        self.renewal.is_notified |= self.renewal.is_capped && self.renewal.caused_by_notification;
        self.apply_notification(now, renewal);
    }

    /// Handles the possibility that more time has passed than the clock shows.
    pub(super) fn suspect_pause(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unconfirmed;
        // The reply to an earlier renewal contains no information about the time since then.
        self.renewal.number = self.renewal.number.wrapping_add(1);
        if mem::take(&mut self.renewal.in_progress) {
            self.validity.note_unanswered(self.validity.requested_ttl);
        }
        // A capped lease is renewed only to find out whether the store still holds it.
        self.renewal.is_notified |= self.renewal.is_capped;
        if renewal == RenewalMode::Watchdog {
            self.renewal.due = now;
        }
    }

    fn apply_notification(&mut self, now: Instant, renewal: RenewalMode) {
        if self.renewal.is_notified && renewal == RenewalMode::Watchdog {
            self.hurry(now);
        }
    }

    /// Returns when the watchdog tries again after a renewal that failed at `now`.
    fn retry_due(&self, now: Instant, renewal: RenewalMode) -> Instant {
        if self.due_only_at_deadline(renewal) {
            self.validity.deadline
        } else {
            deadline::retry_due(now, self.validity.renewal_ttl()).min(self.validity.deadline)
        }
    }
}
