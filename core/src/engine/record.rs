//! The record of a lease, from the first request until the release. The record contains what the
//! guards see and what the store may have.

mod acquired_by;
mod events;
mod release;
mod sent_renewal;
mod state;
mod validity;
mod waits;
mod wake_list;

pub(crate) use sent_renewal::SentRenewal;
pub(crate) use state::{MAX_BATCH, Place, Term};

use state::{InStore, Phase, Snapshot};

use std::mem;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::{Grant, KeyWatch, Lease, Mode, Operation, Replaced, Tenure};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::loss::{LeaseState, LossReason};
use crate::contract::owner::OwnerId;
use crate::contract::token::FencingToken;
use crate::engine::deadline;
use crate::engine::queue::{Next, Turn, Waiter};
use crate::engine::request::LockRequest;
#[cfg(test)]
use crate::engine::wait::Wait;
use crate::observe::{AskedKind, Events};
use crate::options::{LockOptions, RenewalMode};
use crate::sync::{Mutex, lock};

/// How long a lease may be handed off between callers in this process before it must be released,
/// so that other processes can acquire the lock.
const TIME_SHARE: Duration = Duration::from_millis(20);

/// The leases that the watchdog must check now.
pub(crate) type WakeList = wake_list::WakeList<LeaseRecord>;

/// The mutable state of a lease, which keeps the turn of its caller.
type State = state::State<Turn<LeaseRecord>>;

/// The record of a lease, which the caller, the guards, the watchdog and the pending releases
/// share.
///
/// Every query compares the deadline with the clock, so a task that is late, hung or gone cannot
/// keep a lost lease alive. A lost lease stays lost.
#[derive(Debug)]
pub(crate) struct LeaseRecord {
    lease: Lease,
    kind: AskedKind,
    events: Events,
    options: Arc<LockOptions>,
    state: Mutex<State>,
    wake_list: Arc<WakeList>,
}

/// When the watchdog must check a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    /// The TTL of the renewal that is due, if one renewal keeps all leases of a session alive.
    pub(crate) renews_with: Option<Duration>,
}

/// A lease that is being handed off to the next holder.
#[derive(Debug)]
pub(crate) struct HandOff {
    pub(crate) waiter: Waiter<Next<LeaseRecord>>,
    pub(crate) term: Term,
    pub(crate) owner: Option<OwnerId>,
    /// How long the previous holder held the lease.
    pub(crate) held: Duration,
    /// Whether the watchdog must check the lease earlier than before, so that the schedule must be
    /// updated.
    pub(crate) is_due_earlier: bool,
}

/// The effect of dropping a guard.
#[derive(Debug)]
pub(crate) enum Leave {
    /// The owner still has other guards.
    Inner(LeaseState),
    /// This was the last guard. The turn goes to the next caller after the store has confirmed the
    /// release. `is_owed` means that the caller must release the lease.
    Last { seen: LeaseState, turn: Option<Turn<LeaseRecord>>, is_owed: bool },
}

impl LeaseRecord {
    /// Creates the record of a lease that `request` will request. `watch` reports changes of the
    /// lease and was created before the first request, so that no change is missed.
    pub(crate) fn new(
        lease: Lease,
        request: &LockRequest<'_>,
        watch: KeyWatch,
        wake_list: &Arc<WakeList>,
        events: &Events,
    ) -> Arc<Self> {
        let options = Arc::clone(request.options);
        let state = State::requested(options.ttl, request.owner, watch);
        Arc::new(Self {
            lease,
            kind: request.kind,
            events: events.clone(),
            options,
            state: Mutex::new(state),
            wake_list: Arc::clone(wake_list),
        })
    }

