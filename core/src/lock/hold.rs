//! One lease as this process sees it: Held, Unsure or Lost, and how many guards share it.

mod renewing;

pub(crate) use renewing::Renewing;

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{self, Clock, Instant};
use crate::error::{Error, ErrorKind, Operation};
use crate::lease::Lease;
use crate::lock::deadline;
use crate::lock::queue::Turn;
use crate::lock::reaper::Unwanted;
use crate::loss::{LeaseState, LossReason};
use crate::options::{LockOptions, RenewalMode};
use crate::owner::OwnerId;
use crate::sync::lock;
use crate::token::FencingToken;
use crate::watch::KeyWatch;

/// A lease that was granted, shared by its guards and the watchdog.
///
/// Whether it is lost is read from the clock whenever anybody asks, so no task that is late, hung
/// or gone can keep it alive. Once seen as lost, it stays lost.
#[derive(Debug)]
pub(crate) struct Hold {
    lease: Lease,
    token: FencingToken,
    owner: Option<OwnerId>,
    renewal: RenewalMode,
    /// The deadline is never pushed past it.
    max_until: Instant,
    /// The key stays closed until then, also after a release.
    min_until: Instant,
    state: Mutex<State>,
    /// Notified of every change that somebody may wait for.
    changed: Notify,
    alarm: Arc<Alarm>,
    /// Where the watchdog has filed it; locked only while its schedule is.
    filed: Mutex<Option<Place>>,
}

/// A place in the watchdog's schedule: when, and which of those at that time.
pub(crate) type Place = (Instant, u64);

/// How a hold calls for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung_for: Mutex<Vec<Arc<Hold>>>,
    wake: Notify,
}

impl Alarm {
    /// Wakes the watchdog.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until somebody has called for the watchdog since the last time.
    pub(crate) async fn heard(&self) {
        self.wake.notified().await;
    }

    /// Those that it was rung for.
    pub(crate) fn answer(&self) -> Vec<Arc<Hold>> {
        mem::take(&mut *lock(&self.rung_for))
    }

    /// Makes the watchdog look at `hold` now.
    fn ring(&self, hold: Arc<Hold>) {
        lock(&self.rung_for).push(hold);
        self.wake();
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// What renewals ask for.
    ttl: Duration,
    deadline: Instant,
    /// The deadline cannot be pushed any further.
    capped: bool,
    /// When the watchdog is to look at it next.
    due: Instant,
    /// How many guards share it.
    depth: u32,
    /// The last renewal got no reply at all: the next goes alone, so that it keeps no others waiting.
    alone: bool,
    /// A renewal is under way. Two at once could reach the store in either order.
    renewing: bool,
    /// There was news of the key since the last renewal began.
    news: bool,
    /// Our turn among the callers of this process, given up with the lease.
    turn: Option<Turn>,
    watch: KeyWatch,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Held,
    Unsure,
    Lost(LossReason),
    Released,
}

/// A lease as the store granted it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) lease: Lease,
    pub(crate) token: FencingToken,
    /// The clock before the request was sent.
    pub(crate) sent_at: Instant,
    /// The TTL to believe in.
    pub(crate) ttl: Duration,
    /// News of the key since before the grant.
    pub(crate) watch: KeyWatch,
}

/// How a guard left.
#[derive(Debug)]
pub(crate) enum Leave {
    /// Other guards of the owner remain.
    Inner(LeaseState),
    /// It was the last one. The turn is for the next caller, once the store knows of the release.
    Last(LeaseState, Option<Turn>),
}

