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

/// Leases renewed together. Enough to make the round trip cheap per lease, and few enough that one
/// batch does not keep a store busy for long (a few hundred microseconds for Redis).
pub(crate) const BATCH: usize = 256;

/// A batch of renewals without a reply is repeated in so many parts. A TTL has time for three tries, so a lease that hangs has to be
/// alone by the third; and after an outage each batch costs so many requests and not one per lease.
const PARTS: usize = 16;

/// A place in the watchdog's schedule: a bucket, and an index in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Young(u32),
    Due(Instant, u32),
}

/// [`Hold::update`](super::Hold) alone ends the lease or pushes its deadline, and notices a passed one first.
#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) phase: Phase,
    /// The TTL to believe in that renewals ask for.
    pub(super) ttl: Duration,
    /// The TTL to believe in that the store has last confirmed.
    pub(super) in_force: Duration,
    /// The shortest TTL that was asked for without an answer: the store may put it in force at any time. Boxed, since there hardly
    /// ever is one, and of leases there are many.
    pub(super) unanswered: Option<Box<Duration>>,
    /// The lease that renewals ask for, once its share or description differs from the grant.
    pub(super) amended: Option<Box<Lease>>,
    pub(super) deadline: Instant,
    /// When the request for the lease was sent, or the holder before passed it on.
    pub(super) since: Instant,
    /// When the request was sent by which the store has last confirmed the lease.
    pub(super) confirmed_at: Instant,
    /// From now on the store reports events on the lease, if it reports any.
    pub(super) has_news: bool,
    /// The key stays closed until then, also after a release.
    pub(super) min_until: Instant,
    /// The deadline cannot be pushed any further.
    pub(super) capped: bool,
    /// When the watchdog is to look at it next.
    pub(super) due: Instant,
    /// How many holders it has had before this one.
    pub(super) term: Term,
    /// The owner that may enter again, if one may.
    pub(super) owner: Option<OwnerId>,
    /// The task that took it, or the thread outside of tasks.
    pub(super) taker: OwnerId,
    /// How many guards share it.
    pub(super) depth: u32,
    /// It is passed on no more after that, since other processes wait as well. It begins when the first one leaves.
    pub(super) share_ends: Instant,
    /// How many leases may share the request of its next renewal, itself included.
    pub(super) company: usize,
    /// A renewal is under way, until it is due to be repeated. Two at once could reach the store in either order.
    pub(super) renewing: bool,
    /// The number of the last renewal: the reply to an earlier one comes too late.
    pub(super) attempt: u32,
    /// There was news of the key since the last renewal began.
    pub(super) news: bool,
    /// The last renewal began because there was news.
    pub(super) asks_for_news: bool,
    /// A client has asked the holder to finish early.
    pub(super) asked_back: bool,
    /// Where the watchdog has filed it. It changes only while the schedule is locked.
    pub(super) place: Option<Place>,
    /// Notified of every change; made for the first task that waits for one.
    pub(super) changed: Option<Arc<Notify>>,
    /// Our turn among the callers of this process, given up with the lease.
    pub(super) turn: Option<T>,
    pub(super) watch: KeyWatch,
}

/// Which of the holders of a lease, one after the other: guards of one term are of one owner and share a token.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Term(pub(super) u32);

/// The part of a hold's state that events are about.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    pub(super) phase: Phase,
    pub(super) term: Term,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

/// One of the renewals of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    /// The TTL in which it and its repetitions are to be in time.
    pub(super) pace: Duration,
    /// When the lease was due before.
    pub(super) due_before: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    Held,
    Unconfirmed,
    Lost(LossReason),
    Released,
}

