//! Stage 3 of the pipeline: requests a lease from the store, and waits as long as another client
//! holds the key.
//!
//! After the store reports that the key is held, the next attempt starts at the earliest of these
//! events: a notification arrives, the holder's lease would expire, the queue entry must be
//! refreshed, or a pause ends. After a retryable error, the caller pauses before the next attempt,
//! and the pauses increase with each error.
//!
//! All attempts of a call use the same lease IDs. If the reply to an attempt is lost, a later
//! attempt is granted the same lease. If the call ends before a grant arrives, the queue of
//! releases ends every lease that the store may have granted.

use std::time::Duration;

use futures_util::future::join_all;

use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{
    Attempt, AttemptAll, Claim, Contention, Grant, KeyWatch, LockBackend, Operation, Patience,
    Subject, WokenBy,
};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::engine::background::Background;
use crate::engine::deadline;
use crate::engine::one_or_many::OneOrMany;
use crate::engine::queue::StoreAccess;
use crate::engine::record::LeaseRecord;
use crate::engine::releases::{PendingRelease, ReleaseQueue};
use crate::engine::retry_state::RetryState;
use crate::engine::wait::Wait;
use crate::observe::{Call, Events, WakeUp};
use crate::options::LockOptions;
use crate::retry::{Pauses, Retry};

/// The number of attempts that may follow notifications without a delay. A hand-off needs one or
/// two attempts, so more attempts indicate a flood of notifications.
const FREE_ATTEMPTS: u32 = 8;

/// The minimum time between attempts during a flood of notifications.
const ATTEMPT_SPACING: Duration = Duration::from_millis(10);

/// How long a caller whose wait has ended may take to leave the store's queue. This time is enough
/// for ten round trips to a nearby server.
const LEAVING: Duration = Duration::from_millis(50);

/// If the store has not replied for this long, it is considered down, even if the caller's wait
/// ends now. A shorter silence is not reported.
const SILENCE: Duration = Duration::from_secs(1);

/// How long to wait after a holder's TTL before the next attempt, because stores expire keys with
/// millisecond precision.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// The result of an acquisition.
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    /// All leases were granted, and their records contain the grants. `answered_at` is the time
    /// when the reply arrived.
    Granted { answered_at: Instant },
    /// Another client holds a key. For a single key, this also means that the wait or the attempts
    /// are used up.
    Held(Busy),
}

/// Acquires the leases of all `claims` or none, within `wait`. Every attempt requests all claims.
///
/// `claims` must not be empty, and `pending` contains one entry per claim, in the same order.
/// `accesses` share the results with the callers in this process that are queued behind this one.
///
/// If there are several claims, the function does not wait. The function returns as soon as a key
/// is held, and only retries errors from the store. If it waited, callers that need a single key
/// could overtake this caller indefinitely. To wait for several keys, acquire them one by one.
///
/// If the wait ends, the queue entry is removed before this function returns. If the store does not
/// confirm the removal within [`LEAVING`], the background task completes it.
///
/// # Cancel safety
///
/// This function is cancel safe. If the future is dropped, the queue of releases ends all leases
/// that the store may have granted.
#[inline]
pub(crate) fn acquire<'a>(
    background: &'a Background,
    claims: &'a [Claim],
    (pending, accesses): (&'a mut [PendingRelease<'_>], &'a [StoreAccess<LeaseRecord>]),
    wait: Wait,
    retries: &'a mut RetryState,
    options: &LockOptions,
    call: &'a Call<'_>,
) -> impl Future<Output = Result<AcquireOutcome, Error>> {
    let (backend, releases, clock) =
        (background.backend(), background.releases(), background.clock());
    // Subscribe before the first attempt, so that no release between the attempt and the wait is
    // missed.
    let watch = backend.watch(Subject::Claim(&claims[0]));
    let started = clock.now();
    let acquisition = Acquisition {
        backend,
        releases,
        claims,
        pending,
        accesses,
        clock,
        events: background.events(),
        call,
        watch,
        refused: None,
        is_called: false,
        may_be_stored: false,
        is_unanswered: false,
        last_failure: None,
        wait,
        retries,
        queue_entry_due: Instant::FAR_FUTURE,
        outage_pauses: Retry::default().pauses(),
        spaced: started,
        outage_wait: options.outage_wait,
        min_validity: options.min_validity,
        answered_at: started,
    };
    acquisition.run(started)
}