    /// Creates the record of a lease in a store that does not send notifications.
    #[cfg(test)]
    pub(crate) fn of(lease: Lease, owner: Option<OwnerId>) -> Arc<Self> {
        let (options, wait) = (Arc::default(), Wait::once(Instant::ZERO));
        let (key, mode, kind) = (&lease.key().clone(), lease.mode(), AskedKind::Mutex);
        let request =
            LockRequest { key, options: &options, mode, kind, queues: false, owner, wait };
        Self::new(lease, &request, KeyWatch::silent(), &Arc::default(), &Events::default())
    }

    /// Discards the notifications that have arrived before the grant.
    pub(crate) fn skip_notifications(&self) {
        lock(&self.state).watch.skip();
    }

    /// Returns the deadline of the lease if a request that is sent at `sent_at` is granted. Without
    /// `grant`, the deadline is calculated from the requested TTL.
    pub(crate) fn deadline_after(&self, grant: Option<&Grant>, sent_at: Instant) -> Instant {
        deadline::deadline(sent_at, self.usable_ttl(grant))
    }

    /// Returns how much of the store's TTL the holder may use.
    fn usable_ttl(&self, grant: Option<&Grant>) -> Duration {
        let requested = self.lease.ttl();
        let granted = grant.and_then(Grant::ttl).unwrap_or(requested);
        granted.min(requested).saturating_sub(self.options.lock_delay)
    }

    /// Records the grant of a request that was sent at `sent_at`. `is_unanswered` means that an
    /// earlier request got no reply.
    pub(crate) fn granted(&self, grant: &Grant, sent_at: Instant, is_unanswered: bool) {
        let options = &self.options;
        let mut state = lock(&self.state);
        state.in_store = InStore::Granted;
        state.granted.token = grant.token();
        state.holders.spare_tokens = grant.spare_tokens().min(options.spare_tokens());
        state.granted.sent_at = sent_at;
        state.holders.since = sent_at;
        state.granted.locked_until = sent_at + options.min_hold.unwrap_or_default();
        state.renewal.reports_changes = grant.has_news();
        state.validity.unanswered_ttl = is_unanswered.then(|| Box::new(self.usable_ttl(None)));
        let max = max_until(options, sent_at);
        state.renewed(sent_at, self.usable_ttl(Some(grant)), max, options.renewal);
        if !grant.has_news() {
            state.request_reports(sent_at, options.renewal);
        }
        state.check();
    }

