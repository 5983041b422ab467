//! The pipeline, which processes one `lock()` call from its first stage to its last.
//!
//! Stage 3 reports the store's replies to the queue of stage 2. A guard that is dropped or released
//! is removed from stages 4, 2 and 1.

use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::task::coop;

use crate::clock::{Clock, Instant};
use crate::contract::backend::{Claim, LockBackend, Operation, StoreAdmin, Subject, unsupported};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::try_lock_error::TryLockError;
use crate::engine::acquire::{self, AcquireOutcome};
use crate::engine::background::Background;
use crate::engine::held_by_caller;
use crate::engine::one_or_many::OneOrMany;
use crate::engine::queue::{LocalQueue, Next, Requeue, StoreAccess};
use crate::engine::record::{LeaseRecord, Term};
use crate::engine::reentrancy::{Entering, Entry};
use crate::engine::releases::PendingRelease;
use crate::engine::request::LockRequest;
use crate::engine::retry_state::RetryState;
use crate::locks::guard::LockGuard;
use crate::observe::{Call, Events, GrantPath};
use crate::options::LockOptions;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The state shared by all clones of a client and all their locks.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) background: Arc<Background>,
    pub(super) queue: LocalQueue<LeaseRecord>,
    /// The options of locks that do not have their own options.
    options: Arc<LockOptions>,
    pub(super) closed: AtomicBool,
    /// Notified once, after `closed` is set.
    pub(super) closing: Notify,
}

pub(crate) enum Outcome {
    /// One guard per request, in the same order.
    Granted(OneOrMany<LockGuard>),
    Held(Busy),
    /// Nothing was acquired, and the keys can be acquired one by one. Either a key is held and the
    /// caller may wait, or the store cannot grant several keys in one step.
    Apart,
}

/// The result of stage 1.
enum Reentry {
    /// The locks must be acquired, for a specific owner if the lock is reentrant.
    First(Option<Entering>),
    Done(Outcome),
}

/// The result of stage 2.
enum Turns {
    /// The turn for each request.
    Ask(OneOrMany<StoreAccess<LeaseRecord>>),
    /// The lease of the previous holder.
    Guard(LockGuard),
    Held(Busy),
}

/// The outcome for the caller.
pub(crate) enum Locked<G = LockGuard> {
    Guard(G),
    Held(Busy),
}

