//! Stage 5: the proof of a lease.

use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::clock::{self, Instant};
use crate::contract::backend::{Lease, Operation, Share};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::loss::{LeaseState, LossReason};
use crate::contract::token::FencingToken;
use crate::engine::hold::{Hold, Leave, Passed, Term};
use crate::engine::process::Process;
use crate::engine::queue::{Held, Next, Turn, Waiter};
use crate::engine::reaper::Debt;
use crate::engine::runs::{self, Run};
use crate::engine::upkeep::Upkeep;
use crate::observe::{self, AskedKind};
use crate::options;

/// A held lock. The lock is released when the guard is [released](Self::release) or dropped.
///
/// As long as the guard exists, the watchdog renews its lease (unless renewal is [off](crate::RenewalMode::Off)). If renewals fail until the
/// deadline, or if the store removes the lease, it is lost. A lost lease is never acquired again, and [`is_held`](Self::is_held) stays false.
///
/// A process that was paused may still consider itself the holder for a moment after its lease has expired. Send the [token](Self::token)
/// with each write, so that the resource can refuse such a late write.
///
/// All of the following is known locally and does no I/O:
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{LeaseState, LockClient};
///
/// let client = LockClient::new(MemoryBackend::new());
/// let guard = client.mutex("invoice:42")?.lock().await?;
/// assert_eq!(guard.key().as_str(), "invoice:42");
/// assert_eq!((guard.units(), guard.state()), (1, LeaseState::Held));
/// assert!(guard.is_held() && !guard.is_revocation_requested());
/// assert!(guard.deadline() > client.now() && !guard.remaining().is_zero());
/// println!("UPDATE … WHERE fence <= {}", guard.token().as_i64());
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping a guard passes the release to a background task, so it does not block, and it never panics. If the client's last runtime has
/// ended, or is about to end, a thread of the client sends the release, and the drop waits for it, for at most 2 s. A program can therefore
/// end while it holds a guard:
///
/// ```no_run
/// # use leasehold_core::LockClient;
/// # use leasehold_core::memory::MemoryBackend;
/// #[tokio::main]
/// async fn main() -> Result<(), leasehold_core::Error> {
///     let client = LockClient::new(MemoryBackend::new()); // or any other store
///     let _guard = client.mutex("nightly-report")?.lock().await?;
///     // … the report …
///     Ok(()) // the lock is free when the process has ended
/// }
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct LockGuard {
    hold: Arc<Hold>,
    upkeep: Arc<Upkeep>,
    term: Term,
    token: FencingToken,
    gone: bool,
}

/// The turn and the release that the last guard of a lease leaves behind.
type Left<'a> = (Option<Turn<Hold>>, Debt<'a>);

impl LockGuard {
    /// Creates the guard of a holder of the lease in its present `term`.
    pub(crate) fn new(hold: Arc<Hold>, term: Term, upkeep: Arc<Upkeep>) -> Self {
        let token = hold.token(term);
        Self { hold, upkeep, term, token, gone: false }
    }

    /// The lease that it guards, and the term since which it does.
    pub(crate) fn held(&self) -> (&Arc<Hold>, Term) {
        (&self.hold, self.term)
    }

    /// Returns the key that is held.
    pub fn key(&self) -> &LockKey {
        self.hold.lease().key()
    }

    /// Returns the lease, for code of a backend. Its ID is a secret.
    pub fn lease(&self) -> &Lease {
        self.hold.lease()
    }

    /// Returns the fencing token. Send it with every write to the protected resource.
    ///
    /// Guards of one owner that share a [`ReentrantMutex`](crate::ReentrantMutex) share a token. See [`Fence`](crate::Fence) for an example.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// Returns how many permits of the key the guard holds: 1 for a mutex or a reader.
    pub fn units(&self) -> u32 {
        self.hold.share().units()
    }