    /// Gives the granted lease to the caller, which has the turn if the lease excludes all others.
    pub(crate) fn give_to_caller(&self, turn: Option<Turn<Self>>) {
        let mut state = lock(&self.state);
        (state.turn, state.holders.acquired_by, state.holders.guards) =
            (turn, OwnerId::current(), 1);
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn token(&self, term: Term) -> FencingToken {
        FencingToken::new(self.lease.key(), self.number(term))
    }

    /// Returns the number of the token that the holder in this term has.
    pub(crate) fn number(&self, term: Term) -> u64 {
        lock(&self.state).number(term)
    }

    pub(crate) fn kind(&self) -> AskedKind {
        self.kind
    }

    pub(crate) fn owner(&self) -> Option<OwnerId> {
        lock(&self.state).holders.owner
    }

    /// Returns the lease's place in the watchdog's schedule.
    pub(crate) fn place(&self) -> Option<Place> {
        lock(&self.state).place
    }

    /// Records the lease's new place in the watchdog's schedule and returns the previous place.
    pub(crate) fn file(&self, place: Option<Place>) -> Option<Place> {
        mem::replace(&mut lock(&self.state).place, place)
    }

    pub(crate) fn loss_grace(&self) -> Duration {
        self.options.loss_grace
    }

    pub(crate) fn lock_delay(&self) -> Duration {
        self.options.lock_delay
    }

    pub(crate) fn deadline(&self) -> Instant {
        lock(&self.state).validity.deadline
    }

    /// Returns when the watchdog starts to handle the lease. Nothing is due before that time.
    pub(crate) fn settled_at(&self) -> Instant {
        let state = lock(&self.state);
        deadline::settled_at(state.granted.sent_at).min(state.renewal.due)
    }

    /// Returns when the watchdog must check the lease next, or `None` if the lease is over.
    ///
    /// This method does not check whether the deadline has passed, because the watchdog calls it
    /// under a lock. The values that a lost lease drops must not be dropped under a lock.
    pub(crate) fn due(&self) -> Option<Due> {
        let state = lock(&self.state);
        if state.is_over() {
            return None;
        }
        let renews_next = state.phase == Phase::Held
            && state.renewal.due < state.validity.deadline
            && !state.renewal.in_progress
            && !state.renewal.is_notified
            && self.wanted(&state).tenure() == Tenure::Kept;
        Some(Due {
            at: state.renewal.due,
            renews_with: renews_next.then_some(state.validity.requested_ttl),
        })
    }

    /// Returns the state of the lease. If the deadline has passed, the lease ends now.
    pub(crate) fn state(&self, now: Instant) -> LeaseState {
        self.update(now, |state| state.as_seen())
    }

    pub(crate) fn mode(&self) -> Mode {
        self.wanted(&lock(&self.state)).mode()
    }

    /// Returns the lease's description. If the description was changed, the next renewal stores the
    /// returned value.
    pub(crate) fn description(&self) -> Option<Description> {
        self.wanted(&lock(&self.state)).description().cloned()
    }

    /// Returns the holder as other clients see it.
    pub(crate) fn holder(&self, now: Instant) -> Holder {
        let state = lock(&self.state);
        let lease = self.wanted(&state);
        let remaining = state.validity.deadline.since(now) + self.options.lock_delay;
        Holder::new(lease.id().fingerprint())
            .with_description(lease.description().cloned())
            .with_remaining(Some(remaining))
            .with_mode(lease.mode())
            .with_token(Some(state.number(state.holders.term)))
    }

    /// Returns whether a client has asked the holder in this term to finish early.
    pub(crate) fn is_revocation_requested_in(&self, term: Term) -> bool {
        let state = lock(&self.state);
        state.holders.revocation_requested && state.holders.term == term
    }

    /// Returns why the lease was lost, or `None` if it was not lost.
    pub(crate) fn loss(&self, now: Instant) -> Option<LossReason> {
        self.update(now, |state| state.loss())
    }

    /// Returns why the holder in this term lost the lease, or `None` if it did not lose the lease.
    pub(crate) fn loss_of(&self, term: Term, now: Instant) -> Option<LossReason> {
        self.update(now, |state| if state.holders.term == term { state.loss() } else { None })
    }

    /// Returns whether the lease was lost or released.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.update(now, |state| state.is_over())
    }

    /// Returns whether no guard from this term exists.
    pub(crate) fn is_abandoned(&self, term: Term) -> bool {
        let state = lock(&self.state);
        state.holders.guards == 0 || state.holders.term != term
    }

    /// Handles a possible pause of the whole machine. The lease becomes unconfirmed, and its
    /// renewal is due now.
    pub(crate) fn suspect_pause(&self, reason: &Error, now: Instant) {
        let renewal = self.options.renewal;
        self.update_after(Some(reason), now, |state| {
            if !state.is_over() {
                state.suspect_pause(now, renewal);
            }
        });
    }

    /// Ends the lease for `reason`. Returns `true` if the lease must be released, and `false` if
    /// the lease is already over.
    pub(crate) fn lose(&self, reason: LossReason, now: Instant) -> bool {
        self.update(now, |state| {
            let ends = !state.is_over();
            if ends {
                state.phase = Phase::Lost(reason);
                state.in_store = InStore::Ending;
            }
            ends
        })
    }

