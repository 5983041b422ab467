//! The mutable state of a hold.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

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
pub(crate) const BATCH: usize = 256;

/// If a batch of renewals gets no reply, it is retried in this many parts. A TTL allows three
/// attempts, so a lease whose renewal hangs must be alone in the third attempt. After an outage,
/// each batch costs this number of requests instead of one request per lease.
const PARTS: usize = 16;

/// A place in the watchdog's schedule, which consists of a bucket and an index into the bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Young(u32),
    Due(Instant, u32),
}

/// The mutable state of a hold. Only [`Hold::update`](super::Hold) ends the lease or extends its
/// deadline, and this function first checks whether the deadline has passed.
#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) phase: Phase,
    pub(super) in_store: InStore,
    /// The token of the first holder. Each later holder has the next token.
    pub(super) token: u64,
    /// The number of additional holders that can get a token.
    pub(super) spare_tokens: u32,
    /// When the granted request was sent.
    pub(super) granted_at: Instant,
    /// The local TTL that renewals request.
    pub(super) ttl: Duration,
    /// The local TTL that the store has last confirmed.
    pub(super) in_force: Duration,
    /// The shortest TTL of all requests without a reply, because the store may still apply any of
    /// these requests. Boxed, because such requests are rare and a process may have many leases.
    pub(super) unanswered: Option<Box<Duration>>,
    /// The lease that renewals request, if its mode or description differs from the grant.
    pub(super) amended: Option<Box<Lease>>,
    pub(super) deadline: Instant,
    /// When the lease was requested or handed off by the previous holder.
    pub(super) since: Instant,
    /// When the request that the store last confirmed was sent.
    pub(super) confirmed_at: Instant,
    /// Whether the store already reports changes of this lease, if the store reports changes at
    /// all.
    pub(super) has_news: bool,
    /// The key stays locked until this time, even after a release.
    pub(super) min_until: Instant,
    /// Whether the deadline has reached its limit.
    pub(super) capped: bool,
    /// When the watchdog must check the lease next.
    pub(super) due: Instant,
    /// The number of previous holders.
    pub(super) term: Term,
    /// The owner that can lock the key again, if the lock is reentrant.
    pub(super) owner: Option<OwnerId>,
    /// The task that acquired the lease, or the thread if the caller was not in a task.
    pub(super) taker: OwnerId,
    /// The number of guards.
    pub(super) depth: u32,
    /// After this time, the lease is not handed off, because other processes may also be waiting.
    /// The time is set when the first holder leaves.
    pub(super) share_ends: Instant,
    /// The number of leases that may share the next renewal request, including this lease.
    pub(super) company: usize,
    /// Whether a renewal is in progress. The flag stays set until the renewal's retry is due,
    /// because two concurrent renewals could reach the store in either order.
    pub(super) renewing: bool,
    /// The number of the last renewal. A reply to an earlier renewal is too late.
    pub(super) attempt: u32,
    /// Whether a notification has arrived since the last renewal started.
    pub(super) news: bool,
    /// Whether a notification caused the last renewal.
    pub(super) asks_for_news: bool,
    /// Whether a client has asked the holder to finish early.
    pub(super) asked_back: bool,
    /// The lease's place in the watchdog's schedule. This field changes only while the schedule is
    /// locked.
    pub(super) place: Option<Place>,
    /// Notifies tasks of every change. The notifier is created for the first task that waits.
    pub(super) changed: Option<Arc<Notify>>,
    /// The turn among the callers in this process, which ends with the lease.
    pub(super) turn: Option<T>,
    pub(super) watch: KeyWatch,
}

/// Identifies one of the successive holders of a lease. All guards in a term belong to one owner
/// and share a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Term(pub(super) u32);

/// The part of the state that events describe.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    pub(super) phase: Phase,
    pub(super) term: Term,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

/// A renewal of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    /// The TTL within which the renewal and its retries must succeed.
    pub(super) pace: Duration,
    /// When the lease was due before this renewal.
    pub(super) due_before: Instant,
}

/// What the guards of a lease see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// There is no guard yet.
    Requested,
    Held,
    Unconfirmed,
    Lost(LossReason),
    Released,
}

