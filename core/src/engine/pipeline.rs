//! The pipeline, which processes one `lock()` call from its first stage to its last.
//!
//! Stage 3 reports the store's replies to the queue of stage 2. A guard that is dropped or released
//! is removed from stages 4, 2 and 1.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::task::coop;

use crate::clock::{Clock, Instant};
use crate::contract::backend::{Claim, LockBackend, Operation, StoreAdmin, Subject, unsupported};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::try_lock_error::TryLockError;
use crate::engine::acquire::{self, Acquired};
use crate::engine::few::Few;
use crate::engine::hold::{Hold, Term};
use crate::engine::queue::{Asker, LocalQueue, Next, Return};
use crate::engine::reaper::PendingRelease;
use crate::engine::reentrancy::{Entering, Entry};
use crate::engine::request::LockRequest;
use crate::engine::runs;
use crate::engine::tries::Tries;
use crate::engine::upkeep::Upkeep;
use crate::locks::guard::LockGuard;
use crate::observe::{Call, Events, GrantPath};
use crate::options::LockOptions;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The state shared by all clones of a client and all their locks.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) upkeep: Arc<Upkeep>,
    pub(super) queue: LocalQueue<Hold>,
    /// The options of locks that do not have their own options.
    options: Arc<LockOptions>,
    pub(super) closed: AtomicBool,
    /// Notified once, after `closed` is set.
    pub(super) closing: Notify,
}

pub(crate) enum Outcome {
    /// One guard per request, in the same order.
    Granted(Few<LockGuard>),
    Held(Busy),
    /// Nothing was acquired, and the keys can be acquired one by one. Either a key is held and the
    /// caller may wait, or the store cannot grant several keys in one step.
    Apart,
}

/// The result of stage 1.
enum Entered {
    /// The locks must be acquired, for a specific owner if the lock is reentrant.
    First(Option<Entering>),
    Done(Outcome),
}

