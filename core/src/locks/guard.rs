//! Stage 5 of the pipeline: the guard, which represents a held lease.

use std::fmt;
use std::future::poll_fn;
use std::iter;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::clock::{self, Instant};
use crate::contract::backend::{Lease, Mode, Operation};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::loss::{LeaseState, LossReason};
use crate::contract::token::FencingToken;
use crate::engine::background::Background;
use crate::engine::held_by_caller::{self, HeldByCaller};
use crate::engine::process::Process;
use crate::engine::queue::{HeldLease, Next, Turn, Waiter};
use crate::engine::record::{HandOff, LeaseRecord, Leave, Term};
use crate::engine::releases::PendingRelease;
use crate::observe::{self, AskedKind};
use crate::options;

/// A held lock. The lock is released when the guard is [released](Self::release) or dropped.
///
/// As long as the guard exists, the watchdog renews its lease (unless renewal is
/// [off](crate::RenewalMode::Off)). If renewals fail until the deadline, or if the store removes
/// the lease, the lease is lost. A lost lease never becomes valid again, so
/// [`is_held`](Self::is_held) keeps returning `false`.
///
/// After a pause, a process may still consider itself the holder for a moment, even if its lease
/// expired during the pause. Send the [token](Self::token) with each write, so that the resource
/// can reject writes from an expired holder.
///
/// The following methods of the guard use local state and do no I/O:
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
/// Dropping a guard passes the release to a background task, so the drop neither blocks nor panics.
/// If the client's last tokio runtime has shut down or is shutting down, one of the client's
/// threads sends the release, and the drop waits at most 2 s for the release to complete. A program
/// can therefore exit while it holds a guard:
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
    record: Arc<LeaseRecord>,
    background: Arc<Background>,
    term: Term,
    token: FencingToken,
    gone: bool,
}

/// The queue turn and the pending release that remain after a lease's last guard is gone.
type Left<'a> = (Option<Turn<LeaseRecord>>, PendingRelease<'a>);

impl LockGuard {
    /// Creates the guard for the lease's holder in the current `term`.
    pub(crate) fn new(record: Arc<LeaseRecord>, term: Term, background: Arc<Background>) -> Self {
        let token = record.token(term);
        Self { record, background, term, token, gone: false }
    }

    /// Returns the record of the guard's lease, and the guard's term of the guard.
    pub(crate) fn held(&self) -> (&Arc<LeaseRecord>, Term) {
        (&self.record, self.term)
    }

    /// Returns the key that the guard holds.
    pub fn key(&self) -> &LockKey {
        self.record.lease().key()
    }

    /// Returns the lease, for use in backend code. The lease ID is a secret.
    pub fn lease(&self) -> &Lease {
        self.record.lease()
    }

    /// Returns the fencing token. Send the token with every write to the protected resource.
    ///
    /// All guards that one owner has for a [`ReentrantMutex`](crate::ReentrantMutex) share a token.
    /// See [`Fence`](crate::Fence) for an example.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }

    /// Returns the number of permits that the guard holds, which is 1 for a mutex or a reader.
    pub fn units(&self) -> u32 {
        self.record.mode().units()
    }

    /// Returns the instant, on the client's [clock](crate::clock::Clock), at which the lease is
    /// considered lost unless it is renewed first.
    ///
    /// The deadline is one TTL after the request was sent, minus an allowance for clock drift (1 %
    /// of the TTL plus 2 ms). The deadline therefore passes before the lease expires in the store.
    pub fn deadline(&self) -> Instant {
        self.record.deadline()
    }