impl<T> State<T> {
    /// The part that events are about.
    pub(super) fn standing(&self) -> Standing {
        Standing { phase: self.phase, term: self.term, since: self.since, deadline: self.deadline }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Lost(_) | Phase::Released)
    }

    pub(super) fn as_seen(&self) -> LeaseState {
        match self.phase {
            Phase::Held | Phase::Released => LeaseState::Held,
            Phase::Unconfirmed => LeaseState::Unconfirmed,
            Phase::Lost(reason) => LeaseState::Lost(reason),
        }
    }

    pub(super) fn loss(&self) -> Option<LossReason> {
        match self.phase {
            Phase::Lost(reason) => Some(reason),
            Phase::Held | Phase::Unconfirmed | Phase::Released => None,
        }
    }

    /// Notices the end of the lease, or of the time of a renewal that has not come to an end by itself.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.is_over() {
            return;
        }
        if now >= self.deadline {
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

    /// Begins a renewal at `now`.
    ///
    /// Its caller, or a runtime, may never poll it again. So the lease falls due when the watchdog repeats a renewal without a reply.
    pub(super) fn start_renewal(&mut self, now: Instant, renewal: RenewalMode) -> Attempt {
        self.renewing = true;
        self.attempt = self.attempt.wrapping_add(1);
        self.asks_for_news = mem::take(&mut self.news);
        let (pace, due_before) = (self.pace(), self.due);
        self.due = self.retry_due(deadline::attempt_end(now, pace), renewal);
        Attempt { number: self.attempt, pace, due_before }
    }

    /// Ends this renewal; `false` if another one has begun since.
    pub(super) fn end_renewal(&mut self, attempt: Attempt) -> bool {
        let is_last = self.attempt == attempt.number;
        self.renewing &= !is_last;
        is_last
    }

    /// The store put `ttl` in force no earlier than `sent_at`.
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

    /// How long the renewal is overdue that is confirmed at `now`, from when it first fell due.
    pub(super) fn lag(&self, now: Instant) -> Duration {
        now.since(deadline::renewal_due(self.confirmed_at, self.in_force))
    }

    /// The TTL in which renewals are to be in time: not a longer one that they ask for, as long as the store has not confirmed it.
    fn pace(&self) -> Duration {
        self.believed(self.ttl).min(self.in_force)
    }

    /// How much of a TTL that the store has put in force may be believed in.
    fn believed(&self, ttl: Duration) -> Duration {
        self.unanswered.as_deref().map_or(ttl, |unanswered| ttl.min(*unanswered))
    }

    /// The store may have put `ttl` in force, or may do so yet.
    pub(super) fn note_unanswered(&mut self, ttl: Duration) {
        self.unanswered = Some(Box::new(self.believed(ttl)));
    }

    /// The store, which granted it at `since`, tells nothing of it before it is renewed: that is to be soon.
    pub(super) fn ask_for_news(&mut self, since: Instant, renewal: RenewalMode) {
        if renewal == RenewalMode::Off {
            return;
        }
        // One that is capped is renewed for the sake of news alone, and not if it falls due.
        self.news = self.capped;
        self.due = self.due.min(deadline::of_age(since));
    }

    /// Whether the store tells, without being asked, that the lease has ended.
    pub(super) fn is_watched(&self) -> bool {
        self.has_news && !self.watch.is_silent()
    }

    /// Makes it due by `instant`, unless a renewal is under way; `false` if it was due by then already.
    pub(super) fn bring_forward(&mut self, instant: Instant) -> bool {
        let is_earlier = !self.renewing && instant < self.due;
        if is_earlier {
            self.due = instant;
        }
        is_earlier
    }

    /// There is news of it, so it is due: as if since soon after its last renewal. When there is news of many, again and again, those
    /// come first that have waited for longest, and not always the same.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soon = if self.phase == Phase::Unconfirmed {
            deadline::news_due_after_failure(now)
        } else {
            deadline::next_news_due(self.confirmed_at)
        };
        self.due = self.due.min(soon);
    }

    /// A request of so many got no reply at all: next time there are fewer of them, so that one that hangs keeps few others waiting.
    pub(super) fn split_company(&mut self, company: usize) {
        self.company = (company / PARTS).max(1);
    }

    /// The store did not say that it renewed.
    pub(super) fn not_renewed(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unconfirmed;
        self.due = self.retry_due(now, renewal);
        // No later renewal of a capped lease would ask once more.
        self.news |= self.capped && self.asks_for_news;
        self.heed_news(now, renewal);
    }

    /// More time may have passed than the clock shows.
    pub(super) fn doubt(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unconfirmed;
        // The reply to a renewal that was sent before says nothing about the time since then.
        self.attempt = self.attempt.wrapping_add(1);
        if mem::take(&mut self.renewing) {
            self.note_unanswered(self.ttl);
        }
        // A capped lease is renewed only to find out whether it is still ours.
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

    /// When the watchdog tries again after a renewal that has failed at `now`.
    fn retry_due(&self, now: Instant, renewal: RenewalMode) -> Instant {
        if self.due_only_at_deadline(renewal) {
            self.deadline
        } else {
            deadline::retry_due(now, self.pace()).min(self.deadline)
        }
    }
}
