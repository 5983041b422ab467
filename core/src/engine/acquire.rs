//! Stage 3: attempt; if held, wait for news, a pause or the deadline; attempt again.

mod pending;

use std::time::Duration;

use futures_util::future::join_all;

pub(crate) use self::pending::PendingLease;
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{
    Attempt, AttemptAll, CalledBy, Claim, Contention, Grant, KeyWatch, LockBackend, Operation,
};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::engine::deadline;
use crate::engine::few::Few;
use crate::engine::hold::Hold;
use crate::engine::queue::Asker;
use crate::engine::reaper::Reaper;
use crate::engine::tries::Tries;
use crate::engine::upkeep::Upkeep;
use crate::engine::wait::Wait;
use crate::observe::{Call, Events, WakeUp};
use crate::options::LockOptions;
use crate::retry::{Pauses, Retry};

/// Attempts in a row that may follow news at once. A hand-over takes one or two; more are a flood.
const FREE_LOOKS: u32 = 8;

/// How far apart attempts are in a flood of news.
const LOOK_SPACING: Duration = Duration::from_millis(10);

/// How long a caller whose wait is over stays to leave the store's queue: ten round trips to a server nearby.
const LEAVING: Duration = Duration::from_millis(50);

/// A store that is silent for so long is down, also if the caller's wait ends then. A shorter wait says nothing of the store.
const SILENCE: Duration = Duration::from_secs(1);

/// How much later than its holder's TTL a key is looked at: stores expire keys to the millisecond.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// The outcome of an acquisition.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The leases are ours, to be [taken](PendingLease::take) from each that was asked for.
    Granted,
    /// Others hold a key. If it is the only one, the wait or the attempts are used up.
    Held(Busy),
}

/// Acquires the `pending` leases of `claims`, of which there is one at least, on behalf of `askers`, within `wait`: each attempt is
/// for all of them.
///
/// Several are asked for again if the store fails, but not waited for if others hold one of them: a caller that waits must
/// take them one after the other, or would be passed for ever by callers that want fewer.
///
/// A caller whose wait ends has left the store's queue by then, unless the store takes longer than [`LEAVING`] to confirm that.
///
/// # Cancel safety
///
/// Safe to drop at any point: the reaper releases leases that the store may have granted.
#[inline]
pub(crate) fn acquire<'a>(
    upkeep: &'a Upkeep,
    claims: &'a [Claim],
    (pending, askers): (&'a mut [PendingLease<'_, '_>], &'a [Asker<Hold>]),
    wait: Wait,
    tries: &'a mut Tries,
    options: &LockOptions,
    call: &'a Call<'_>,
) -> impl Future<Output = Result<Acquired, Error>> {
    let (backend, reaper, clock) = (upkeep.backend(), upkeep.reaper(), upkeep.clock());
    // Before the first attempt, so that nothing between it and the waiting or holding is missed.
    let watch = backend.watch_claim(&claims[0]);
    let started = clock.now();
    let acquisition = Acquisition {
        backend,
        reaper,
        claims,
        pending,
        askers,
        clock,
        events: upkeep.events(),
        call,
        watch,
        refused: None,
        is_called: false,
        doubt: false,
        is_unanswered: false,
        last_failure: None,
        wait,
        tries,
        place_due: Instant::FAR_FUTURE,
        outage_pauses: Retry::default().pauses(),
        spaced: started,
        outage_wait: options.outage_wait,
        lock_delay: options.lock_delay,
        min_validity: options.min_validity,
        answered_at: started,
    };
    acquisition.run(started)
}

struct Acquisition<'a, 'r, 'b> {
    backend: &'a dyn LockBackend,
    reaper: &'a Reaper,
    claims: &'a [Claim],
    pending: &'a mut [PendingLease<'r, 'b>],
    /// They hear of the answers.
    askers: &'a [Asker<Hold>],
    clock: &'a dyn Clock,
    events: &'a Events,
    call: &'a Call<'a>,
    watch: KeyWatch,
    /// The last attempt was refused.
    refused: Option<Busy>,
    /// The store keeps a place for the claim, and calls it up from there.
    is_called: bool,
    /// The store may have something of ours: an earlier attempt that was granted without our knowing, or
    /// a place in its queue.
    doubt: bool,
    /// An attempt got no answer: however late, it may put the lease in force once more.
    is_unanswered: bool,
    /// The error of the last attempt, if it failed: the cause if the wait ends before the next attempt has an answer.
    last_failure: Option<Error>,
    wait: Wait,
    tries: &'a mut Tries,
    /// By when the place in the store's queue is to be asked for again.
    place_due: Instant,
    /// Pauses after attempts that failed, at a pace of their own, since an outage may be over soon.
    outage_pauses: Pauses,
    /// Where the attempts so far would lie, had they been evenly spaced.
    spaced: Instant,
    outage_wait: Duration,
    lock_delay: Duration,
    /// With less left, a grant is of no use.
    min_validity: Duration,
    /// When the store last answered, or this caller came, whichever is later.
    answered_at: Instant,
}