/// What the store may have of a lease.
///
/// The phase and this value can differ. For example, guards of a lost lease can exist for a long time
/// after the store has forgotten the lease, or while its release is in progress.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum InStore {
    Nothing,
    /// The lease or a queue entry, because a request was sent whose caller still waits for a grant.
    Requested,
    /// The lease, which was granted and not released yet.
    Granted,
    /// The lease or a queue entry, whose release is pending.
    Ending,
}

impl<T> State<T> {
    /// Creates the state of a lease that has not been requested yet, with the options' TTL and the TTL of
    /// the first request.
    pub(super) fn requested(
        ttl: Duration,
        first_ttl: Duration,
        owner: Option<OwnerId>,
        watch: KeyWatch,
    ) -> Self {
        Self {
            phase: Phase::Requested,
            in_store: InStore::Nothing,
            token: 0,
            spare_tokens: 0,
            granted_at: Instant::ZERO,
            ttl,
            in_force: first_ttl,
            unanswered: None,
            amended: None,
            deadline: Instant::ZERO,
            since: Instant::ZERO,
            confirmed_at: Instant::ZERO,
            has_news: false,
            min_until: Instant::ZERO,
            capped: false,
            due: Instant::ZERO,
            term: Term::default(),
            owner,
            taker: OwnerId::current(),
            depth: 0,
            share_ends: Instant::FAR_FUTURE,
            company: BATCH,
            renewing: false,
            attempt: 0,
            news: false,
            asks_for_news: false,
            asked_back: false,
            place: None,
            changed: None,
            turn: None,
            watch,
        }
    }

    /// Returns the number of the token that the holder in this term has.
    pub(super) fn number(&self, term: Term) -> u64 {
        self.token + if flaw!("hand-off-keeps-token") { 0 } else { u64::from(term.0) }
    }

    /// Returns the part of the state that events describe.
    pub(super) fn standing(&self) -> Standing {
        Standing { phase: self.phase, term: self.term, since: self.since, deadline: self.deadline }
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
        let grace = if flaw!("deadline-ignored") { self.ttl * 60 } else { Duration::ZERO };
        if now >= self.deadline + grace {
            let reason = if self.capped { LossReason::MaxHold } else { LossReason::Expired };
            self.phase = Phase::Lost(reason);
        } else if self.renewing && now >= self.due {
            self.renewing = false;
            self.phase = Phase::Unconfirmed;
            self.split_company(self.company);
            self.note_unanswered(self.ttl);
        }
    }

    pub(super) fn let_go(&mut self) -> (Option<T>, KeyWatch) {
        (self.turn.take(), mem::replace(&mut self.watch, KeyWatch::silent()))
    }

    pub(super) fn due_only_at_deadline(&self, renewal: RenewalMode) -> bool {
        self.capped || renewal == RenewalMode::Off
    }

    /// Starts a renewal at `now`.
    ///
    /// The renewal may never be polled again, for example because its runtime has stopped. The
    /// lease is therefore due again at the time when the watchdog should retry a renewal that got
    /// no reply.
    pub(super) fn start_renewal(&mut self, now: Instant, renewal: RenewalMode) -> Attempt {
        self.renewing = true;
        self.attempt = self.attempt.wrapping_add(1);
        self.asks_for_news = mem::take(&mut self.news);
        let (pace, due_before) = (self.pace(), self.due);
        self.due = self.retry_due(deadline::attempt_end(now, pace), renewal);
        Attempt { number: self.attempt, pace, due_before }
    }

    /// Ends this renewal. Returns `false` if another renewal has started since.
    pub(super) fn end_renewal(&mut self, attempt: Attempt) -> bool {
        let is_last = self.attempt == attempt.number;
        self.renewing &= !is_last;
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
        let ttl = self.believed(ttl);
        self.phase = Phase::Held;
        self.company = BATCH;
        self.confirmed_at = sent_at;
        self.in_force = ttl;
        self.deadline = deadline::deadline(sent_at, ttl);
        self.capped = sent_at + self.ttl >= max;
        self.due = if self.due_only_at_deadline(renewal) {
            self.deadline
        } else {
            deadline::renewal_due(sent_at, ttl).min(self.deadline)
        };
        self.heed_news(sent_at, renewal);
    }