    /// Adds a guard for the owner in this term. Returns `false` if the owner no longer has a guard.
    ///
    /// The lease must have at least the requested units. A reader cannot become a writer, because
    /// two readers that tried would wait for each other.
    pub(crate) fn enter_again(
        &self,
        term: Term,
        mode: Mode,
        limit: u32,
        now: Instant,
    ) -> Result<bool, Error> {
        self.update(now, |state| match state.phase {
            _ if state.holders.guards == 0 || state.holders.term != term => Ok(false),
            Phase::Lost(reason) => Err(Error::lost(reason)),
            _ if mode.is_mutex() != self.wanted(state).mode().is_mutex() => {
                let message = "the owner already holds the key as a lock of another type";
                Err(Error::new(ErrorKind::WrongType, message))
            }
            _ if mode.units() > self.wanted(state).mode().units() => {
                let message = "the owner holds the lock for reading and cannot upgrade to writing, because two upgrading readers would wait for each other; release the read guard first";
                Err(Error::new(ErrorKind::WouldDeadlock, message))
            }
            _ if state.holders.guards >= limit => {
                let message = format!("the owner already holds the lock {limit} times, which is the reentry limit");
                Err(Error::new(ErrorKind::ReentryLimit, message))
            }
            _ => {
                state.holders.guards += 1;
                Ok(true)
            }
        })
        .map_err(|error| error.with_operation(Operation::Acquire).with_key(self.lease.key()))
    }

    /// Gives up the turn in the local queue and part of the key, so that other callers can acquire
    /// the released part.
    ///
    /// The next renewal sends the change to the store. The call fails if other guards rely on the
    /// full share.
    pub(crate) fn start_sharing(
        &self,
        reduced: impl FnOnce(Mode) -> Result<Mode, Error>,
        now: Instant,
    ) -> Result<Option<Turn<Self>>, Error> {
        self.update(now, |state| match state.phase {
            Phase::Lost(reason) => Err(Error::lost(reason)),
            _ if state.holders.guards > 1 => {
                let message = "the owner has other write guards; release them first";
                Err(Error::new(ErrorKind::Invalid, message))
            }
            _ => {
                let wanted = self.wanted(state).clone();
                let mode = reduced(wanted.mode())?;
                let shared = wanted.with_mode(mode);
                state.renewal.changed_lease = Some(Box::new(shared));
                Ok(state.turn.take())
            }
        })
    }

    /// Hands the lease off to the next waiting caller in this process, if a hand-off is allowed.
    ///
    /// The lease must be as good as a new lease and must not have pending notifications. If the
    /// store does not report the end of a lease, the store must have confirmed the lease a moment
    /// ago, and the watchdog then checks the lease soon.
    pub(crate) fn pass_on(&self, now: Instant) -> Option<HandOff> {
        self.update(now, |state| {
            let is_last = state.phase == Phase::Held && state.holders.guards == 1;
            if !is_last
                || state.holders.term.0 == state.holders.spare_tokens
                || !state.turn.as_mut()?.has_queue()
            {
                return None;
            }
            state.holders.hand_off_until = state.holders.hand_off_until.min(now + TIME_SHARE);
            let in_time = now < state.holders.hand_off_until;
            let is_asking = state.renewal.in_progress && state.renewal.caused_by_notification;
            let has_news = state.renewal.is_notified || is_asking || state.watch.has_changed();
            let is_contested = has_news || state.holders.revocation_requested;
            let is_contested = is_contested && !flaw!("hand-off-despite-revocation");
            let check_by = deadline::settled_at(state.validity.confirmed_at);
            let is_known = state.is_watched() || now < check_by;
            let ttl = self.options.ttl;
            let is_as_new = state.validity.requested_ttl == ttl
                && state.validity.deadline.since(now) >= ttl / 2;
            let is_as_new = is_as_new || flaw!("hand-off-before-expiry");
            if !in_time || is_contested || !is_known || !is_as_new {
                return None;
            }
            let waiter = state.turn.as_mut()?.next_acceptor(&self.options)?;
            state.holders.term.0 += 1;
            let is_due_earlier = !state.is_watched() && state.bring_forward(check_by);
            let owner = mem::replace(&mut state.holders.owner, waiter.owner());
            let held = now.since(mem::replace(&mut state.holders.since, now));
            Some(HandOff { waiter, term: state.holders.term, owner, held, is_due_earlier })
        })
    }