/// The outcome of one attempt.
enum Attempted {
    Granted,
    Refused(Refusal),
    Failed(Error),
    /// The caller's wait was over before the reply came.
    CutOff(Error),
}

/// The store's answer that others hold a key.
struct Refusal {
    held: Busy,
    retry_after: Option<Duration>,
}

impl Acquisition<'_, '_, '_> {
    async fn run(mut self, started: Instant) -> Result<Acquired, Error> {
        let mut now = started;
        loop {
            let refusal = match self.attempt(now).await {
                Attempted::Granted => return Ok(Acquired::Granted),
                Attempted::Failed(error) if !error.is_retryable() => return Err(error),
                Attempted::Failed(error) => Err(error),
                Attempted::Refused(Refusal { held, .. }) if self.claims.len() > 1 => {
                    return Ok(Acquired::Held(held));
                }
                Attempted::Refused(refusal) => Ok(refusal),
                Attempted::CutOff(error) => match self.refused.take() {
                    // It was held a moment ago, and the wait is over.
                    Some(held) => return Ok(self.leave(held).await),
                    None => Err(match self.last_failure.take() {
                        Some(cause) => error.with_source(cause),
                        None => error,
                    }),
                },
            };
            self.report(&refusal);
            self.refused = refusal.as_ref().ok().map(|refusal| refusal.held.clone());
            if !self.wait_to_look_again(&refusal).await {
                return match refusal {
                    Ok(Refusal { held, .. }) => Ok(self.leave(held).await),
                    Err(error) => Err(error),
                };
            }
            self.last_failure = refusal.err();
            now = self.clock.now();
            self.skip_news();
        }
    }

    /// The news up to now is the reason for the next attempt, and none to doubt its grant; unless an earlier attempt was granted
    /// unseen, and the news is of that grant.
    fn skip_news(&mut self) {
        self.watch.skip();
        if !self.is_unanswered {
            self.pending.iter_mut().for_each(PendingLease::skip_news);
        }
    }

    /// Lets the callers behind this one share the answer.
    fn report(&mut self, refusal: &Result<Refusal, Error>) {
        for asker in self.askers {
            match refusal {
                Ok(Refusal { held, .. }) => asker.refused(held.holder(), self.answered_at),
                Err(error) => {
                    // An outage that this caller has waited through in line counts, too.
                    let since = asker.failed(self.answered_at, error);
                    self.answered_at = since.max(self.wait.asked_at()).min(self.answered_at);
                }
            }
        }
    }

    /// Gives up the place in the store's queue before the caller is told that the key is held: a caller that comes next must not
    /// meet it. The reaper goes on with a request that the store is slow to confirm.
    async fn leave(self, held: Busy) -> Acquired {
        if self.doubt {
            let give_up = self.clock.now() + LEAVING;
            let pending = self.pending.iter_mut();
            join_all(pending.map(|lease| lease.leave(self.backend, self.clock, give_up))).await;
        }
        Acquired::Held(held.later(self.clock.now().since(self.answered_at)))
    }

    /// One attempt, always with the same claims: if an earlier one was granted unseen, so is this.
    async fn attempt(&mut self, sent_at: Instant) -> Attempted {
        self.spaced = self.spaced.max(sent_at) + LOOK_SPACING;
        self.pending.iter_mut().for_each(PendingLease::incur);
        if self.reaper.is_awaited() {
            self.settle_unless_in_doubt();
            return Attempted::Failed(Error::closed());
        }
        self.place_due = Instant::FAR_FUTURE;
        self.is_called = false;
        let reply = ask(self.backend, self.claims);
        let reply = clock::until(self.clock, self.attempt_end(sent_at), reply).await;
        let now = self.clock.now();
        let cut_off = reply.is_none() && now >= self.wait.end();
        if !cut_off || now.since(sent_at) >= SILENCE {
            self.events.heard(Operation::Acquire, reply.as_ref(), self.clock);
        }
        let error = match reply {
            Some(Ok(Answer::Granted(grants))) => match self.granted(&grants, sent_at, now) {
                true => return Attempted::Granted,
                false => indeterminate("granted too late to be of use"),
            },
            Some(Ok(Answer::Held(key, contention))) => {
                self.doubt |= self.keeps_place(&contention, sent_at);
                self.is_called = contention.called_by().is_some();
                self.watch.heed(contention.called_by().unwrap_or(CalledBy::Key));
                self.settle_unless_in_doubt();
                self.answered_at = now;
                self.outage_pauses = Retry::default().pauses();
                let retry_after = contention.retry_after();
                return Attempted::Refused(Refusal {
                    held: Busy::as_told(key, &contention),
                    retry_after,
                });
            }
            Some(Err(error)) => error,
            None => Error::no_reply().with_operation(Operation::Acquire),
        };
        if error.may_have_been_applied() {
            self.doubt = true;
            self.is_unanswered = true;
        }
        self.settle_unless_in_doubt();
        if cut_off { Attempted::CutOff(error) } else { Attempted::Failed(error) }
    }

    /// Notes by when the claim's place in the queue must be asked for again, if it has one.
    fn keeps_place(&mut self, contention: &Contention, sent_at: Instant) -> bool {
        // An attempt for several takes no place.
        let [claim] = self.claims else { return false };
        let Some(place) = claim.place().or(contention.place()) else { return false };
        self.place_due = deadline::renewal_due(sent_at, place);
        true
    }

    /// An attempt is waited for until the caller's wait ends, and no longer than its grant would be of use.
    fn attempt_end(&self, sent_at: Instant) -> Instant {
        let ends = self.pending.iter().map(|lease| lease.deadline(None, sent_at, self.lock_delay));
        let of_use = ends.min().unwrap_or(sent_at) - self.min_validity;
        let is_known = self.refused.is_some();
        of_use.min(if is_known { self.wait.end() } else { self.wait.reply_end() })
    }

    /// Takes note of the grants; `false` if it is too late for one of them.
    fn granted(&mut self, grants: &Few<Grant>, sent_at: Instant, now: Instant) -> bool {
        let (lock_delay, is_unanswered) = (self.lock_delay, self.is_unanswered);
        let needed = now + self.min_validity;
        let in_time = |(lease, grant): (&PendingLease<'_, '_>, &Grant)| {
            needed < lease.deadline(Some(grant), sent_at, lock_delay)
        };
        if !self.pending.iter().zip(grants.as_slice()).all(in_time) {
            return false;
        }
        for (lease, grant) in self.pending.iter_mut().zip(grants.as_slice()) {
            lease.granted(grant.clone(), [sent_at, now], lock_delay, is_unanswered);
        }
        true
    }

    fn settle_unless_in_doubt(&mut self) {
        if !self.doubt {
            self.pending.iter_mut().for_each(PendingLease::forgive);
        }
    }

    /// Waits for news, a pause, the end of the obstacle, or the time at which the place in the queue
    /// must be asked for again; `false` if no time or no attempt is left.
    async fn wait_to_look_again(&mut self, refusal: &Result<Refusal, Error>) -> bool {
        let now = self.clock.now();
        let outage_ends = match refusal {
            Ok(_) => Instant::FAR_FUTURE,
            Err(_) => self.answered_at + self.outage_wait,
        };
        if self.wait.is_over(now) || now >= outage_ends {
            return false;
        }
        let Some(pause_ends) = self.pause_ends(now, refusal.as_ref().ok()) else {
            return false;
        };
        self.call.waits(refusal.as_ref().ok().map(|refusal| &refusal.held));
        // Only news comes in floods: a pause that the caller has stated is not made longer.
        let unhurried = (self.spaced - LOOK_SPACING * FREE_LOOKS).min(pause_ends);
        if unhurried > now {
            self.clock.sleep_until(unhurried.min(self.wait.end())).await;
        }
        let hint = match refusal {
            Ok(refusal) => refusal.retry_after.map(|remaining| now + remaining + EXPIRY_MARGIN),
            Err(_) => self.outage_pauses.next().map(|pause| now + pause),
        };
        let look_at = hint.map_or(pause_ends, |hint| hint.min(pause_ends));
        let look_at = look_at.min(self.place_due).min(outage_ends).min(self.wait.end());
        let news = clock::until(self.clock, look_at, self.watch.changed()).await;
        let goes_on = self.clock.now() < self.wait.end();
        if goes_on && refusal.is_ok() {
            self.call.woken(if news.is_some() { WakeUp::Push } else { WakeUp::Poll });
        }
        goes_on
    }

    /// The end of the pause that we are in, or else of the next one.
    fn pause_ends(&mut self, now: Instant, refusal: Option<&Refusal>) -> Option<Instant> {
        let is_called = self.is_called && self.place_due < Instant::FAR_FUTURE;
        if self.tries.are_by_default() && is_called {
            // The store calls us up, and hears of us again when it is asked to keep our place.
            return Some(Instant::FAR_FUTURE);
        }
        self.tries.pause_ends(now, refusal.and_then(Refusal::holder_left))
    }
}