    /// Returns the delay of a renewal that is confirmed at `now`, measured from the time when it
    /// was first due.
    pub(super) fn lag(&self, now: Instant) -> Duration {
        now.since(deadline::renewal_due(self.confirmed_at, self.in_force))
    }

    /// Returns the TTL within which renewals must succeed. A longer TTL counts only after the store
    /// has confirmed it.
    fn pace(&self) -> Duration {
        self.believed(self.ttl).min(self.in_force)
    }

    /// Limits `ttl` to the time that the holder may use, because the store may still apply an
    /// earlier request with a shorter TTL.
    fn believed(&self, ttl: Duration) -> Duration {
        self.unanswered.as_deref().map_or(ttl, |unanswered| ttl.min(*unanswered))
    }

    /// Records a request that got no reply. The store may already have applied `ttl` or may still
    /// apply it.
    pub(super) fn note_unanswered(&mut self, ttl: Duration) {
        let ttl = if flaw!("unanswered-renewal-forgotten") { Duration::MAX } else { ttl };
        self.unanswered = Some(Box::new(self.believed(ttl)));
    }

    /// Schedules an early renewal, because this store reports changes of a lease only after its
    /// first renewal.
    pub(super) fn ask_for_news(&mut self, since: Instant, renewal: RenewalMode) {
        if renewal == RenewalMode::Off {
            return;
        }
        // A capped lease is renewed only because of notifications, so set the flag as if a
        // notification had arrived.
        self.news = self.capped;
        self.due = self.due.min(deadline::of_age(since));
    }

    /// Returns whether the store sends a notification when the lease ends.
    pub(super) fn is_watched(&self) -> bool {
        self.has_news && !self.watch.is_silent()
    }

    /// Makes the lease due at `instant`, unless a renewal is in progress. Returns `false` if the
    /// lease was already due by then.
    pub(super) fn bring_forward(&mut self, instant: Instant) -> bool {
        let is_earlier = !self.renewing && instant < self.due;
        if is_earlier {
            self.due = instant;
        }
        is_earlier
    }

    /// Makes the lease due because of a notification.
    ///
    /// The due time is calculated from the last renewal. If notifications about many leases keep
    /// arriving, the leases that have waited longest are renewed first.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soon = if self.phase == Phase::Unconfirmed {
            deadline::news_due_after_failure(now)
        } else {
            deadline::next_news_due(self.confirmed_at)
        };
        self.due = self.due.min(soon);
    }

    /// Reduces the batch size after a request for `company` leases got no reply, so that a renewal
    /// that hangs delays fewer leases.
    pub(super) fn split_company(&mut self, company: usize) {
        self.company = (company / PARTS).max(1);
    }

    /// Records that the store does not have the lease.
    pub(super) fn not_held(&mut self, reason: LossReason) {
        self.phase = Phase::Lost(reason);
        self.in_store = InStore::Nothing;
    }

    /// Records that the store did not confirm the renewal.
    pub(super) fn not_renewed(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unconfirmed;
        self.due = self.retry_due(now, renewal);
        // Without this flag, a capped lease would not be renewed again.
        self.news |= self.capped && self.asks_for_news;
        self.heed_news(now, renewal);
    }

    /// Handles the possibility that more time has passed than the clock shows.
    pub(super) fn doubt(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unconfirmed;
        // The reply to an earlier renewal contains no information about the time since then.
        self.attempt = self.attempt.wrapping_add(1);
        if mem::take(&mut self.renewing) {
            self.note_unanswered(self.ttl);
        }
        // A capped lease is renewed only to find out whether the store still holds it.
        self.news |= self.capped;
        if renewal == RenewalMode::Watchdog {
            self.due = now;
        }
    }

    fn heed_news(&mut self, now: Instant, renewal: RenewalMode) {
        if self.news && renewal == RenewalMode::Watchdog {
            self.hurry(now);
        }
    }

    /// Returns when the watchdog tries again after a renewal that failed at `now`.
    fn retry_due(&self, now: Instant, renewal: RenewalMode) -> Instant {
        if self.due_only_at_deadline(renewal) {
            self.deadline
        } else {
            deadline::retry_due(now, self.pace()).min(self.deadline)
        }
    }
}