    /// Removes a guard.
    pub(crate) fn leave(&self, now: Instant) -> Leave {
        self.update(now, |state| {
            let seen = state.as_seen();
            state.holders.guards -= 1;
            if state.holders.guards > 0 {
                return Leave::Inner(seen);
            }
            if !state.is_over() {
                state.phase = Phase::Released;
            }
            let is_owed = self.must_be_released(state);
            if is_owed {
                state.in_store = InStore::Ending;
            }
            Leave::Last { seen, turn: state.turn.take(), is_owed }
        })
    }

    /// Returns the latest allowed deadline.
    fn max_until(&self, state: &State) -> Instant {
        max_until(&self.options, state.granted.sent_at)
    }

    /// Returns the lease that renewals request, apart from its TTL.
    fn wanted<'a>(&'a self, state: &'a State) -> &'a Lease {
        state.renewal.changed_lease.as_deref().unwrap_or(&self.lease)
    }

    /// Subscribes to notifications about the key. The wake list passes them to the watchdog.
    pub(crate) fn listen(self: &Arc<Self>, now: Instant) {
        if self.options.renewal == RenewalMode::Off {
            // Renewals are off, and only a renewal could check the lease.
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        // Declared before the lock, so that it is dropped after the lock.
        let mut _replaced = Replaced::new();
        let mut state = lock(&self.state);
        while !state.is_over() {
            let polled;
            (polled, _replaced) = state.watch.poll_under_lock(&mut cx);
            if polled.is_pending() {
                break;
            }
            state.renewal.is_notified = true;
        }
        if state.renewal.is_notified && !state.renewal.in_progress {
            state.hurry(now);
        }
    }

    fn standing(&self) -> Snapshot {
        lock(&self.state).standing()
    }

    fn update<R>(&self, now: Instant, change: impl FnOnce(&mut State) -> R) -> R {
        self.update_after(None, now, change)
    }

    /// Changes the state. After the grant, no other function ends the lease or extends its
    /// deadline.
    ///
    /// This function first checks whether the deadline has passed. The function also drops the
    /// parts of the state that an ended lease does not need. `error` may be the reason for the
    /// change.
    fn update_after<R>(
        &self,
        error: Option<&Error>,
        now: Instant,
        change: impl FnOnce(&mut State) -> R,
    ) -> R {
        let mut state = lock(&self.state);
        let before =
            (state.phase, state.renewal.in_progress, state.holders.term, state.holders.guards == 0);
        state.expire(now);
        let result = change(&mut state);
        state.check();
        let after =
            (state.phase, state.renewal.in_progress, state.holders.term, state.holders.guards == 0);
        let at = state.standing();
        let unneeded = state.is_over().then(|| state.take_unneeded());
        let changed = if before == after { None } else { state.changed.clone() };
        drop(state);
        drop(unneeded);
        if let Some(changed) = changed {
            changed.notify_waiters();
        }
        if before.0 != at.phase {
            self.report(at, error, now);
        }
        result
    }
}

/// Returns the time until which a lease that was requested at `granted_at` may be held.
fn max_until(options: &LockOptions, granted_at: Instant) -> Instant {
    options.max_hold.map_or(Instant::FAR_FUTURE, |limit| granted_at + limit)
}

/// Wakes the watchdog when a notification about the key arrives.
impl Wake for LeaseRecord {
    fn wake(self: Arc<Self>) {
        self.wake_list.push(&self);
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use crate::locks::guard::LockGuard;

    /// A process may hold a million leases for a long time.
    #[test]
    fn a_held_lease_is_small() {
        assert!(size_of::<LeaseRecord>() <= 408, "{}", size_of::<LeaseRecord>());
        assert!(size_of::<LockGuard>() <= 40, "{}", size_of::<LockGuard>());
    }
}