impl Engine {
    pub(crate) fn new(
        backend: Arc<dyn LockBackend>,
        clock: Arc<dyn Clock>,
        options: LockOptions,
        max_waiters: usize,
        events: Events,
    ) -> Self {
        Self {
            background: Arc::new(Background::new(backend, clock, events)),
            queue: LocalQueue::new(max_waiters),
            options: Arc::new(options),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    /// Acquires the locks of all requests unless the client is shut down in the meantime. `finish`
    /// converts the outcome to the result.
    ///
    /// If there are several requests, they do not have an owner, and they share their options and
    /// their wait. Each attempt covers all requests.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because each stage is cancel safe.
    pub(crate) async fn lock<T, E: From<Error>>(
        &self,
        requests: OneOrMany<LockRequest<'_>>,
        finish: impl FnOnce(Outcome) -> Result<T, E>,
    ) -> Result<T, E> {
        self.background
            .process()
            .check()
            .map_err(|error| error.with_operation(Operation::Acquire))?;
        let requests = requests.as_slice();
        let call = Call::new(self.background.events(), &self.queue, self.clock(), requests);
        // Subscribe before the client is checked, so that no shutdown is missed. An unpolled
        // subscription costs almost nothing, and it is polled only if a stage must wait.
        let closing = pin!(self.closing.notified());
        let outcome = match self.admit().await {
            Ok(()) => call.run(pin!(self.stages(requests, &call)), closing).await,
            Err(error) => Err(error),
        };
        let outcome = self.conclude(requests, outcome);
        call.end(outcome.as_ref().map(Outcome::refusal));
        finish(outcome?)
    }

    /// Runs the stages in order.
    async fn stages(
        &self,
        requests: &[LockRequest<'_>],
        call: &Call<'_>,
    ) -> Result<Outcome, Error> {
        let LockRequest { options, wait, .. } = requests[0];
        let (background, clock) = (&self.background, self.background.clock());

        // Stage 1: reentrancy
        let entering = match self.enter(requests, call).await? {
            Reentry::First(entering) => entering,
            Reentry::Done(outcome) => return Ok(outcome),
        };

        let mut back = None;
        let mut retries = RetryState::new(&options.retry, wait.asked_at());
        loop {
            // Stage 2: queue
            let accesses = match self.turns(requests, back.take(), &mut retries, call).await? {
                Turns::Ask(accesses) => accesses,
                Turns::Held(held) => return Ok(Outcome::Held(held)),
                Turns::Guard(guard) => {
                    let now = clock.now();
                    if !guard.held().0.accept(now) {
                        continue;
                    }
                    call.acquired(&requests[0], guard.token().number(), GrantPath::HandedOver, now);
                    return self.entered(entering, OneOrMany::One(guard));
                }
            };

            // Stage 3: acquire
            if self.is_closed() {
                return Err(Error::closed());
            }
            let once = accesses.as_slice()[0].once();
            let wait_now = if once.is_some() { wait.but_once() } else { wait };
            let claims = OneOrMany::of(requests, |request| request.within(wait_now).claim());
            let claims = claims.as_slice();
            let mut each = requests.iter();
            let mut pending = OneOrMany::of(claims, |claim| {
                self.pending(each.next().expect("each claim is for one request"), claim)
            });
            let pending = pending.as_mut_slice();
            let asking = (&mut *pending, accesses.as_slice());
            let acquired =
                acquire::acquire(background, claims, asking, wait_now, &mut retries, options, call)
                    .await;
            if let Some(ticket) = once
                && let Some(refused) = refused_for_now(&acquired)
                && !wait.is_over(clock.now())
            {
                back = Some(Requeue { ticket, refused });
                continue;
            }
            let answered_at = match acquired? {
                AcquireOutcome::Granted { answered_at } => answered_at,
                AcquireOutcome::Held(held) => return Ok(Outcome::Held(held)),
            };

            // Stages 4 and 5: watchdog and guard
            let mut each = requests.iter().zip(&*pending);
            let guards = accesses.map(|access| {
                let (request, lease) = each.next().expect("each access is for one request");
                self.watch_over(lease.record(), request, access, (call, answered_at));
                self.guard(Arc::clone(lease.record()), Term::default())
            });
            let entered = self.entered(entering, guards);
            // From here on, the guards are responsible for the releases.
            pending.iter_mut().for_each(PendingRelease::disarm);
            return entered;
        }
    }

    /// Stage 1: locks again if the request has an owner that already holds the key.
    async fn enter(&self, requests: &[LockRequest<'_>], call: &Call<'_>) -> Result<Reentry, Error> {
        let background = &self.background;
        for request in requests.iter().filter(|request| !request.wait.is_once()) {
            if held_by_caller::excludes(background, request.key, request.mode, request.owner) {
                let message =
                    "the caller already holds this lock, so the call would wait for itself";
                return Err(Error::new(ErrorKind::WouldDeadlock, message).with_key(request.key));
            }
        }
        let [request @ LockRequest { key, mode, wait, owner: Some(owner), .. }] = requests else {
            return Ok(Reentry::First(None));
        };
        let limit = request.options.reentry_limit;
        let enter = pin!(background.owners().enter(key, *owner, *mode, limit, *wait, self.clock()));
        Ok(match call.queueing(enter).await? {
            Some(Entry::First(first)) => Reentry::First(Some(first)),
            Some(Entry::Again(record, term)) => {
                call.acquired(request, record.number(term), GrantPath::Reentered, self.now());
                Reentry::Done(Outcome::Granted(OneOrMany::One(self.guard(record, term))))
            }
            None => {
                let holder = self.queue.last_known(key, self.now())?;
                Reentry::Done(Outcome::Held(Busy::new(key, holder)))
            }
        })
    }

    /// Stage 2: waits for the request's turn.
    ///
    /// If there are several requests, they immediately get either all their turns or none. Waiting
    /// for one turn while holding another turn could cause a deadlock.
    async fn turns(
        &self,
        requests: &[LockRequest<'_>],
        back: Option<Requeue>,
        retries: &mut RetryState,
        call: &Call<'_>,
    ) -> Result<Turns, Error> {
        if let [request] = requests {
            let turn = self.queue.turn(request, back, retries, self.clock());
            return Ok(match call.in_local_queue(pin!(turn)).await? {
                Next::Ask(access) => Turns::Ask(OneOrMany::One(access)),
                Next::Guard(guard) => Turns::Guard(guard),
                Next::Held(holder) => Turns::Held(Busy::new(request.key, holder)),
            });
        }
        let mut accesses = Vec::with_capacity(requests.len());
        for request in requests {
            let once = request.within(request.wait.but_once());
            match self.queue.turn(&once, None, retries, self.clock()).await? {
                Next::Ask(access) => accesses.push(access),
                Next::Guard(_) => return Ok(Turns::Held(Busy::new(request.key, None))),
                Next::Held(holder) => return Ok(Turns::Held(Busy::new(request.key, holder))),
            }
        }
        Ok(Turns::Ask(OneOrMany::Several(accesses)))
    }

    /// Publishes the lease, so that its owner can lock the key again.
    ///
    /// A shutdown that has just started may have collected the leases before this lease was filed.
    /// In this case, the guards are dropped here, before `stages` disarms their pending releases,
    /// so that the shutdown waits for the releases.
    fn entered(
        &self,
        entering: Option<Entering>,
        guards: OneOrMany<LockGuard>,
    ) -> Result<Outcome, Error> {
        if let Some(entering) = entering {
            let (record, term) = guards.as_slice()[0].held();
            entering.publish(record, term);
        }
        if self.is_closed() { Err(Error::closed()) } else { Ok(Outcome::Granted(guards)) }
    }

    /// Creates the record of the lease that `claim` requests.
    fn pending(&self, request: &LockRequest<'_>, claim: &Claim) -> PendingRelease<'_> {
        let (background, lease) = (&self.background, claim.lease());
        let watch = background.backend().watch(Subject::Lease(lease));
        let wake_list = background.watchdog().wake_list();
        let record =
            LeaseRecord::new(lease.clone(), request, watch, wake_list, background.events());
        PendingRelease::new(record, background.releases())
    }

    /// Registers a granted lease with the watchdog, which renews it.
    fn watch_over(
        &self,
        record: &Arc<LeaseRecord>,
        request: &LockRequest<'_>,
        access: StoreAccess<LeaseRecord>,
        (call, answered_at): (&Call<'_>, Instant),
    ) {
        access.granted(request.mode, record, |turn| record.give_to_caller(turn));
        call.acquired(request, record.number(Term::default()), GrantPath::Granted, answered_at);
        self.background.watchdog().add(record);
    }

    /// Returns the outcome for the caller. If nothing was acquired and the client is being shut
    /// down, the outcome is `Closed`.
    fn conclude(
        &self,
        requests: &[LockRequest<'_>],
        outcome: Result<Outcome, Error>,
    ) -> Result<Outcome, Error> {
        let (LockRequest { key, wait, .. }, is_one) = (requests[0], requests.len() == 1);
        let outcome = match outcome {
            Ok(Outcome::Held(_)) | Err(_) if self.is_closed() => Err(Error::closed()),
            Ok(Outcome::Held(_)) if !is_one && !wait.is_over(self.now()) => Ok(Outcome::Apart),
            Err(error) if !is_one && error.kind() == ErrorKind::Unsupported => Ok(Outcome::Apart),
            outcome => outcome,
        };
        outcome.map_err(|error| {
            let backend = self.backend().capabilities().name();
            error.with_operation(Operation::Acquire).with_key(key).with_backend(backend)
        })
    }

    /// Runs a call that may wait, inside a runtime, and cancels the call if the client is shut down
    /// in the meantime.
    pub(crate) async fn while_open<T>(
        &self,
        call: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        self.background.process().check()?;
        // Subscribe before the client is checked, so that no shutdown is missed.
        let closing = pin!(self.closing.notified());
        self.admit().await?;
        tokio::select! {
            biased;
            outcome = call => outcome,
            () = closing => Err(Error::closed()),
        }
    }

    /// Starts a call, inside a runtime.
    async fn admit(&self) -> Result<(), Error> {
        // A task that acquires locks in a loop without ever waiting must let other tasks run.
        coop::consume_budget().await;
        if self.is_closed() {
            return Err(Error::closed());
        }
        self.background.ensure_running()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn guard(&self, record: Arc<LeaseRecord>, term: Term) -> LockGuard {
        LockGuard::new(record, term, Arc::clone(&self.background))
    }

    /// Creates the error for a caller that has waited since `asked_at`.
    pub(crate) fn timeout(&self, busy: Busy, asked_at: Instant) -> Error {
        let waited = self.now().since(asked_at);
        let error = busy.into_error(format_args!("within {waited:.1?}"));
        error.with_backend(self.backend().capabilities().name())
    }

    pub(crate) fn options(&self) -> Arc<LockOptions> {
        Arc::clone(&self.options)
    }

    /// Returns the backend, for queries about its capabilities.
    pub(crate) fn backend(&self) -> &dyn LockBackend {
        self.background.backend()
    }

    /// Returns the backend, for requests to the store.
    pub(crate) fn store(&self) -> Result<&dyn LockBackend, Error> {
        self.background.process().check()?;
        Ok(self.background.backend())
    }

    /// Returns the store's operations for operators, or the error for `operation`.
    pub(crate) fn admin(&self, operation: Operation) -> Result<&dyn StoreAdmin, Error> {
        let store = self.store()?;
        store.admin().ok_or_else(|| unsupported(&store.capabilities(), operation))
    }

    pub(crate) fn events(&self) -> &Events {
        self.background.events()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.background.clock()
    }

    pub(crate) fn now(&self) -> Instant {
        self.background.now()
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn releases(&self) -> &Arc<crate::engine::releases::ReleaseQueue> {
        self.background.releases()
    }
}

impl<G> Locked<G> {
    pub(crate) fn or_busy(self) -> Result<G, TryLockError> {
        match self {
            Self::Guard(guard) => Ok(guard),
            Self::Held(busy) => Err(busy.into()),
        }
    }

    /// Returns the guard, or the error for a caller that has waited since `asked_at`.
    pub(crate) fn in_time(self, engine: &Engine, asked_at: Instant) -> Result<G, Error> {
        match self {
            Self::Guard(guard) => Ok(guard),
            Self::Held(busy) => Err(engine.timeout(busy, asked_at)),
        }
    }
}

impl Outcome {
    /// Returns the outcome of a call for one key.
    pub(crate) fn of_one(self) -> Locked {
        match self {
            Self::Granted(guards) => Locked::Guard(guards.into_one()),
            Self::Held(busy) => Locked::Held(busy),
            Self::Apart => unreachable!("only calls for several keys have this outcome"),
        }
    }

    /// Returns the `Busy` that observers see. Returns `None` if there is none, or if later calls
    /// report it.
    fn refusal(&self) -> Option<&Busy> {
        match self {
            Self::Held(busy) => Some(busy),
            Self::Granted(_) | Self::Apart => None,
        }
    }
}

/// Returns `Some(true)` if a key was held and the attempt may be retried, and `Some(false)` if the
/// attempt failed with a retryable error.
fn refused_for_now(acquired: &Result<AcquireOutcome, Error>) -> Option<bool> {
    match acquired {
        Ok(AcquireOutcome::Held(_)) => Some(true),
        Err(error) if error.is_retryable() => Some(false),
        Ok(AcquireOutcome::Granted { .. }) | Err(_) => None,
    }
}