impl Hold {
    pub(crate) fn new(
        granted: Granted,
        owner: Option<OwnerId>,
        options: &LockOptions,
        turn: Turn,
        alarm: Arc<Alarm>,
    ) -> Arc<Self> {
        let Granted { lease, token, sent_at, ttl, watch } = granted;
        let max_until = options.max_hold.map_or(Instant::FAR_FUTURE, |limit| sent_at + limit);
        let mut state = State {
            phase: Phase::Held,
            ttl: options.ttl,
            deadline: sent_at,
            capped: false,
            due: sent_at,
            depth: 1,
            alone: false,
            renewing: false,
            news: false,
            turn: Some(turn),
            watch,
        };
        state.renewed(sent_at, ttl, max_until, options.renewal);
        Arc::new(Self {
            lease,
            token,
            owner,
            renewal: options.renewal,
            max_until,
            min_until: sent_at + options.min_hold.unwrap_or_default(),
            state: Mutex::new(state),
            changed: Notify::new(),
            alarm,
            filed: Mutex::default(),
        })
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn token(&self) -> &FencingToken {
        &self.token
    }

    pub(crate) fn owner(&self) -> Option<OwnerId> {
        self.owner
    }

    pub(crate) fn filed(&self) -> &Mutex<Option<Place>> {
        &self.filed
    }

    pub(crate) fn deadline(&self) -> Instant {
        lock(&self.state).deadline
    }

    pub(crate) fn due(&self) -> Instant {
        lock(&self.state).due
    }

    /// How it stands. A deadline that has passed ends it here and now.
    pub(crate) fn state(&self, now: Instant) -> LeaseState {
        self.update(now, |state| state.as_seen())
    }

    /// What is to be ended in the store once nobody wants it any more.
    pub(crate) fn unwanted(&self) -> Unwanted {
        let ttl = lock(&self.state).ttl;
        Unwanted::new(&self.lease.clone().with_ttl(ttl)).closed_until(self.min_until)
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self, now: Instant) -> Option<LossReason> {
        match self.state(now) {
            LeaseState::Lost(reason) => Some(reason),
            LeaseState::Held | LeaseState::Unsure => None,
        }
    }

    /// Whether it is lost or released.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.update(now, |state| state.is_over())
    }

    /// Whether its next renewal is to keep no others waiting.
    pub(crate) fn renews_alone(&self) -> bool {
        lock(&self.state).alone
    }

    /// Whether no guard is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.state).depth == 0
    }

    /// Ends it for `reason`, unless it is over already.
    pub(crate) fn lose(&self, reason: LossReason, now: Instant) {
        self.update(now, |state| {
            if !state.is_over() {
                state.phase = Phase::Lost(reason);
            }
        });
    }

    /// Adds a guard of the same owner; `false` if none is left to join.
    pub(crate) fn enter_again(&self, limit: u32, now: Instant) -> Result<bool, Error> {
        self.update(now, |state| match state.phase {
            _ if state.depth == 0 => Ok(false),
            Phase::Lost(reason) => Err(Error::lost(reason)),
            _ if state.depth >= limit => {
                let message = format!("its owner holds it {limit} times already");
                Err(Error::new(ErrorKind::ReentryLimit, message))
            }
            _ => {
                state.depth += 1;
                Ok(true)
            }
        })
        .map_err(|error| error.with_operation(Operation::Acquire).with_key(self.lease.key()))
    }

    /// Takes a guard away.
    pub(crate) fn leave(&self, now: Instant) -> Leave {
        self.update(now, |state| {
            let seen = state.as_seen();
            state.depth -= 1;
            if state.depth > 0 {
                return Leave::Inner(seen);
            }
            if !state.is_over() {
                state.phase = Phase::Released;
            }
            Leave::Last(seen, state.turn.take())
        })
    }

    /// Waits until it is lost. Never ends if it is released instead.
    pub(crate) async fn wait_lost(&self, clock: &dyn Clock) -> LossReason {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.loss(clock.now()) {
                return reason;
            }
            clock::until(clock, self.next_moment(), changed).await;
        }
    }

    /// Waits until it is unsure or lost.
    pub(crate) async fn wait_unsure(&self, clock: &dyn Clock) -> LeaseState {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.state(clock.now()) {
                LeaseState::Held => {}
                state @ (LeaseState::Unsure | LeaseState::Lost(_)) => return state,
            }
            clock::until(clock, self.next_moment(), changed).await;
        }
    }

    /// When time alone may change it next.
    fn next_moment(&self) -> Instant {
        let state = lock(&self.state);
        if state.is_over() { Instant::FAR_FUTURE } else { state.deadline }
    }

    /// Begins a renewal with the TTL of the last one; `None` if there is nothing to renew, or one is under way.
    pub(crate) fn start_renewal(self: &Arc<Self>, now: Instant) -> Option<Renewing> {
        let ttl = self.update(now, |state| {
            // A capped lease is renewed only to find out whether it is still ours.
            let needless = self.renewal == RenewalMode::Off || (state.capped && !state.news);
            if state.is_over() || state.renewing || needless {
                return None;
            }
            state.start_renewal();
            Some(state.ttl)
        })?;
        Some(Renewing::new(self, now, ttl.min(self.max_until.since(now))))
    }

    /// Begins a renewal that puts another TTL in force, after the one that is under way.
    ///
    /// If `ttl` is shorter, the deadline moves before anything is sent: the store may act on it and the reply be lost.
    pub(crate) async fn start_extension(
        self: &Arc<Self>,
        ttl: Duration,
        clock: &dyn Clock,
    ) -> Result<Renewing, Error> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = clock.now();
            let capped = ttl.min(self.max_until.since(now));
            let started = self.update(now, |state| match state.phase {
                Phase::Lost(reason) => Err(Error::lost(reason)),
                _ if state.renewing => Ok(false),
                _ => {
                    state.ttl = ttl;
                    state.deadline = state.deadline.min(deadline::deadline(now, capped));
                    state.start_renewal();
                    Ok(true)
                }
            })?;
            if started {
                return Ok(Renewing::new(self, now, capped));
            }
            clock::until(clock, self.next_moment(), changed).await;
        }
    }

    /// Asks for news of the key, now and from now on; the watchdog hears of it through the alarm.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.renewal == RenewalMode::Off {
            // The only way to look again is to renew, which was not asked for.
            return;
        }
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        let mut state = lock(&self.state);
        while !state.is_over() && state.watch.poll_changed(&mut cx).is_ready() {
            state.news = true;
        }
        if state.news && !state.renewing {
            state.due = Instant::from_zero(Duration::ZERO);
        }
    }

    /// The only way to change the state: notices a passed deadline first, and lets go of what a lease that is over needs no more.
    fn update<R>(&self, now: Instant, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        let before = (state.phase, state.renewing);
        state.expire(now);
        let result = change(&mut state);
        let after = (state.phase, state.renewing);
        let needless = state.is_over().then(|| state.let_go());
        drop(state);
        drop(needless);
        if before != after {
            self.changed.notify_waiters();
        }
        if let (Phase::Held | Phase::Unsure, Phase::Lost(reason)) = (before.0, after.0) {
            let (key, lease) = (self.lease.key(), self.lease.id().fingerprint());
            tracing::warn!(%key, %lease, %reason, "lease lost");
        }
        result
    }
}