    /// Returns the time until the [deadline](Self::deadline), or zero if the lease is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.background.now();
        if self.is_held() { self.deadline().since(now) } else { Duration::ZERO }
    }

    /// Returns the state of the lease, based on local information. See [`LeaseState`] for an
    /// example.
    pub fn state(&self) -> LeaseState {
        // Check for a fork first, because the mutexes of the lease may stay locked forever in a
        // forked process.
        if self.background.process().was_left() {
            return LeaseState::Lost(LossReason::Forked);
        }
        self.record.state(self.background.now())
    }

    /// Returns whether the lease is still valid, based on local information.
    ///
    /// A result of `false` is final. A result of `true` can become outdated at any time. Before a
    /// write that must not happen after the lease has expired, call
    /// [`ensure_held`](Self::ensure_held), or send the [token](Self::token) with the write.
    pub fn is_held(&self) -> bool {
        !matches!(self.state(), LeaseState::Lost(_))
    }

    /// Checks that the lease is valid, and that at least `min_left` remains before its deadline.
    ///
    /// Call `ensure_held` before a step that takes a known time and must finish before the lease
    /// expires. The method checks the local deadline and does no I/O.
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
    /// Returns [`ErrorKind::LeaseLost`] if the lease is lost, and [`ErrorKind::ExpiresSoon`] if
    /// less than `min_left` remains.
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

    /// Waits until the lease is lost, then returns the reason. Returns `None` if the guard is
    /// released or dropped first.
    ///
    /// The future completes no later than the first poll after the deadline, even if the store, the
    /// network or the watchdog hangs. If several guards share a lease, the future also completes
    /// when the last guard is dropped. The future does not borrow the guard, so a different task
    /// can await the future. The future does not keep the lease or the client alive either.
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
    /// This method is cancel safe. A loss is permanent, so the next call reports it again.
    pub fn lost(&self) -> impl Future<Output = Option<LossReason>> + Send + 'static {
        let (record, term) = (Arc::clone(&self.record), self.term);
        let (process, clock) = (self.background.process(), self.background.shared_clock());
        async move {
            let mut wait = pin!(record.wait_lost(term, &*clock));
            // Read the clock on every poll, because a runtime that was stalled may poll this future
            // before it fires its timers.
            poll_fn(|cx| match loss_in(process, || record.loss_of(term, clock.now())) {
                Some(_) if flaw!("loss-not-reported") => Poll::Pending,
                lost @ Some(_) => Poll::Ready(lost),
                None => wait.as_mut().poll(cx),
            })
            .await
        }
    }

    /// Waits until the lease is [unconfirmed](LeaseState::Unconfirmed) or lost.
    ///
    /// An unconfirmed lease is still in force, but its renewal is overdue. A caller can use this
    /// method to finish early:
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
    /// This method is cancel safe. As long as the lease is unconfirmed or lost, every call returns
    /// immediately.
    pub async fn unconfirmed(&self) -> LeaseState {
        if self.background.process().was_left() {
            return LeaseState::Lost(LossReason::Forked);
        }
        self.record.wait_unconfirmed(self.background.clock()).await
    }

    /// Waits until a client [asks](crate::LockClient::request_revocation) the key's holders to
    /// finish early, then returns `true`. Returns `false` if the guard is released or dropped
    /// first.
    ///
    /// A revocation request does not end the lease. The holder is notified of the request by the
    /// reply to its next renewal. If the store sends change events, the client sends this renewal
    /// immediately. If [renewal is off](crate::RenewalMode::Off), the holder is not notified of the
    /// request. The future does not borrow the guard, so a different task can await the future.
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
    /// This method is cancel safe. A revocation request is never withdrawn, so the next call
    /// reports it again.
    pub fn revocation_requested(&self) -> impl Future<Output = bool> + Send + 'static {
        let (record, term, process) =
            (Arc::clone(&self.record), self.term, self.background.process());
        async move { !process.was_left() && record.wait_revocation_requested(term).await }
    }

    /// Returns whether a client has asked the key's holders to finish early. See
    /// [`revocation_requested`](Self::revocation_requested).
    pub fn is_revocation_requested(&self) -> bool {
        !self.background.process().was_left() && self.record.is_revocation_requested_in(self.term)
    }

    /// Renews the lease now with a new TTL, which also applies to later renewals.
    ///
    /// If the new TTL is shorter, the [deadline](Self::deadline) becomes earlier even before the
    /// request is sent. If the new TTL is longer, the deadline moves only after the store has
    /// confirmed the new TTL. If an earlier request for a shorter TTL got no reply, the deadline
    /// stays within the shorter TTL, because the earlier request may still reach the store.
    /// [`max_hold`](crate::LockOptions::max_hold) still limits the deadline.
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
    /// Returns [`ErrorKind::Invalid`] if the store does not support the TTL, or if the TTL is too
    /// short for [`loss_grace`](crate::LockOptions::loss_grace). Returns [`ErrorKind::LeaseLost`]
    /// if the lease is lost or no longer exists in the store. Returns [`ErrorKind::Indeterminate`]
    /// or [`ErrorKind::Unavailable`] if the store did not reply. If the store did not reply, the
    /// watchdog retries the renewal until the deadline.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the store may or may not renew the
    /// lease. In both cases, the local deadline is never later than the lease's expiry in the
    /// store.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let store = self.background.backend().capabilities();
        options::check_ttl("ttl", ttl, &store)?;
        options::check_kept(ttl, self.record.lock_delay(), &store)?;
        options::check_loss_grace(self.record.loss_grace(), ttl)?;
        self.amend(|lease| lease.with_ttl(ttl)).await
    }

    /// Returns the lease's description, or the new description that the next renewal will store.
    pub(crate) fn description(&self) -> Option<Description> {
        self.record.description()
    }

    /// Applies `change` to the lease, now and in all later renewals.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`extend`](Self::extend).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the next renewal stores the change.
    pub(crate) async fn amend(&self, change: impl Fn(Lease) -> Lease) -> Result<(), Error> {
        self.check_process(Operation::Renew)?;
        let (backend, clock) = (self.background.backend(), self.background.clock());
        let (mut renewing, lease) = self
            .record
            .start_change(change, clock)
            .await
            .map_err(|error| error.with_operation(Operation::Renew).with_key(self.key()))?;
        self.background.watchdog().file([&self.record]);
        let give_up = renewing.attempt_end().min(self.deadline());
        let renew = backend.renew(&lease).instrument(observe::renew_span(1));
        let reply = clock::until(clock, give_up, renew).await;
        renewing.settle(reply.as_ref(), clock.now());
        self.background.events().heard(Operation::Renew, reply.as_ref(), clock);
        self.background.watchdog().file([&self.record]);
        if let Some(reason) = self.record.loss(clock.now()) {
            return Err(self.lost_error(reason, Operation::Renew));
        }
        match reply {
            Some(reply) => reply.map(|_renewed| ()),
            None => Err(Error::new(ErrorKind::Indeterminate, "no reply in time")
                .with_operation(Operation::Renew)
                .with_key(self.key())),
        }
    }

    /// Runs `future` while the lease is valid. If the lease is lost, this method drops `future`
    /// before `future` completes. The guard is kept.
    ///
    /// If [`loss_grace`](crate::LockOptions::loss_grace) is set, `future` can await
    /// [`ending`](Self::ending) so that it can finish early. After a loss, `future` is dropped at
    /// the end of the grace period, but no later than the [deadline](Self::deadline).
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
    /// Returns [`ErrorKind::LeaseLost`] if the lease was lost before `future` finished.
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

    /// Returns the span for work that runs under the lock.
    pub(crate) fn span(&self, parent: Option<&Span>) -> Span {
        observe::hold_span(parent, &self.token, self.kind())
    }

    pub(crate) fn kind(&self) -> AskedKind {
        self.record.kind()
    }

    /// Waits until work under the lock must stop. Work must stop if the lease is lost, or if no
    /// more than [`loss_grace`](crate::LockOptions::loss_grace) remains before the deadline because
    /// renewals fail or are no longer allowed.
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
    /// This method is cancel safe. If the time to stop the work has already come, the next call
    /// returns immediately.
    pub async fn ending(&self) {
        let (grace, clock) = (self.record.loss_grace(), self.background.clock());
        loop {
            // A renewal during the wait postpones the deadline.
            let ends = self.deadline() - grace;
            let lost = clock::until(clock, ends, self.lost()).await;
            if lost.is_some() || clock.now() >= self.deadline() - grace {
                return;
            }
        }
    }

    /// Returns why the lease was lost, or `None` if it was not lost.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        loss_in(self.background.process(), || self.record.loss_of(self.term, self.background.now()))
    }

    /// Waits until the lease is lost and the grace period for its work is over. Returns `None` if
    /// the guard is dropped first.
    pub(crate) async fn lost_for_good(&self) -> Option<LossReason> {
        let reason = self.lost().await?;
        let clock = self.background.clock();
        let ends = (clock.now() + self.record.loss_grace()).min(self.deadline());
        clock.sleep_until(ends).await;
        Some(reason)
    }

    /// Returns some of the guard's permits to the semaphore. Waiting callers can acquire the
    /// returned permits.
    ///
    /// The guard keeps its lease and its token. If the store does not reply, the next renewal
    /// returns the permits, which remain unavailable until then.
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
    /// Returns [`ErrorKind::Invalid`] if the guard does not hold permits of a
    /// [`Semaphore`](crate::Semaphore), if `permits` is 0, or if the guard does not hold more than
    /// `permits` permits. To return all permits, call [`release`](Self::release). Returns
    /// [`ErrorKind::LeaseLost`] if the lease is lost.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the next renewal returns the permits
    /// to the semaphore.
    pub async fn give_back(&self, permits: u32) -> Result<(), Error> {
        self.reduce(|mode| match mode {
            Mode::Units { units, limit } if limit < u32::MAX && (1..units).contains(&permits) => {
                Ok(Mode::Units { units: units - permits, limit })
            }
            mode => {
                let message = format!("cannot give back {permits} of {} permits; at least one must be given back and at least one kept", mode.units());
                Err(Error::new(ErrorKind::Invalid, message))
            }
        })
        .await
    }

    /// Releases the lease and waits until the store has confirmed the release. If
    /// [`LockOptions::hand_over`](crate::LockOptions::hand_over) allows it, the lease is instead
    /// handed off to the next waiting caller in this process.
    ///
    /// If the owner has other guards of the same lease, the lease stays in force until the last
    /// guard is released. If [`min_hold`](crate::LockOptions::min_hold) is set, the key stays
    /// locked for the rest of the minimum hold time.
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
    /// Returns [`ErrorKind::LeaseLost`] if the lease was lost before the release, in which case
    /// another holder may have been working at the same time. If the client has already noticed the
    /// loss, `release` returns the error immediately. Returns [`ErrorKind::Indeterminate`] or
    /// [`ErrorKind::Unavailable`] if the store did not reply within five seconds or by the
    /// [deadline](Self::deadline), whichever is earlier. An unconfirmed release is retried in the
    /// background until the lease has expired. The guard is consumed even if the release fails.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the release continues in the
    /// background.
    #[inline]
    pub async fn release(self) -> Result<(), Error> {
        self.check_process(Operation::Release)?;
        let now = self.background.now();
        let Err(mut guard) = self.hand_over(now) else { return Ok(()) };
        let now = guard.record.wait_to_close(guard.background.clock(), now).await;
        guard.gone = true;
        let (state, last) = guard.leave(now);
        // Declared before `pending`, so that a dropped future first queues the release.
        let (_turn, pending) = last.map_or((None, None), |(turn, pending)| (turn, Some(pending)));
        if let LeaseState::Lost(reason) = state {
            return Err(guard.lost_error(reason, Operation::Release));
        }
        let Some(mut pending) = pending else { return Ok(()) };
        let (backend, clock) = (guard.background.backend(), guard.background.clock());
        // Pinned here, because `instrument` would otherwise move the future.
        let release = pin!(pending.send(backend, clock, now, guard.deadline()));
        let released = release.instrument(observe::release_span(guard.key())).await;
        released.map_err(|error| error.with_operation(Operation::Release).with_key(guard.key()))
    }

    /// Turns a writer's lease into a reader's lease. Other readers can then acquire the lock
    /// immediately.
    pub(crate) async fn share_with_readers(&self) -> Result<(), Error> {
        self.reduce(|_| Ok(Mode::READER)).await
    }

    /// Reduces the lease to the mode that `reduced` returns. Other callers can acquire the
    /// released part immediately.
    async fn reduce(&self, reduced: impl FnOnce(Mode) -> Result<Mode, Error>) -> Result<(), Error> {
        self.check_process(Operation::Renew)?;
        let sharing = self.record.start_sharing(reduced, self.background.now());
        drop(sharing.map_err(|error| error.with_key(self.key()))?);
        match self.amend(|lease| lease).await {
            // Later renewals request the reduced mode.
            Err(error) if error.is_retryable() => Ok(()),
            amended => amended,
        }
    }

    /// Runs `work`, then releases the lock.
    pub(crate) async fn run_and_release<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> T,
    ) -> Result<T, Error> {
        let work = held_by_caller::within(iter::once(self.to_run()), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// Returns the `HeldByCaller` for work that finishes before this guard is released.
    pub(crate) fn to_run(&self) -> HeldByCaller {
        HeldByCaller::under(&self.record, &self.background)
    }

    /// Allows the release to free the key without waiting for `min_hold`, because the caller did
    /// not use the lock.
    pub(crate) fn waive_min_hold(&self) {
        self.record.waive_min_hold();
    }

    /// Returns an error in a forked process, where this guard is a copy.
    fn check_process(&self, operation: Operation) -> Result<(), Error> {
        match self.background.process().was_left() {
            true => Err(self.lost_error(LossReason::Forked, operation)),
            false => Ok(()),
        }
    }

    fn lost_error(&self, reason: LossReason, operation: Operation) -> Error {
        Error::lost(reason).with_operation(operation).with_key(self.key())
    }

    /// Hands this guard off to the next caller in this process that is waiting for the lease.
    /// Returns the guard if no waiting caller can accept it.
    fn hand_over(mut self, now: Instant) -> Result<(), Self> {
        while let Some((waiter, term)) = self.pass_on(now) {
            self.term = term;
            self.token.renumber(self.record.number(term));
            match waiter.give(self) {
                Ok(()) => return Ok(()),
                // The waiting caller is gone, so this guard still has the lease.
                Err(refused) => self = refused,
            }
        }
        Err(self)
    }

    /// Hands the lease off to the next waiting caller in this process, if this is allowed.
    fn pass_on(&self, now: Instant) -> Option<(Waiter<Next<LeaseRecord>>, Term)> {
        let HandOff { waiter, term, owner, held, is_due_earlier } = self.record.pass_on(now)?;
        self.record.report_handed_over(term, held);
        if is_due_earlier {
            self.background.watchdog().file([&self.record]);
        }
        if let Some(owner) = owner {
            self.background.owners().tidy(self.key(), owner);
        }
        Some((waiter, term))
    }

    /// Removes this guard from the lease. After the last guard is removed, a release is pending.
    fn leave(&self, now: Instant) -> (LeaseState, Option<Left<'_>>) {
        // Armed before the guard leaves, so that a shutdown in the meantime waits for the release.
        let mut pending = PendingRelease::new(Arc::clone(&self.record), self.background.releases());
        pending.arm();
        let (state, turn, is_owed) = match self.record.leave(now) {
            Leave::Inner(state) => {
                pending.disarm();
                return (state, None);
            }
            Leave::Last { seen, turn, is_owed } => (seen, turn, is_owed),
        };
        if !is_owed {
            pending.disarm();
        }
        self.background.forget(&self.record);
        (state, Some((turn, pending)))
    }
}

/// Returns the result of work that ran under a lock. If only the reply to the release is missing,
/// the result is still returned.
pub(crate) fn done<T>(output: T, released: Result<(), Error>) -> Result<T, Error> {
    match released {
        Err(error) if error.kind() == ErrorKind::LeaseLost => Err(error),
        // The failed release has been reported and continues in the background.
        Err(_) | Ok(()) => Ok(output),
    }
}

/// Returns why the guard's lease was lost, if it was lost. In a forked process, no other state of
/// the lease may be read.
fn loss_in(process: Process, loss: impl FnOnce() -> Option<LossReason>) -> Option<LossReason> {
    if process.was_left() { Some(LossReason::Forked) } else { loss() }
}

impl HeldLease for LeaseRecord {
    type Guard = LockGuard;

    fn holder(&self, now: Instant) -> Holder {
        self.holder(now)
    }

    fn was_acquired_by_caller(&self) -> bool {
        self.was_acquired_by_caller()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // In a forked process, the guard is a copy, and dropping the copy must not release the
        // lease.
        if self.gone || self.background.process().was_left() {
            return;
        }
        let now = self.background.now();
        while let Some((waiter, term)) = self.pass_on(now) {
            match waiter.give(Self::new(
                Arc::clone(&self.record),
                term,
                Arc::clone(&self.background),
            )) {
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
            .field("lease", &self.record.lease().id())
            .field("state", &self.state())
            .finish()
    }
}