struct Acquisition<'a, 'r> {
    backend: &'a dyn LockBackend,
    releases: &'a ReleaseQueue,
    claims: &'a [Claim],
    /// One pending release per claim, which contains the record of the claim's lease.
    pending: &'a mut [PendingRelease<'r>],
    /// The callers that share the store's replies.
    accesses: &'a [StoreAccess<LeaseRecord>],
    clock: &'a dyn Clock,
    events: &'a Events,
    call: &'a Call<'a>,
    watch: KeyWatch,
    /// The `Busy` of the last attempt, if another client held a key.
    refused: Option<Busy>,
    /// Whether the store has queued the claim and will notify this caller individually.
    is_called: bool,
    /// Whether the store may hold a queue entry or, after an attempt without a reply, a lease for
    /// this call.
    may_be_stored: bool,
    /// Whether an attempt got no reply. If the request arrives late at the store, it may put the
    /// lease in force again.
    is_unanswered: bool,
    /// The error from the last attempt, if it failed. If the wait ends before the next reply, this
    /// error is reported as the cause.
    last_failure: Option<Error>,
    wait: Wait,
    retries: &'a mut RetryState,
    /// When the queue entry in the store must be refreshed.
    queue_entry_due: Instant,
    /// The pauses between failed attempts. These pauses are separate from `retries`, because an
    /// outage may be short.
    outage_pauses: Pauses,
    /// When the last attempt would have started if all attempts had been [`ATTEMPT_SPACING`] apart.
    /// This value limits the rate of attempts.
    spaced: Instant,
    outage_wait: Duration,
    /// The minimum remaining validity of a grant. A grant that would leave less time is rejected.
    min_validity: Duration,
    /// When the store last replied or this caller arrived, whichever was later.
    answered_at: Instant,
}

/// The result of one attempt.
enum AttemptOutcome {
    Granted {
        answered_at: Instant,
    },
    Refused(HeldReply),
    Failed(Error),
    /// The caller's wait ended before the reply arrived.
    CutOff(Error),
}

/// Creates the error for a wait that ended during an attempt. The attempt before it failed because
/// of `cause`.
fn cut_off_after(cause: Error) -> Error {
    let message = "the caller's wait ended during an attempt, and the previous attempt had failed";
    Error::new(ErrorKind::Indeterminate, message)
        .with_operation(Operation::Acquire)
        .with_source(cause)
}

/// The store's reply that another client holds a key.
struct HeldReply {
    held: Busy,
    retry_after: Option<Duration>,
}

impl Acquisition<'_, '_> {
    async fn run(mut self, started: Instant) -> Result<AcquireOutcome, Error> {
        let mut now = started;
        loop {
            let refusal = match self.attempt(now).await {
                AttemptOutcome::Granted { answered_at } => {
                    return Ok(AcquireOutcome::Granted { answered_at });
                }
                AttemptOutcome::Failed(error) if !error.is_retryable() => return Err(error),
                AttemptOutcome::Failed(error) => Err(error),
                AttemptOutcome::Refused(HeldReply { held, .. }) if self.claims.len() > 1 => {
                    return Ok(AcquireOutcome::Held(held));
                }
                AttemptOutcome::Refused(refusal) => Ok(refusal),
                AttemptOutcome::CutOff(error) => match self.refused.take() {
                    // The key was held a moment ago, so report that it is held instead of the
                    // missing reply.
                    Some(held) => return Ok(self.leave(held).await),
                    None => Err(match self.last_failure.take() {
                        Some(cause) => cut_off_after(cause),
                        None => error,
                    }),
                },
            };
            self.report(&refusal);
            self.refused = refusal.as_ref().ok().map(|refusal| refusal.held.clone());
            if !self.wait_for_next_attempt(&refusal).await {
                return match refusal {
                    Ok(HeldReply { held, .. }) => Ok(self.leave(held).await),
                    Err(error) => Err(error),
                };
            }
            self.last_failure = refusal.err();
            now = self.clock.now();
            self.skip_notifications();
        }
    }

    /// Discards the notifications that caused the next attempt, because they do not concern its
    /// grant.
    ///
    /// If an earlier attempt got no reply, the notifications are kept, because the attempt may have
    /// been granted and the notifications may concern its lease.
    fn skip_notifications(&mut self) {
        self.watch.skip();
        if !self.is_unanswered {
            self.pending.iter().for_each(|lease| lease.record().skip_notifications());
        }
    }