/// Wakes the watchdog when there is news of the key.
impl Wake for Hold {
    fn wake(self: Arc<Self>) {
        let alarm = Arc::clone(&self.alarm);
        alarm.ring(self);
    }
}

impl State {
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Lost(_) | Phase::Released)
    }

    fn as_seen(&self) -> LeaseState {
        match self.phase {
            Phase::Held | Phase::Released => LeaseState::Held,
            Phase::Unsure => LeaseState::Unsure,
            Phase::Lost(reason) => LeaseState::Lost(reason),
        }
    }

    fn expire(&mut self, now: Instant) {
        if !self.is_over() && now >= self.deadline {
            let reason = if self.capped { LossReason::MaxHold } else { LossReason::Expired };
            self.phase = Phase::Lost(reason);
        }
    }

    fn let_go(&mut self) -> (Option<Turn>, KeyWatch) {
        (self.turn.take(), mem::replace(&mut self.watch, KeyWatch::silent()))
    }

    fn due_only_at_deadline(&self, renewal: RenewalMode) -> bool {
        self.capped || renewal == RenewalMode::Off
    }

    fn start_renewal(&mut self) {
        self.renewing = true;
        self.news = false;
        // Meanwhile only the deadline needs the watchdog.
        self.due = self.deadline;
    }

    /// The store put `ttl` in force no earlier than `sent_at`.
    fn renewed(&mut self, sent_at: Instant, ttl: Duration, max: Instant, renewal: RenewalMode) {
        self.phase = Phase::Held;
        self.alone = false;
        self.deadline = deadline::deadline(sent_at, ttl);
        self.capped = sent_at + self.ttl >= max;
        self.due = if self.due_only_at_deadline(renewal) {
            self.deadline
        } else {
            deadline::renewal_due(sent_at, ttl).min(self.deadline)
        };
    }

    /// Nobody knows what the store did.
    fn not_renewed(&mut self, now: Instant, renewal: RenewalMode) {
        self.phase = Phase::Unsure;
        self.due = if self.due_only_at_deadline(renewal) {
            self.deadline
        } else {
            deadline::retry_due(now, self.ttl).min(self.deadline)
        };
    }
}