/// The result of stage 2.
enum Turns {
    /// The turn for each request.
    Ask(Few<Asker<Hold>>),
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
            upkeep: Arc::new(Upkeep::new(backend, clock, events)),
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
        requests: Few<LockRequest<'_>>,
        finish: impl FnOnce(Outcome) -> Result<T, E>,
    ) -> Result<T, E> {
        self.upkeep.process().check().map_err(|error| error.with_operation(Operation::Acquire))?;
        let requests = requests.as_slice();
        let call = Call::new(self.upkeep.events(), &self.queue, self.clock(), requests);
        let outcome = match self.admit().await {
            Ok(()) => call.run(pin!(self.stages(requests, &call))).await,
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
        let (upkeep, clock) = (&self.upkeep, self.upkeep.clock());

        // Stage 1: reentrancy
        let entering = match self.enter(requests, call).await? {
            Entered::First(entering) => entering,
            Entered::Done(outcome) => return Ok(outcome),
        };

        let mut back = None;
        let mut tries = Tries::new(&options.retry, wait.asked_at());
        loop {
            // Stage 2: queue
            let askers = match self.turns(requests, back.take(), &mut tries, call).await? {
                Turns::Ask(askers) => askers,
                Turns::Held(held) => return Ok(Outcome::Held(held)),
                Turns::Guard(guard) => {
                    let now = clock.now();
                    if !guard.held().0.taken_over(now) {
                        continue;
                    }
                    call.acquired(&requests[0], guard.token().number(), GrantPath::HandedOver, now);
                    return self.entered(entering, Few::One(guard));
                }
            };

            // Stage 3: acquire
            let once = askers.as_slice()[0].once();
            let wait_now = if once.is_some() { wait.but_once() } else { wait };
            let claims = Few::of(requests, |request| request.within(wait_now).claim());
            let claims = claims.as_slice();
            let mut each = requests.iter();
            let mut pending = Few::of(claims, |claim| {
                self.pending(each.next().expect("each claim is for one request"), claim)
            });
            let pending = pending.as_mut_slice();
            let acquired = {
                let asking = (&mut *pending, askers.as_slice());
                let acquire =
                    acquire::acquire(upkeep, claims, asking, wait_now, &mut tries, options, call);
                self.unless_closing(pin!(acquire)).await
            };
            if let Some(ticket) = once
                && let Some(refused) = refused_for_now(&acquired)
                && !wait.is_over(clock.now())
            {
                back = Some(Return { ticket, refused });
                continue;
            }
            let answered_at = match acquired? {
                Acquired::Granted { answered_at } => answered_at,
                Acquired::Held(held) => return Ok(Outcome::Held(held)),
            };

            // Stages 4 and 5: watchdog and guard
            let mut each = requests.iter().zip(&*pending);
            let guards = askers.map(|asker| {
                let (request, lease) = each.next().expect("each asker is for one request");
                self.watch_over(lease.hold(), request, asker, (call, answered_at));
                self.guard(Arc::clone(lease.hold()), Term::default())
            });
            let entered = self.entered(entering, guards);
            // From here on, the guards are responsible for the releases.
            pending.iter_mut().for_each(PendingRelease::disarm);
            return entered;
        }
    }

    /// Stage 1: locks again if the request has an owner that already holds the key.
    async fn enter(&self, requests: &[LockRequest<'_>], call: &Call<'_>) -> Result<Entered, Error> {
        let upkeep = &self.upkeep;
        for request in requests.iter().filter(|request| !request.wait.is_once()) {
            if runs::keep_out(upkeep, request.key, request.mode, request.owner) {
                let message =
                    "the caller already holds this lock, so the call would wait for itself";
                return Err(Error::new(ErrorKind::WouldDeadlock, message).with_key(request.key));
            }
        }
        let [request @ LockRequest { key, mode, wait, owner: Some(owner), .. }] = requests else {
            return Ok(Entered::First(None));
        };
        let limit = request.options.reentry_limit;
        let enter = pin!(upkeep.holds().enter(key, *owner, *mode, limit, *wait, self.clock()));
        let enter = self.unless_closing(enter);
        Ok(match call.queueing(pin!(enter)).await? {
            Some(Entry::First(first)) => Entered::First(Some(first)),
            Some(Entry::Again(hold, term)) => {
                call.acquired(request, hold.number(term), GrantPath::Reentered, self.now());
                Entered::Done(Outcome::Granted(Few::One(self.guard(hold, term))))
            }
            None => {
                let holder = self.queue.last_known(key, self.now())?;
                Entered::Done(Outcome::Held(Busy::new(key, holder)))
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
        back: Option<Return>,
        tries: &mut Tries,
        call: &Call<'_>,
    ) -> Result<Turns, Error> {
        if let [request] = requests {
            let turn = self.queue.turn(request, back, tries, self.clock());
            return Ok(match call.queueing(pin!(turn)).await? {
                Next::Ask(asker) => Turns::Ask(Few::One(asker)),
                Next::Guard(guard) => Turns::Guard(guard),
                Next::Held(holder) => Turns::Held(Busy::new(request.key, holder)),
            });
        }
        let mut askers = Vec::with_capacity(requests.len());
        for request in requests {
            let once = request.within(request.wait.but_once());
            match self.queue.turn(&once, None, tries, self.clock()).await? {
                Next::Ask(asker) => askers.push(asker),
                Next::Guard(_) => return Ok(Turns::Held(Busy::new(request.key, None))),
                Next::Held(holder) => return Ok(Turns::Held(Busy::new(request.key, holder))),
            }
        }
        Ok(Turns::Ask(Few::Several(askers)))
    }

    /// Publishes the lease, so that its owner can lock the key again.
    ///
    /// A shutdown that has just started may have collected the leases before this lease was filed.
    /// In this case, the guards are dropped here, before their pending releases are discarded, so
    /// that the shutdown waits for the releases.
    fn entered(
        &self,
        entering: Option<Entering>,
        guards: Few<LockGuard>,
    ) -> Result<Outcome, Error> {
        if let Some(entering) = entering {
            let (hold, term) = guards.as_slice()[0].held();
            entering.publish(hold, term);
        }
        if self.is_closed() { Err(Error::closed()) } else { Ok(Outcome::Granted(guards)) }
    }

    /// Creates the record of the lease that `claim` requests.
    fn pending(&self, request: &LockRequest<'_>, claim: &Claim) -> PendingRelease<'_> {
        let (upkeep, lease) = (&self.upkeep, claim.lease());
        let watch = upkeep.backend().watch(Subject::Lease(lease));
        let alarm = upkeep.watchdog().alarm();
        let hold = Hold::new(lease.clone(), request, watch, alarm, upkeep.events());
        PendingRelease::new(hold, upkeep.reaper())
    }

    /// Registers a granted lease with the watchdog, which renews it.
    fn watch_over(
        &self,
        hold: &Arc<Hold>,
        request: &LockRequest<'_>,
        asker: Asker<Hold>,
        (call, answered_at): (&Call<'_>, Instant),
    ) {
        asker.granted(request.mode, hold, |turn| hold.give_to_caller(turn));
        call.acquired(request, hold.number(Term::default()), GrantPath::Granted, answered_at);
        self.upkeep.watchdog().add(hold);
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
        self.upkeep.process().check()?;
        self.admit().await?;
        self.unless_closing(call).await
    }

    /// Starts a call, inside a runtime.
    async fn admit(&self) -> Result<(), Error> {
        // A task that acquires locks in a loop without ever waiting must let other tasks run.
        coop::consume_budget().await;
        if self.is_closed() {
            return Err(Error::closed());
        }
        self.upkeep.ensure_running()
    }

    /// Runs a stage that may wait, and cancels it if the client is shut down. The local queue does
    /// not need this function, because it ends its waits during a shutdown.
    async fn unless_closing<T>(
        &self,
        mut stage: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        // The subscription starts here. An unpolled subscription costs almost nothing, and it is
        // polled only if the stage must wait.
        let mut closing = pin!(self.closing.notified());
        if self.is_closed() {
            return Err(Error::closed());
        }
        poll_fn(|cx| match stage.as_mut().poll(cx) {
            Poll::Pending => closing.as_mut().poll(cx).map(|()| Err(Error::closed())),
            outcome @ Poll::Ready(_) => outcome,
        })
        .await
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn guard(&self, hold: Arc<Hold>, term: Term) -> LockGuard {
        LockGuard::new(hold, term, Arc::clone(&self.upkeep))
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
        self.upkeep.backend()
    }

    /// Returns the backend, for requests to the store.
    pub(crate) fn store(&self) -> Result<&dyn LockBackend, Error> {
        self.upkeep.process().check()?;
        Ok(self.upkeep.backend())
    }

    /// Returns the store's operations for operators, or the error for `operation`.
    pub(crate) fn admin(&self, operation: Operation) -> Result<&dyn StoreAdmin, Error> {
        let store = self.store()?;
        store.admin().ok_or_else(|| unsupported(&store.capabilities(), operation))
    }

    pub(crate) fn events(&self) -> &Events {
        self.upkeep.events()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.upkeep.clock()
    }

    pub(crate) fn now(&self) -> Instant {
        self.upkeep.now()
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn reaper(&self) -> &Arc<crate::engine::reaper::Reaper> {
        self.upkeep.reaper()
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
fn refused_for_now(acquired: &Result<Acquired, Error>) -> Option<bool> {
    match acquired {
        Ok(Acquired::Held(_)) => Some(true),
        Err(error) if error.is_retryable() => Some(false),
        Ok(Acquired::Granted { .. }) | Err(_) => None,
    }
}