    /// Shares the result of an attempt with the callers in this process that are queued behind this
    /// one.
    fn report(&mut self, refusal: &Result<HeldReply, Error>) {
        for access in self.accesses {
            match refusal {
                Ok(HeldReply { held, .. }) => access.refused(held.holder(), self.answered_at),
                Err(error) => {
                    // An outage also counts if it began while this caller was queued in the
                    // process.
                    let since = access.failed(self.answered_at, error);
                    self.answered_at = since.max(self.wait.asked_at()).min(self.answered_at);
                }
            }
        }
    }

    /// Leaves the store's queue before this call reports that the key is held, so that the queue
    /// entry cannot block the next caller. If the store does not confirm the removal in time, the
    /// background task completes it.
    async fn leave(self, held: Busy) -> AcquireOutcome {
        if self.may_be_stored {
            let (now, backend, clock) = (self.clock.now(), self.backend, self.clock);
            let pending = self.pending.iter_mut();
            // The store usually has neither a lease nor a queue entry, so any error can be ignored.
            join_all(pending.map(|lease| lease.send(backend, clock, now, now + LEAVING))).await;
        }
        AcquireOutcome::Held(held.later(self.clock.now().since(self.answered_at)))
    }

    /// Makes one attempt. All attempts send the same claims, so this attempt is granted if an
    /// earlier attempt was granted but its reply was lost.
    async fn attempt(&mut self, sent_at: Instant) -> AttemptOutcome {
        self.spaced = self.spaced.max(sent_at) + ATTEMPT_SPACING;
        self.pending.iter_mut().for_each(PendingRelease::arm);
        if self.releases.is_awaited() {
            self.disarm_unless_stored();
            return AttemptOutcome::Failed(Error::closed());
        }
        self.queue_entry_due = Instant::FAR_FUTURE;
        self.is_called = false;
        let (clock, end) = (self.clock, self.attempt_end(sent_at));
        let reply = match self.claims {
            [claim] => clock::until(clock, end, self.backend.acquire(claim))
                .await
                .map(|reply| reply.map(|attempt| Answer::to_one(claim, attempt))),
            claims => clock::until(clock, end, self.backend.acquire_all(claims))
                .await
                .map(|reply| reply.and_then(|attempt| Answer::to_several(claims, attempt))),
        };
        let now = self.clock.now();
        let cut_off = reply.is_none() && now >= self.wait.end();
        if !cut_off || now.since(sent_at) >= SILENCE {
            self.events.heard(Operation::Acquire, reply.as_ref(), self.clock);
        }
        let error = match reply {
            Some(Ok(Answer::Granted(grants))) => match self.granted(&grants, sent_at, now) {
                true => return AttemptOutcome::Granted { answered_at: now },
                false => indeterminate("the reply that granted the lease arrived too late"),
            },
            Some(Ok(Answer::Held(key, contention))) => {
                self.may_be_stored |= self.is_queued(&contention, sent_at);
                self.is_called = contention.woken_by().is_some();
                self.watch.set_woken_by(contention.woken_by().unwrap_or(WokenBy::Key));
                self.disarm_unless_stored();
                self.answered_at = now;
                self.outage_pauses = Retry::default().pauses();
                let retry_after = contention.retry_after();
                return AttemptOutcome::Refused(HeldReply {
                    held: Busy::as_told(key, &contention),
                    retry_after,
                });
            }
            Some(Err(error)) => error,
            None => Error::no_reply().with_operation(Operation::Acquire),
        };
        if error.may_have_been_applied() {
            self.may_be_stored = true;
            self.is_unanswered = true;
        }
        self.disarm_unless_stored();
        if cut_off { AttemptOutcome::CutOff(error) } else { AttemptOutcome::Failed(error) }
    }

    /// Records when the claim's queue entry must be refreshed. Returns `false` if there is no queue
    /// entry.
    fn is_queued(&mut self, contention: &Contention, sent_at: Instant) -> bool {
        // The store does not queue a request for several keys.
        let [claim] = self.claims else { return false };
        let place = match claim.patience() {
            Patience::Queues(time) => Some(time),
            Patience::Waits | Patience::Leaves => contention.queue_entry(),
        };
        let Some(place) = place else { return false };
        self.queue_entry_due = deadline::renewal_due(sent_at, place);
        true
    }

