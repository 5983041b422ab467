//! The page that shows the order: one `lock()` call, top to bottom.
//!
//! Two stages call back: stage 3 reports the store's answers to the line of stage 2, and a guard that ends gives up its part in
//! stages 4, 2 and 1.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::slice;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop;

use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Claim, Lease, LockBackend, Operation, Patience, Share};
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::contract::loss::LossReason;
use crate::contract::owner::OwnerId;
use crate::engine::acquire::{self, Acquired, Owed};
use crate::engine::hold::{Granted, Hold, Term};
use crate::engine::queue::{Asker, LocalQueue, Next, Return, Wish};
use crate::engine::reaper::Debt;
use crate::engine::reentrancy::{Entering, Entry};
use crate::engine::runs;
use crate::engine::tries::Tries;
use crate::engine::upkeep::Upkeep;
use crate::engine::wait::Wait;
use crate::locks::guard::LockGuard;
use crate::observe::{AskedKind, Call, Events, Path};
use crate::options::LockOptions;
use crate::sync::Notify;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The state that all clones of a client and all its locks share.
#[derive(Debug)]
pub(crate) struct Engine {
    upkeep: Arc<Upkeep>,
    queue: LocalQueue<Hold>,
    /// The options of locks without options of their own.
    options: Arc<LockOptions>,
    closed: AtomicBool,
    /// Notified once, after `closed` is true.
    closing: Notify,
}

/// The request of a lock to the stages.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) options: &'a Arc<LockOptions>,
    /// How much of the key.
    pub(crate) share: Share,
    /// For those that observe.
    pub(crate) kind: AskedKind,
    /// Whether to stand in the store's queue while waiting.
    pub(crate) queues: bool,
    /// The owner that may enter again, if one may.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) wait: Wait,
}