    /// Returns the instant, on the client's [clock](crate::clock::Clock), at which the lease is considered lost unless it is renewed before.
    ///
    /// The deadline counts from before the request was sent, less an allowance for clock drift (1 % of the TTL and 2 ms), so it passes before
    /// the lease expires in the store.
    pub fn deadline(&self) -> Instant {
        self.hold.deadline()
    }

    /// Returns the time until the [deadline](Self::deadline), or zero if the lease is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.upkeep.now();
        if self.is_held() { self.deadline().since(now) } else { Duration::ZERO }
    }

    /// Returns the state of the lease, as it is known locally. See [`LeaseState`] for an example.
    pub fn state(&self) -> LeaseState {
        // Before all else: in a forked process, the mutexes of the lease may be locked for ever.
        if self.upkeep.process().was_left() {
            return LeaseState::Lost(LossReason::Forked);
        }
        self.hold.state(self.upkeep.now())
    }

    /// Returns whether the lease is in force, as it is known locally.
    ///
    /// `false` is final. `true` can become outdated at any moment: use [`ensure_held`](Self::ensure_held) or the [token](Self::token) before a
    /// step that must not be late.
    pub fn is_held(&self) -> bool {
        !matches!(self.state(), LeaseState::Lost(_))
    }

    /// Checks that the lease is in force, and that at least `min_left` of it is left.
    ///
    /// Call it before a step that takes a known time and must not outlive the lease. The check uses the local deadline and does no I/O.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{ErrorKind, LockClient};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("invoice:42")?.lock().await?;
    /// guard.ensure_held(Duration::from_secs(1))?; // before a step that takes a second
    /// let error = guard.ensure_held(Duration::from_secs(3_600)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::ExpiresSoon); // the TTL is 30 s
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`] if the lease is lost, and [`ErrorKind::ExpiresSoon`] if less than `min_left` is left.
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        if let LeaseState::Lost(reason) = self.state() {
            return Err(self.lost_error(reason, Operation::Run));
        }
        let left = self.remaining();
        if left < min_left {
            let message =
                format!("the lease expires in {left:.1?}, but the work needs {min_left:.1?}");
            return Err(Error::new(ErrorKind::ExpiresSoon, message).with_key(self.key()));
        }
        Ok(())
    }

    /// Waits until the lease is lost, and returns the reason. Returns `None` if the guard is released or dropped instead.
    ///
    /// The future is ready at the latest when the deadline has passed, even if the store, the network or the watchdog hangs. If several
    /// guards share a lease, the future also ends when the last of them is dropped. It does not borrow the guard, so another task can wait
    /// for it, and it does not keep the lease or the client alive.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, LossReason};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("invoice:42")?.lock().await?;
    /// client.admin().force_release("invoice:42", "an example").await?;
    /// tokio::select! {
    ///     reason = guard.lost() => assert_eq!(reason, Some(LossReason::Vanished)),
    ///     () = std::future::pending() => {} // the work
    /// }
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: a loss is never withdrawn, and the next call reports it again.
    pub fn lost(&self) -> impl Future<Output = Option<LossReason>> + Send + 'static {
        let (hold, term) = (Arc::clone(&self.hold), self.term);
        let (process, clock) = (self.upkeep.process(), self.upkeep.shared_clock());
        async move {
            let mut wait = pin!(hold.wait_lost(term, &*clock));
            // The clock is read at every poll: a runtime that was stalled may run us before its timers.
            poll_fn(|cx| match loss_in(process, || hold.loss_of(term, clock.now())) {
                lost @ Some(_) => Poll::Ready(lost),
                None => wait.as_mut().poll(cx),
            })
            .await
        }
    }

    /// Waits until the lease is [unconfirmed](LeaseState::Unconfirmed) or lost.
    ///
    /// An unconfirmed lease is still in force, but its renewal is overdue, so this is a good moment to finish early:
    ///
    /// ```
    /// use leasehold_core::LockGuard;
    ///
    /// async fn next_row(guard: &LockGuard, row: impl Future<Output = u64>) -> Option<u64> {
    ///     tokio::select! {
    ///         state = guard.unconfirmed() => {
    ///             eprintln!("no further rows: the lease is {state:?}");
    ///             None
    ///         }
    ///         row = row => Some(row),
    ///     }
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the next call reports the state again.
    pub async fn unconfirmed(&self) -> LeaseState {
        if self.upkeep.process().was_left() {
            return LeaseState::Lost(LossReason::Forked);
        }
        self.hold.wait_unconfirmed(self.upkeep.clock()).await
    }

    /// Waits until the holders of the key are [asked](crate::LockClient::request_revocation) to finish early, and returns `true`. Returns
    /// `false` if the guard is released or dropped before that.
    ///
    /// The request does not end the lease. The holder is notified by the next renewal, which happens immediately if the store sends change
    /// events, and never without [renewal](crate::RenewalMode::Off). The future does not borrow the guard, so another task can wait for it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("batch")?.lock().await?;
    /// client.request_revocation("batch").await?;
    /// if guard.revocation_requested().await {
    ///     guard.release().await?; // after the row at hand
    /// }
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: a request is never withdrawn, and the next call reports it again.
    pub fn revocation_requested(&self) -> impl Future<Output = bool> + Send + 'static {
        let (hold, term, process) = (Arc::clone(&self.hold), self.term, self.upkeep.process());
        async move { !process.was_left() && hold.wait_asked_back(term).await }
    }

    /// Returns whether the holders of the key were asked to finish early. See [`revocation_requested`](Self::revocation_requested).
    pub fn is_revocation_requested(&self) -> bool {
        !self.upkeep.process().was_left() && self.hold.is_asked_back_from(self.term)
    }

    /// Renews the lease now, with another TTL from now on.
    ///
    /// A shorter TTL moves the [deadline](Self::deadline) before the request is sent. A longer one
    /// moves it when the store has confirmed; not beyond a shorter one that was asked for before without an
    /// answer, since that request may still arrive. [`max_hold`](crate::LockOptions::max_hold) still limits it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("import")?.lock().await?;
    /// guard.extend(Duration::from_secs(300)).await?; // a pause of the process is ahead
    /// assert!(guard.remaining() > Duration::from_secs(200));
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the TTL is not possible on this store, or too short for
    /// [`loss_grace`](crate::LockOptions::loss_grace).
    /// [`ErrorKind::LeaseLost`] if the lease is lost, or the store no longer has it.
    /// [`ErrorKind::Indeterminate`] or [`ErrorKind::Unavailable`] if the store did not answer; the
    /// watchdog goes on trying until the deadline.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. The store may have renewed; the deadline is never later than the store allows.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let store = self.upkeep.backend().capabilities();
        options::check_ttl("ttl", ttl, &store)?;
        options::check_kept(ttl, self.hold.lock_delay(), &store)?;
        options::check_loss_grace(self.hold.loss_grace(), ttl)?;
        self.amend(|lease| lease.with_ttl(ttl)).await
    }

    /// The description of the lease, or the one that its next renewal will store.
    pub(crate) fn description(&self) -> Option<Description> {
        self.hold.description()
    }

    /// Puts a changed lease in force, now and at all later renewals.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`extend`](Self::extend).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the next renewal stores the change.
    pub(crate) async fn amend(&self, change: impl Fn(Lease) -> Lease) -> Result<(), Error> {
        self.check_process(Operation::Renew)?;
        let (backend, clock) = (self.upkeep.backend(), self.upkeep.clock());
        let (mut renewing, lease) = self
            .hold
            .start_change(change, clock)
            .await
            .map_err(|error| error.with_operation(Operation::Renew).with_key(self.key()))?;
        self.upkeep.watchdog().file([&self.hold]);
        let give_up = renewing.attempt_end().min(self.deadline());
        let renew = backend.renew(&lease).instrument(observe::renew_span(1));
        let reply = clock::until(clock, give_up, renew).await;
        renewing.settle(reply.as_ref(), clock.now());
        self.upkeep.events().heard(Operation::Renew, reply.as_ref(), clock);
        self.upkeep.watchdog().file([&self.hold]);
        if let Some(reason) = self.hold.loss(clock.now()) {
            return Err(self.lost_error(reason, Operation::Renew));
        }
        match reply {
            Some(reply) => reply.map(|_renewed| ()),
            None => Err(Error::new(ErrorKind::Indeterminate, "no reply in time")
                .with_operation(Operation::Renew)
                .with_key(self.key())),
        }
    }

    /// Runs `future` for as long as the lease is in force, and drops it unfinished if that is lost. The guard is kept.
    ///
    /// With [`loss_grace`](crate::LockOptions::loss_grace), `future` is told by [`ending`](Self::ending) and dropped that much
    /// later, at the [deadline](Self::deadline) at the latest.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("invoice:42")?.lock().await?;
    /// let total = guard.while_held(async { 40 + 2 }).await?;
    /// assert!(guard.is_held());
    /// # let _ = total;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::LeaseLost`] if the lease was lost before `future` had finished.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `future`. The guard is kept.
    pub async fn while_held<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        tokio::select! {
            biased;
            Some(reason) = self.lost_for_good() => Err(self.lost_error(reason, Operation::Run)),
            output = future.instrument(self.span(None)) => match self.loss() {
                Some(reason) => Err(self.lost_error(reason, Operation::Run)),
                None => Ok(output),
            },
        }
    }

    /// The span of work that is done under the lock.
    pub(crate) fn span(&self, parent: Option<&Span>) -> Span {
        observe::hold_span(parent, &self.token, self.kind())
    }

    pub(crate) fn kind(&self) -> AskedKind {
        self.hold.kind()
    }

    /// Waits until work under the lock has to come to an end: the lease is lost, or no more than
    /// [`loss_grace`](crate::LockOptions::loss_grace) is left of it, since renewals fail or may not go on.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{ErrorKind, LockClient, LockOptions};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let graceful = LockOptions::new().loss_grace(Duration::from_secs(1));
    /// let job = client.mutex("job")?.with_options(graceful)?;
    /// let ran = job.run(async |guard| {
    ///     client.admin().force_release("job", "an example").await?;
    ///     tokio::select! {
    ///         () = std::future::pending() => {} // the work
    ///         () = guard.ending() => println!("there is a second to clean up"),
    ///     }
    ///     Ok::<(), leasehold_core::Error>(())
    /// });
    /// assert_eq!(ran.await.unwrap_err().kind(), ErrorKind::LeaseLost);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the next call tells of it again.
    pub async fn ending(&self) {
        let (grace, clock) = (self.hold.loss_grace(), self.upkeep.clock());
        loop {
            // Renewals push it meanwhile.
            let ends = self.deadline() - grace;
            let lost = clock::until(clock, ends, self.lost()).await;
            if lost.is_some() || clock.now() >= self.deadline() - grace {
                return;
            }
        }
    }

    /// Why the lease was lost, if it was.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        loss_in(self.upkeep.process(), || self.hold.loss_of(self.term, self.upkeep.now()))
    }

    /// Waits until the lease is lost and the grace for its work is over; `None` if the guard is gone before that.
    pub(crate) async fn lost_for_good(&self) -> Option<LossReason> {
        let reason = self.lost().await?;
        let clock = self.upkeep.clock();
        let ends = (clock.now() + self.hold.loss_grace()).min(self.deadline());
        clock.sleep_until(ends).await;
        Some(reason)
    }

    /// Gives back some of the permits that it holds, and keeps the others; callers that wait for them may come in.
    ///
    /// The lease and the token stay. If the store does not answer now, the next renewal tells it, and until then it keeps them closed.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let connections = LockClient::new(MemoryBackend::new()).semaphore("connections", 3)?;
    /// let guard = connections.acquire(3).await?;
    /// guard.give_back(2).await?;
    /// assert_eq!((guard.units(), connections.available().await?), (1, 2));
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless it holds permits of a [`Semaphore`](crate::Semaphore), and more than so many: the last ones are given
    /// back by [`release`](Self::release). [`ErrorKind::LeaseLost`] if the lease is lost.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the permits are given back by the next renewal.
    pub async fn give_back(&self, permits: u32) -> Result<(), Error> {
        self.reduce(|share| match share {
            Share::Units { units, limit } if limit < u32::MAX && (1..units).contains(&permits) => {
                Ok(Share::Units { units: units - permits, limit })
            }
            share => {
                let message = format!("cannot give back {permits} of {} permits; at least one must be given back and at least one kept", share.units());
                Err(Error::new(ErrorKind::Invalid, message))
            }
        })
        .await
    }

    /// Ends the lease and waits until the store has confirmed it; or passes it on to the next caller of this process that
    /// waits for it, see [`LockOptions::hand_over`](crate::LockOptions::hand_over).
    ///
    /// If other guards of the owner remain, it only gives this one up. With
    /// [`min_hold`](crate::LockOptions::min_hold) the key stays closed for the rest of that time.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let invoice = client.mutex("invoice:42")?;
    /// let guard = invoice.lock().await?;
    /// guard.release().await?;
    /// assert!(!invoice.is_locked().await?);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::LeaseLost`], at once if the client knows it, if the lease was lost before, so that the work under it may not have
    /// been alone. [`ErrorKind::Indeterminate`] or [`ErrorKind::Unavailable`] if the store did not answer within five seconds, or by
    /// the [deadline](Self::deadline) if that is earlier; the release goes on in the background until the TTL has freed the key. After
    /// any error the guard is gone just the same.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the release goes on in the background.
    #[inline]
    pub async fn release(self) -> Result<(), Error> {
        self.check_process(Operation::Release)?;
        let now = self.upkeep.now();
        let Err(mut guard) = self.hand_over(now) else { return Ok(()) };
        let now = guard.hold.wait_to_close(guard.upkeep.clock(), now).await;
        guard.gone = true;
        let (state, last) = guard.leave(now);
        // Declared before the debt, so that a dropped future hands the release over first.
        let (_turn, debt) = last.map_or((None, None), |(turn, debt)| (turn, Some(debt)));
        if let LeaseState::Lost(reason) = state {
            return Err(guard.lost_error(reason, Operation::Release));
        }
        let Some(mut debt) = debt else { return Ok(()) };
        let (backend, clock) = (guard.upkeep.backend(), guard.upkeep.clock());
        // Pinned here, since a span moves the future that it is given.
        let settle = pin!(debt.settle(backend, clock, now, guard.deadline()));
        let settled = settle.instrument(observe::release_span(guard.key())).await;
        settled.map_err(|error| error.with_operation(Operation::Release).with_key(guard.key()))
    }

    /// Turns a writer's lease into a reader's; other readers may enter at once.
    pub(crate) async fn share_with_readers(&self) -> Result<(), Error> {
        self.reduce(|_| Ok(Share::READER)).await
    }

    /// Keeps less of the key, as `reduced` says; others may come in beside it at once.
    async fn reduce(
        &self,
        reduced: impl FnOnce(Share) -> Result<Share, Error>,
    ) -> Result<(), Error> {
        self.check_process(Operation::Renew)?;
        let sharing = self.hold.start_sharing(reduced, self.upkeep.now());
        drop(sharing.map_err(|error| error.with_key(self.key()))?);
        match self.amend(|lease| lease).await {
            // Renewals ask for it from now on.
            Err(error) if error.is_retryable() => Ok(()),
            amended => amended,
        }
    }

    /// Runs `work`, then releases.
    pub(crate) async fn run_and_release<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> T,
    ) -> Result<T, Error> {
        let work = runs::within(iter::once(self.to_run()), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// The run of work that this guard outlives.
    pub(crate) fn to_run(&self) -> Run {
        Run::under(&self.hold, &self.upkeep)
    }

    /// Opens the key as soon as the lease has ended, since its caller made no use of it.
    pub(crate) fn waive_min_hold(&self) {
        self.hold.waive_min_hold();
    }

    /// Fails in a forked process, where this guard is a copy.
    fn check_process(&self, operation: Operation) -> Result<(), Error> {
        match self.upkeep.process().was_left() {
            true => Err(self.lost_error(LossReason::Forked, operation)),
            false => Ok(()),
        }
    }

    fn lost_error(&self, reason: LossReason, operation: Operation) -> Error {
        Error::lost(reason).with_operation(operation).with_key(self.key())
    }

    /// Becomes the guard of the next caller of this process that waits for the lease, if there is one that may have it.
    fn hand_over(mut self, now: Instant) -> Result<(), Self> {
        while let Some((waiter, term)) = self.pass_on(now) {
            self.term = term;
            self.token.renumber(self.hold.number(term));
            match waiter.give(self) {
                Ok(()) => return Ok(()),
                // It has gone meanwhile, so the lease is ours still.
                Err(refused) => self = refused,
            }
        }
        Err(self)
    }

    /// Passes the lease on to the next caller of this process that waits for it, if that may be.
    fn pass_on(&self, now: Instant) -> Option<(Waiter<Next<Hold>>, Term)> {
        let Passed { waiter, term, owner, held, is_due_earlier } = self.hold.pass_on(now)?;
        self.hold.tell_handed_over(term, held);
        if is_due_earlier {
            self.upkeep.watchdog().file([&self.hold]);
        }
        if let Some(owner) = owner {
            self.upkeep.holds().tidy(self.key(), owner);
        }
        Some((waiter, term))
    }

    /// Ends this guard's part in the lease. The last one owes the store a release.
    fn leave(&self, now: Instant) -> (LeaseState, Option<Left<'_>>) {
        let mut debt = Debt::new(self.hold.unwanted(), self.upkeep.reaper());
        debt.incur();
        let (state, turn) = match self.hold.leave(now) {
            Leave::Inner(state) => {
                debt.forgive();
                return (state, None);
            }
            Leave::Last(state, turn) => (state, turn),
        };
        self.upkeep.forget(&self.hold);
        if let LeaseState::Lost(reason) = state
            && !self.hold.is_owed_after(reason)
        {
            debt.forgive();
        }
        (state, Some((turn, debt)))
    }
}

/// The result of work under a lock: a release without an answer does not take the result away.
pub(crate) fn done<T>(output: T, released: Result<(), Error>) -> Result<T, Error> {
    match released {
        Err(error) if error.kind() == ErrorKind::LeaseLost => Err(error),
        // The background goes on with it, and the reaper has told of it.
        Err(_) | Ok(()) => Ok(output),
    }
}

/// Why a guard of this process lost its lease, if it did. In a forked process, nothing else of the lease may be looked at.
fn loss_in(process: Process, loss: impl FnOnce() -> Option<LossReason>) -> Option<LossReason> {
    if process.was_left() { Some(LossReason::Forked) } else { loss() }
}

impl Held for Hold {
    type Guard = LockGuard;

    fn holder(&self, now: Instant) -> Holder {
        self.holder(now)
    }

    fn was_taken_by_caller(&self) -> bool {
        self.was_taken_by_caller()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // A copy in a forked process ends nothing.
        if self.gone || self.upkeep.process().was_left() {
            return;
        }
        let now = self.upkeep.now();
        while let Some((waiter, term)) = self.pass_on(now) {
            match waiter.give(Self::new(Arc::clone(&self.hold), term, Arc::clone(&self.upkeep))) {
                Ok(()) => return,
                Err(mut refused) => refused.gone = true,
            }
        }
        drop(self.leave(now));
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("token", self.token())
            .field("lease", &self.hold.lease().id())
            .field("state", &self.state())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::LockGuard;

    const fn assert_send_sync<T: Send + Sync>() {}

    #[test]
    fn a_guard_may_be_moved_and_shared() {
        assert_send_sync::<LockGuard>();
    }
}