impl Refusal {
    fn holder_left(&self) -> Option<Duration> {
        self.held.remaining().or(self.retry_after)
    }
}

/// The store's answer to claims.
enum Answer {
    /// One grant for each claim.
    Granted(Few<Grant>),
    Held(LockKey, Contention),
}

/// Sends one request for all `claims`.
async fn ask(backend: &dyn LockBackend, claims: &[Claim]) -> Result<Answer, Error> {
    let [claim] = claims else {
        return match backend.try_acquire_all(claims).await? {
            AttemptAll::Granted(grants) if grants.len() != claims.len() => {
                let message = "the backend granted more or less than it was asked for";
                Err(Error::new(ErrorKind::Unexpected, message))
            }
            AttemptAll::Granted(grants) => Ok(Answer::Granted(Few::Several(grants))),
            AttemptAll::Held { key, contention } => Ok(Answer::Held(key, contention)),
        };
    };
    Ok(match backend.try_acquire(claim).await? {
        Attempt::Granted(grant) => Answer::Granted(Few::One(grant)),
        Attempt::Held(contention) => Answer::Held(claim.key().clone(), contention),
    })
}

fn indeterminate(message: &'static str) -> Error {
    Error::new(ErrorKind::Indeterminate, message).with_operation(Operation::Acquire)
}
