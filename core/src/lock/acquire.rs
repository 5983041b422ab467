//! Stage 3: attempt; if held, wait for news, a pause or the deadline; attempt again.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempt, Contention, Grant, LockBackend};
use crate::claim::Claim;
use crate::clock::{self, Clock, Instant};
use crate::error::{Error, ErrorKind, Operation};
use crate::holder::Holder;
use crate::lock::Wait;
use crate::lock::deadline;
use crate::lock::hold::Granted;
use crate::lock::reaper::{Debt, Reaper, Unwanted};
use crate::options::LockOptions;
use crate::retry::{Pauses, Retry};
use crate::token::FencingToken;
use crate::watch::KeyWatch;

/// Attempts in a row that may follow news at once. A hand-over takes one or two; more are a flood.
const FREE_LOOKS: u32 = 8;

/// How far apart attempts are in a flood of news.
const LOOK_SPACING: Duration = Duration::from_millis(10);

/// How much later than its holder's TTL a key is looked at: stores expire keys to the millisecond.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// What an acquisition came to.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The lease is ours.
    Granted(Granted),
    /// Others hold the key, and the wait or the attempts are used up.
    Held(Option<Holder>),
}

/// Acquires `claim` within `wait`.
///
/// # Cancel safety
///
/// Safe to drop at any point: what the store may have granted is released by the reaper.
pub(crate) async fn acquire(
    backend: &dyn LockBackend,
    claim: &Claim,
    wait: Wait,
    options: &LockOptions,
    reaper: &Arc<Reaper>,
    clock: &dyn Clock,
) -> Result<Acquired, Error> {
    // Before the first attempt, so that nothing between it and the waiting or holding is missed.
    let (watch, lease_watch) = (backend.watch(claim.key()), backend.watch_lease(claim.lease()));
    let debt = Debt::new(Unwanted::new(claim.lease()), reaper);
    let started = clock.now();
    let acquisition = Acquisition {
        backend,
        claim,
        clock,
        watch,
        lease_watch,
        debt,
        refused: None,
        doubt: false,
        deadline: wait.deadline(started),
        pauses: options.retry.pauses(),
        pause_ends: None,
        place_due: Instant::FAR_FUTURE,
        outage_pauses: Retry::default().pauses(),
        spaced: started,
        outage_wait: options.outage_wait,
        lock_delay: options.lock_delay,
        answered_at: started,
    };
    acquisition.run().await
}

struct Acquisition<'a> {
    backend: &'a dyn LockBackend,
    claim: &'a Claim,
    clock: &'a dyn Clock,
    watch: KeyWatch,
    lease_watch: KeyWatch,
    debt: Debt,
    /// The last attempt was refused; for whose sake, if the store told.
    refused: Option<Option<Holder>>,
    /// The store may have something of ours: an earlier attempt that was granted without our knowing, or
    /// a place in its queue.
    doubt: bool,
    deadline: Instant,
    pauses: Pauses,
    pause_ends: Option<Instant>,
    /// By when the place in the store's queue is to be asked for again.
    place_due: Instant,
    /// Those between attempts that failed: whatever the caller's own, an outage may be over soon.
    outage_pauses: Pauses,
    /// Where the attempts so far would lie, had they been evenly spaced.
    spaced: Instant,
    outage_wait: Duration,
    lock_delay: Duration,
    /// When the store last answered.
    answered_at: Instant,
}

/// What one attempt came to.
enum Attempted {
    Granted(Granted),
    Held(Contention),
    Failed(Error),
    /// The caller's wait was over before the reply came.
    CutOff(Error),
}