    /// Returns when to stop waiting for the reply: at the end of the caller's wait, or earlier if a
    /// grant would no longer be useful.
    fn attempt_end(&self, sent_at: Instant) -> Instant {
        let ends = self.pending.iter().map(|lease| lease.record().deadline_after(None, sent_at));
        let of_use = ends.min().unwrap_or(sent_at) - self.min_validity;
        let is_known = self.refused.is_some();
        of_use.min(if is_known { self.wait.end() } else { self.wait.reply_end() })
    }

    /// Records the grants. Returns `false` if too little time remains for any grant.
    fn granted(&mut self, grants: &OneOrMany<Grant>, sent_at: Instant, now: Instant) -> bool {
        let sent_at = if flaw!("grant-deadline-from-reply") { now } else { sent_at };
        let needed = now + self.min_validity;
        let in_time = |(lease, grant): (&PendingRelease<'_>, &Grant)| {
            needed < lease.record().deadline_after(Some(grant), sent_at)
        };
        if !self.pending.iter().zip(grants.as_slice()).all(in_time) {
            return false;
        }
        for (lease, grant) in self.pending.iter().zip(grants.as_slice()) {
            lease.record().granted(grant, sent_at, self.is_unanswered);
        }
        true
    }

    fn disarm_unless_stored(&mut self) {
        if !self.may_be_stored {
            self.pending.iter_mut().for_each(PendingRelease::disarm);
        }
    }

    /// Waits until the next attempt is due. Returns `false` if no time or no attempts are left.
    async fn wait_for_next_attempt(&mut self, refusal: &Result<HeldReply, Error>) -> bool {
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
        // Only attempts after notifications are rate-limited. A pause that the caller has
        // configured is not extended.
        let unhurried = (self.spaced - ATTEMPT_SPACING * FREE_ATTEMPTS).min(pause_ends);
        let unhurried = if flaw!("waiter-never-retries") { Instant::FAR_FUTURE } else { unhurried };
        if unhurried > now {
            self.clock.sleep_until(unhurried.min(self.wait.end())).await;
        }
        let hint = match refusal {
            Ok(refusal) => refusal.retry_after.map(|remaining| now + remaining + EXPIRY_MARGIN),
            Err(_) => self.outage_pauses.next().map(|pause| now + pause),
        };
        let next_attempt = hint.map_or(pause_ends, |hint| hint.min(pause_ends));
        let next_attempt =
            next_attempt.min(self.queue_entry_due).min(outage_ends).min(self.wait.end());
        let news = clock::until(self.clock, next_attempt, self.watch.changed()).await;
        let goes_on = self.clock.now() < self.wait.end();
        if goes_on && refusal.is_ok() {
            self.call.woken(if news.is_some() { WakeUp::Push } else { WakeUp::Poll });
        }
        goes_on
    }

    /// Returns the end of the current pause, or the end of the next pause if no pause has started.
    fn pause_ends(&mut self, now: Instant, refusal: Option<&HeldReply>) -> Option<Instant> {
        let is_called = self.is_called && self.queue_entry_due < Instant::FAR_FUTURE;
        if self.retries.are_by_default() && is_called {
            // Polling is not necessary, because the store notifies this caller and is contacted
            // anyway when the queue entry is refreshed.
            return Some(Instant::FAR_FUTURE);
        }
        self.retries.pause_ends(now, refusal.and_then(HeldReply::holder_left))
    }
}

impl HeldReply {
    fn holder_left(&self) -> Option<Duration> {
        self.held.remaining().or(self.retry_after)
    }
}

/// The store's reply to a request.
enum Answer {
    /// One grant per claim.
    Granted(OneOrMany<Grant>),
    Held(LockKey, Contention),
}

impl Answer {
    fn to_one(claim: &Claim, attempt: Attempt) -> Self {
        match attempt {
            Attempt::Granted(grant) => Self::Granted(OneOrMany::One(grant)),
            Attempt::Held(contention) => Self::Held(claim.key().clone(), contention),
        }
    }

    fn to_several(claims: &[Claim], attempt: AttemptAll) -> Result<Self, Error> {
        match attempt {
            AttemptAll::Granted(grants) if grants.len() != claims.len() => {
                let message = "the number of granted leases differs from the number requested";
                Err(Error::new(ErrorKind::Unexpected, message))
            }
            AttemptAll::Granted(grants) => Ok(Self::Granted(OneOrMany::Several(grants))),
            AttemptAll::Held { key, contention } => Ok(Self::Held(key, contention)),
        }
    }
}

fn indeterminate(message: &'static str) -> Error {
    Error::new(ErrorKind::Indeterminate, message).with_operation(Operation::Acquire)
}