/// The outcome of a request.
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

    /// Takes a lock, through all stages, unless the client is shut down meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Every stage is safe to drop, so the whole is.
    pub(crate) async fn lock(&self, request: Request<'_>) -> Result<Locked, Error> {
        let key = request.key;
        let call = Call::one(self.upkeep.events(), &self.queue, self.clock(), &request);
        let locked = call.run(self.running(pin!(self.stages(request, &call)))).await;
        let locked = locked.map_err(|error| self.acquiring(error, key));
        call.end(locked.as_ref());
        locked
    }

    /// Takes several locks without owners, with the same options and wait, by requests that are each for all of
    /// them; `Held` if one of them is held when the wait is over.
    ///
    /// `None` if they may be had one after the other: one is held and there is time to wait, or the store cannot do that.
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::lock`].
    pub(crate) async fn lock_all(
        &self,
        requests: &[Request<'_>],
    ) -> Result<Option<Locked<Vec<LockGuard>>>, Error> {
        let (key, wait) = (requests[0].key, requests[0].wait);
        let call = Call::of(self.upkeep.events(), &self.queue, self.clock(), requests);
        match call.run(self.running(pin!(self.stages_for_all(requests, &call)))).await {
            Ok(Locked::Held(_)) if !wait.is_over(self.now()) => {
                call.forget();
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                call.forget();
                Ok(None)
            }
            locked => {
                let locked = locked.map_err(|error| self.acquiring(error, key));
                call.end(locked.as_ref());
                locked.map(Some)
            }
        }
    }

    async fn stages(&self, request: Request<'_>, call: &Call<'_>) -> Result<Locked, Error> {
        let Request { key, options, owner, wait, share, .. } = request;
        let (upkeep, clock) = (&self.upkeep, self.upkeep.clock());

        // 1 reentrancy
        if !wait.is_once() && runs::keep_out(upkeep, key, share, owner) {
            let message = "the caller runs under this lock, and would wait for itself";
            return Err(Error::new(ErrorKind::WouldDeadlock, message));
        }
        let mut entering = None;
        if let Some(owner) = owner {
            let limit = options.reentry_limit;
            let enter = upkeep.holds().enter(key, owner, share, limit, wait, clock);
            let enter = self.unless_closing(enter);
            match call.queueing(pin!(enter)).await? {
                None => {
                    let holder = self.queue.last_known(key, clock.now())?;
                    return Ok(Locked::Held(Busy::new(key, holder)));
                }
                Some(Entry::Again(hold, term)) => {
                    call.acquired(&request, hold.number(term), Path::Reentered, clock.now());
                    return Ok(Locked::Guard(self.guard(hold, term)));
                }
                Some(Entry::First(first)) => entering = Some(first),
            }
        }

        let (wish, mut back) = (request.wish(), None);
        let mut tries = Tries::new(&options.retry, wait.asked_at());
        loop {
            // 2 queue
            let turn = self.queue.turn(key, &wish, back.take(), wait, &mut tries, clock);
            let asker = match call.queueing(pin!(turn)).await? {
                Next::Held(holder) => return Ok(Locked::Held(Busy::new(key, holder))),
                Next::Guard(guard) => {
                    let now = clock.now();
                    if guard.held().0.is_over(now) {
                        // Lost on its way to a caller that was stalled.
                        continue;
                    }
                    guard.held().0.taken_over();
                    call.acquired(&request, guard.token().number(), Path::HandedOver, now);
                    return self.entered(entering, guard);
                }
                Next::Ask(asker) => asker,
            };

            // 3 acquire
            let once = asker.once();
            let request = if once.is_some() { request.but_once() } else { request };
            let (claims, askers) = ([request.claim()], slice::from_ref(&asker));
            let wait_now = request.wait;
            let acquire =
                acquire::acquire(upkeep, &claims, askers, wait_now, &mut tries, options, call);
            let acquired = self.unless_closing(acquire).await;
            if let Some(ticket) = once
                && let Some(refused) = refused_for_now(&acquired)
                && !wait.is_over(clock.now())
            {
                back = Some(Return { ticket, refused });
                continue;
            }
            let Owed { granted, mut debt } = match acquired? {
                Acquired::Granted(owed) => owed.into_iter().next().expect("it is the one claim's"),
                Acquired::Held(held) => return Ok(Locked::Held(held)),
            };

            // 4 watchdog
            let hold = self.watch_over(granted, &request, asker, call);

            // 5 guard
            let locked = self.entered(entering, self.guard(hold, Term::default()));
            debt.forgive();
            return locked;
        }
    }

    async fn stages_for_all(
        &self,
        requests: &[Request<'_>],
        call: &Call<'_>,
    ) -> Result<Locked<Vec<LockGuard>>, Error> {
        let Request { options, wait, .. } = requests[0];
        let (upkeep, clock) = (&self.upkeep, self.upkeep.clock());

        // 1 reentrancy: none, since the requests have no owner.

        // 2 queue: all at once or none, since to wait for one with others in hand may be to wait in a circle.
        let mut askers = Vec::with_capacity(requests.len());
        let mut tries = Tries::new(&options.retry, wait.asked_at());
        for request in requests {
            let (key, wish, once) = (request.key, request.wish(), wait.but_once());
            match self.queue.turn(key, &wish, None, once, &mut tries, clock).await? {
                Next::Ask(asker) => askers.push(asker),
                Next::Guard(_) => return Ok(Locked::Held(Busy::new(key, None))),
                Next::Held(holder) => return Ok(Locked::Held(Busy::new(key, holder))),
            }
        }

        // 3 acquire
        let claims: Vec<Claim> = requests.iter().map(Request::claim).collect();
        let acquire = acquire::acquire(upkeep, &claims, &askers, wait, &mut tries, options, call);
        let owed = match self.unless_closing(acquire).await? {
            Acquired::Granted(owed) => owed,
            Acquired::Held(held) => return Ok(Locked::Held(held)),
        };

        // 4 watchdog, 5 guard
        let each = owed.into_iter().zip(requests).zip(askers);
        let (guards, mut debts): (Vec<_>, Vec<_>) = each
            .map(|((Owed { granted, debt }, request), asker)| {
                let hold = self.watch_over(granted, request, asker, call);
                (self.guard(hold, Term::default()), debt)
            })
            .unzip();
        let locked = self.unless_closed(guards);
        debts.iter_mut().for_each(Debt::forgive);
        locked
    }

    /// Lets the owner enter again, now that there is a guard.
    fn entered(&self, entering: Option<Entering>, guard: LockGuard) -> Result<Locked, Error> {
        if let Some(entering) = entering {
            let (hold, term) = guard.held();
            entering.publish(hold, term);
        }
        self.unless_closed(guard)
    }

    /// Has a lease renewed while it is held.
    fn watch_over(
        &self,
        granted: Granted,
        request: &Request<'_>,
        asker: Asker<Hold>,
        call: &Call<'_>,
    ) -> Arc<Hold> {
        let watchdog = self.upkeep.watchdog();
        let told = (self.upkeep.events(), request.kind);
        let hold = asker.granted(request.share, |turn| {
            let alarm = Arc::clone(watchdog.alarm());
            Hold::new(granted, request.owner, request.options, turn, alarm, told)
        });
        call.acquired(request, hold.number(Term::default()), Path::Granted, self.now());
        watchdog.add(&hold);
        hold
    }

    /// A shutdown that began just now may have counted its leases before the latest were filed.
    fn unless_closed<G>(&self, guard: G) -> Result<Locked<G>, Error> {
        if self.is_closed() { Err(Error::closed()) } else { Ok(Locked::Guard(guard)) }
    }

    fn acquiring(&self, error: Error, key: &LockKey) -> Error {
        let backend = self.backend().capabilities().name();
        error.with_operation(Operation::Acquire).with_key(key).with_backend(backend)
    }

    /// Runs a call that may wait, inside a runtime, unless the client is shut down meanwhile.
    pub(crate) async fn while_open<T>(
        &self,
        call: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        self.running(pin!(self.unless_closing(call))).await
    }

    /// Runs a call inside a runtime. A shutdown ends it when it is polled next, so its stages see to it that they are.
    async fn running<T>(
        &self,
        mut call: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        // A task that locks again and again, and never has to wait, lets others run all the same.
        coop::consume_budget().await;
        if self.is_closed() {
            return Err(Error::closed());
        }
        self.upkeep.ensure_running()?;
        poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(Err(Error::closed()));
            }
            call.as_mut().poll(cx)
        })
        .await
    }

    /// Runs a stage that may wait for the store, or for another call, until the client is shut down. The local queue ends its waits by
    /// itself.
    async fn unless_closing<T>(
        &self,
        stage: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut stage = pin!(stage);
        // It hears of a shutdown from now on, but costs next to nothing before it is polled: when the stage has to wait.
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

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn guard(&self, hold: Arc<Hold>, term: Term) -> LockGuard {
        LockGuard::new(hold, term, Arc::clone(&self.upkeep))
    }

    /// Asks the store whether it serves.
    pub(crate) async fn ping(&self, within: Duration) -> Result<(), Error> {
        let give_up = self.now() + within;
        let answer = clock::until(self.clock(), give_up, async {
            if self.is_closed() { Err(Error::closed()) } else { self.backend().ping().await }
        });
        let answer = answer.await.unwrap_or_else(|| {
            let message = format!("no answer within {within:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        });
        let backend = self.backend().capabilities().name();
        answer.map_err(|error| error.with_operation(Operation::Ping).with_backend(backend))
    }

    /// Releases everything, ends all waits and holds with an error, and closes the backend.
    pub(crate) async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        let (upkeep, give_up) = (&self.upkeep, self.now() + within);
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.queue.close();
        upkeep.ensure_running()?;
        let settled = clock::until(upkeep.clock(), give_up, self.end_all()).await;
        self.backend().close().await;
        if settled.is_none() {
            let message = format!(
                "{} releases were not confirmed within {within:?}; those keys are free after their TTL",
                upkeep.reaper().unsettled()
            );
            return Err(Error::new(ErrorKind::Indeterminate, message)
                .with_operation(Operation::Shutdown)
                .with_backend(self.backend().capabilities().name()));
        }
        Ok(())
    }

    /// Ends all leases, and waits until no release is owed.
    async fn end_all(&self) {
        self.end_filed();
        self.upkeep.reaper().wait_settled().await;
        // A lease that was granted during the first look may have been handed over since. From now on none is granted.
        self.end_filed();
        self.upkeep.reaper().wait_settled().await;
    }

    /// Ends the leases that the watchdog has on file, and leaves their releases to the reaper.
    fn end_filed(&self) {
        let (upkeep, now) = (&self.upkeep, self.now());
        for hold in upkeep.watchdog().holds() {
            if hold.is_over(now) {
                continue;
            }
            hold.lose(LossReason::Shutdown, now);
            Debt::new(hold.unwanted(), upkeep.reaper()).incur();
        }
    }

    /// The error of a caller that has waited since `asked_at`.
    pub(crate) fn timeout(&self, busy: Busy, asked_at: Instant) -> Error {
        let waited = self.now().since(asked_at);
        let error = busy.into_error(format_args!("within {waited:.1?}"));
        error.with_backend(self.backend().capabilities().name())
    }

    pub(crate) fn options(&self) -> Arc<LockOptions> {
        Arc::clone(&self.options)
    }

    pub(crate) fn backend(&self) -> &dyn LockBackend {
        self.upkeep.backend()
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

    #[cfg(feature = "_simulation")]
    pub(crate) fn entries(&self) -> [(&'static str, usize); 4] {
        let upkeep = &self.upkeep;
        [
            ("lines", self.queue.len()),
            ("leases", upkeep.watchdog().holds().len()),
            ("owners", upkeep.holds().len()),
            ("releases", upkeep.reaper().unsettled()),
        ]
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn reaper(&self) -> &Arc<crate::engine::reaper::Reaper> {
        self.upkeep.reaper()
    }
}

impl<G> Locked<G> {
    pub(crate) fn or_busy(self) -> Result<G, Busy> {
        match self {
            Self::Guard(guard) => Ok(guard),
            Self::Held(busy) => Err(busy),
        }
    }

    /// The guard, or the error of a caller that has waited since `asked_at`.
    pub(crate) fn in_time(self, engine: &Engine, asked_at: Instant) -> Result<G, Error> {
        match self {
            Self::Guard(guard) => Ok(guard),
            Self::Held(busy) => Err(engine.timeout(busy, asked_at)),
        }
    }
}

impl Request<'_> {
    /// The same, for one attempt within the wait.
    fn but_once(self) -> Self {
        Self { wait: self.wait.but_once(), ..self }
    }

    /// How many tokens it has a use for besides its own; none if its lease may not be passed on.
    fn spare_tokens(&self) -> u32 {
        if self.share.is_whole() { self.options.spare_tokens() } else { 0 }
    }

    fn wish(&self) -> Wish {
        let (share, owner) = (self.share, self.owner);
        Wish { share, owner, options: Arc::clone(self.options) }
    }

    /// One id per acquisition, for all its attempts.
    fn claim(&self) -> Claim {
        let options = self.options;
        let lease = Lease::new(self.key, options.first_ttl() + options.lock_delay)
            .with_tenure(options.tenure())
            .with_share(self.share)
            .with_description(options.description.clone());
        Claim::new(lease).with_spare_tokens(self.spare_tokens()).with_patience(
            if self.wait.is_once() {
                Patience::Leaves
            } else if self.queues || options.fair {
                Patience::Queues(options.place_ttl())
            } else {
                Patience::Waits
            },
        )
    }
}

/// Whether the store refused an attempt that is not the caller's last, or failed for the time being (`false`); `None` if it did neither.
fn refused_for_now(acquired: &Result<Acquired, Error>) -> Option<bool> {
    match acquired {
        Ok(Acquired::Held(_)) => Some(true),
        Err(error) if error.is_retryable() => Some(false),
        Ok(Acquired::Granted(_)) | Err(_) => None,
    }
}