impl Acquisition<'_> {
    async fn run(mut self) -> Result<Acquired, Error> {
        loop {
            let refusal = match self.attempt().await {
                Attempted::Granted(granted) => return Ok(Acquired::Granted(granted)),
                Attempted::Failed(error) if !error.is_retryable() => return Err(error),
                Attempted::Failed(error) => Err(error),
                Attempted::Held(contention) => Ok(contention),
                Attempted::CutOff(error) => match self.refused {
                    // It was held a moment ago, and the wait is over.
                    Some(holder) => return Ok(Acquired::Held(holder)),
                    None => Err(error),
                },
            };
            self.refused = refusal.as_ref().ok().map(|contention| contention.holder().cloned());
            if !self.wait_to_look_again(&refusal).await {
                return refusal.map(|contention| Acquired::Held(contention.holder().cloned()));
            }
        }
    }

    /// One attempt, always with the same claim: if an earlier one was granted unseen, so is this.
    async fn attempt(&mut self) -> Attempted {
        let sent_at = self.clock.now();
        self.spaced = self.spaced.max(sent_at) + LOOK_SPACING;
        self.debt.incur();
        self.place_due = Instant::FAR_FUTURE;
        let reply = self.backend.try_acquire(self.claim);
        let reply = clock::until(self.clock, self.attempt_end(sent_at), reply).await;
        let now = self.clock.now();
        let unanswered = reply.is_none();
        let error = match reply {
            Some(Ok(Attempt::Granted(grant))) => match self.granted(&grant, sent_at, now) {
                Some(granted) => return Attempted::Granted(granted),
                None => indeterminate("granted too late to be of use"),
            },
            Some(Ok(Attempt::Held(contention))) => {
                self.doubt |= self.keeps_place(sent_at);
                self.settle_unless_in_doubt();
                self.answered_at = now;
                self.outage_pauses = Retry::default().pauses();
                return Attempted::Held(contention);
            }
            Some(Err(error)) => error,
            None => indeterminate("no reply in time"),
        };
        self.doubt |= error.may_have_been_applied();
        self.settle_unless_in_doubt();
        let cut_off = unanswered && self.deadline > sent_at && now >= self.deadline;
        if cut_off { Attempted::CutOff(error) } else { Attempted::Failed(error) }
    }

    /// Notes by when the claim's place in the queue must be asked for again, if it has one.
    fn keeps_place(&mut self, sent_at: Instant) -> bool {
        let Some(place) = self.claim.place() else { return false };
        self.place_due = deadline::renewal_due(sent_at, place);
        true
    }

    /// An attempt is waited for until the caller's deadline, and no longer than its grant would be of use.
    fn attempt_end(&self, sent_at: Instant) -> Instant {
        let useless = deadline::deadline(sent_at, self.believed(self.claim.lease().ttl()));
        if self.deadline > sent_at { useless.min(self.deadline) } else { useless }
    }

    fn granted(&mut self, grant: &Grant, sent_at: Instant, now: Instant) -> Option<Granted> {
        let lease = self.claim.lease();
        let ttl = grant.ttl().map_or(lease.ttl(), |ttl| ttl.min(lease.ttl()));
        let ttl = self.believed(ttl);
        if now >= deadline::deadline(sent_at, ttl) {
            return None;
        }
        self.debt.forgive();
        Some(Granted {
            lease: lease.clone(),
            token: FencingToken::new(lease.key(), grant.token()),
            sent_at,
            ttl,
            watch: std::mem::replace(&mut self.lease_watch, KeyWatch::silent()),
        })
    }

    /// How much of a TTL in the store its holder believes in.
    fn believed(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.lock_delay)
    }

    fn settle_unless_in_doubt(&mut self) {
        if !self.doubt {
            self.debt.forgive();
        }
    }

    /// Waits for news, a pause, the end of what is in the way, or until the place in the queue is to be
    /// asked for again; `false` if there is no time or no attempt left.
    async fn wait_to_look_again(&mut self, refusal: &Result<Contention, Error>) -> bool {
        let now = self.clock.now();
        let out_for_long = refusal.is_err() && now >= self.answered_at + self.outage_wait;
        if now >= self.deadline || out_for_long {
            return false;
        }
        let Some(pause_ends) = self.pause_ends(now) else {
            return false;
        };
        let unhurried = self.spaced - LOOK_SPACING * FREE_LOOKS;
        if unhurried > now {
            self.clock.sleep_until(unhurried.min(self.deadline)).await;
        }
        let hint = match refusal {
            Ok(contention) => {
                contention.retry_after().map(|remaining| now + remaining + EXPIRY_MARGIN)
            }
            Err(_) => self.outage_pauses.next().map(|pause| now + pause),
        };
        let look_at = hint.map_or(pause_ends, |hint| hint.min(pause_ends));
        let look_at = look_at.min(self.place_due).min(self.deadline);
        clock::until(self.clock, look_at, self.watch.changed()).await;
        self.clock.now() < self.deadline
    }

    /// The end of the pause that we are in, or else of the next one.
    fn pause_ends(&mut self, now: Instant) -> Option<Instant> {
        if let Some(ends) = self.pause_ends
            && ends > now
        {
            return Some(ends);
        }
        let ends = now + self.pauses.next()?;
        self.pause_ends = Some(ends);
        Some(ends)
    }
}

fn indeterminate(message: &'static str) -> Error {
    Error::new(ErrorKind::Indeterminate, message).with_operation(Operation::Acquire)
}
