//! The striped lock, which has several segments. A caller acquires any free segment.

use std::fmt;
use std::iter;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Instant};
use crate::contract::backend::Mode;
use crate::contract::backend::Operation;
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::held_by_caller;
use crate::engine::pipeline::{Engine, Locked};
use crate::engine::retry_state::RetryState;
use crate::engine::wait::Wait;
use crate::locks::guard::{LockGuard, done};
use crate::locks::handle::{Kind, LockHandle};
use crate::options::LockOptions;

/// A lock with several interchangeable segments. A caller acquires any free segment, and the guard
/// reports its index.
///
/// Use a striped lock to split a contended resource. For example, assume that a shop sells 10,000
/// umbrellas, and that a single counter in the database allows one sale at a time. With ten
/// segments and ten counters of 1,000 umbrellas each, ten sales can run at the same time. The
/// holder of segment 3 sells from counter 3. All callers must use the same number of segments.
///
/// Each segment is the [mutex](crate::LockClient::mutex) named `<key>/<index>`, with its own lease
/// and fencing token. Tokens of different segments cannot be compared.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let stock = client.striped("stock:umbrellas", 2)?;
///
/// let (one, other) = (stock.lock().await?, stock.lock().await?);
/// assert_ne!(one.segment(), other.segment());
/// assert!(stock.try_lock().await.is_err());
/// other.release().await?;
///
/// let sold = stock.run(async |guard| format!("from counter {}", guard.segment())).await?;
/// # let _ = sold;
/// # drop(one);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # How a caller finds a free segment
///
/// A caller tries the segments one by one, starting at a random segment, and acquires the first
/// free segment. If all segments are held and the caller may wait, the caller queues for one
/// segment. While the caller is queued, it retries all other segments after each pause of
/// [`LockOptions::retry`]. With the default retry policy, the pauses between attempts are random,
/// start at 25 ms or more, and increase to at most 1 s.
///
/// A caller that waits for one of many segments therefore sends many requests. Do not use more
/// segments than the number of holders that you want at the same time.
#[derive(Clone)]
pub struct Striped {
    handle: LockHandle,
    segments: Arc<[LockKey]>,
}

impl Striped {
    /// The largest number of segments. The number of segments is limited because a waiting caller
    /// may send one request per segment in each round.
    pub const MAX_SEGMENTS: u32 = 1_024;

    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
        segments: u32,
    ) -> Result<Self, Error> {
        if segments == 0 || segments > Self::MAX_SEGMENTS {
            let max = Self::MAX_SEGMENTS;
            let message = format!("a resource must have 1 to {max} segments, not {segments}");
            return Err(Error::new(ErrorKind::Invalid, message).with_key(&key));
        }
        let segments = (0..segments).map(|index| key.segment(index)).collect::<Result<_, _>>()?;
        Ok(Self { handle: LockHandle::new(engine, key, options, Kind::Mutex)?, segments })
    }

    /// Returns this lock with different options.
    /// [`Mutex::with_options`](crate::Mutex::with_options) shows how to derive a lock's options
    /// from the client's options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { handle: self.handle.with_options(options)?, ..self })
    }

    /// Returns the key from which the segment keys are derived. No caller ever locks the striped
    /// lock's own key.
    pub fn key(&self) -> &LockKey {
        self.handle.key()
    }

    /// Returns the segment keys. Element `i` of the slice is the key of the segment with index `i`.
    pub fn segments(&self) -> &[LockKey] {
        &self.segments
    }

    /// Waits until a segment is free, then returns a guard that holds it.
    ///
    /// By default, this method waits indefinitely. Set [`LockOptions::wait`] to limit the wait, or
    /// call [`try_lock_for`](Self::try_lock_for). The caller waits in the queue of one segment.
    /// [`Retry::attempts`](crate::retry::Retry::attempts) limits both the number of attempts for
    /// that segment and the number of rounds in which the caller tries all other segments.
    ///
    /// # Errors
    ///
    /// [`Mutex::lock`](crate::Mutex::lock) lists the possible errors. If the request for one
    /// segment fails, the caller still tries all other segments. If the caller's time limit is
    /// reached and the request for a segment has failed, `lock` returns the error of that request
    /// instead of [`ErrorKind::Timeout`], because the segment may have been free.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any leases that the store has already granted are released in the background.
    pub async fn lock(&self) -> Result<StripedGuard, Error> {
        let engine = self.handle.engine();
        let asked_at = engine.now();
        let wait = Wait::lasting(self.handle.options().wait, asked_at);
        self.take(wait).await?.in_time(engine, asked_at)
    }

    /// Makes one attempt to acquire a segment. The method waits for the store's replies, but not
    /// for a current holder to release its segment.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments are held. If the attempt failed for another
    /// reason, returns [`TryLockError::Failed`] with one of the errors that [`lock`](Self::lock)
    /// returns. The method does not retry if the store is unreachable. See [`TryLockError`] for an
    /// example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock(&self) -> Result<StripedGuard, TryLockError> {
        self.take(Wait::once(self.handle.engine().now())).await?.or_busy()
    }

    /// Waits up to `wait` to acquire a segment.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if no segment became free in time. If the store rejected a
    /// request or did not reply in time, returns [`TryLockError::Failed`] with one of the errors
    /// that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<StripedGuard, TryLockError> {
        let wait = Wait::lasting(Some(wait), self.handle.engine().now());
        self.take(wait).await?.or_busy()
    }

    /// Waits to acquire a segment, but gives up at `instant`, a time on the client's clock such as
    /// `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if no segment became free in time. If the store rejected a
    /// request or did not reply in time, returns [`TryLockError::Failed`] with one of the errors
    /// that [`lock`](Self::lock) returns. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<StripedGuard, TryLockError> {
        self.try_lock_for(instant.since(self.handle.engine().now())).await
    }

    /// Acquires a segment, runs `work`, and then releases the segment. If the lease is lost, `work`
    /// is dropped before it finishes.
    ///
    /// # Errors
    ///
    /// If [`lock`](Self::lock) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`] if the lease was lost before `work` finished, or if the store
    /// reports on release that the lease no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the segment is released
    /// in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&StripedGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire a segment and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock`](Self::try_lock) fails, returns its error without calling `work`. Returns
    /// errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the segment is released
    /// in the background.
    pub async fn try_run<T>(
        &self,
        work: impl AsyncFnOnce(&StripedGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock().await?;
        Ok(guard.run_and_release(work).await?)
    }

    /// Waits up to `wait` to acquire a segment and, if successful, runs `work` in the same way as
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If [`try_lock_for`](Self::try_lock_for) fails, returns its error without calling `work`.
    /// Returns errors from [`run`](Self::run) as [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the segment is released
    /// in the background.
    pub async fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl AsyncFnOnce(&StripedGuard) -> T,
    ) -> Result<T, TryLockError> {
        let guard = self.try_lock_for(wait).await?;
        Ok(guard.run_and_release(work).await?)
    }

    async fn take(&self, wait: Wait) -> Result<Locked<StripedGuard>, Error> {
        let count = u32::try_from(self.segments.len()).expect("there are at most MAX_SEGMENTS");
        let start = fastrand::u32(..count);
        let order = (start..count).chain(0..start);
        let engine = self.handle.engine();

        // Try the segments one by one, because concurrent requests could acquire several segments.
        let mut refusals = Refusals::default();
        let round = self.round(order.clone(), &mut refusals);
        let granted = clock::until(engine.clock(), wait.reply_end(), round).await.flatten();
        if let Some(guard) = granted {
            return Ok(Locked::Guard(guard));
        }
        if wait.is_over(engine.now()) {
            return refusals.outcome(self.key());
        }

        for segment in order.clone() {
            let others = order.clone().filter(|other| *other != segment);
            match self.wait_in_line(segment, others, wait, &mut refusals).await {
                Ok(Locked::Guard(guard)) => return Ok(Locked::Guard(guard)),
                Ok(Locked::Held(busy)) => {
                    refusals.refuse(busy);
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
                Err(error) => {
                    let is_silent = refusals.soonest.is_none();
                    refusals.fail(error);
                    if is_silent || engine.now() >= wait.end() {
                        break;
                    }
                }
            }
        }
        refusals.outcome(self.key())
    }

    /// Makes one attempt for each segment in `order` until a segment is granted.
    async fn round(
        &self,
        order: impl Iterator<Item = u32>,
        refusals: &mut Refusals,
    ) -> Option<StripedGuard> {
        for segment in order {
            let once = Wait::once(self.handle.engine().now());
            match self.request(segment, once).await {
                Ok(Locked::Guard(guard)) => return Some(guard),
                Ok(Locked::Held(busy)) => refusals.refuse(busy),
                Err(error) => refusals.fail(error),
            }
        }
        None
    }

    /// Queues for one segment and retries all other segments after each pause.
    ///
    /// Without the retries, a dead holder of the queued segment would block the caller for a whole
    /// TTL, even if another segment becomes free.
    async fn wait_in_line(
        &self,
        segment: u32,
        others: impl Iterator<Item = u32> + Clone,
        wait: Wait,
        refusals: &mut Refusals,
    ) -> Result<Locked<StripedGuard>, Error> {
        let clock = self.handle.engine().clock();
        let mut line = pin!(self.request(segment, wait));
        let mut retries = RetryState::new(&self.handle.options().retry, wait.asked_at());
        loop {
            let left = refusals.soonest.as_ref().and_then(Busy::remaining);
            let next_attempt = retries
                .pause_ends(clock.now(), left)
                .filter(|next_attempt| *next_attempt < wait.end());
            let next_attempt = next_attempt.unwrap_or(Instant::FAR_FUTURE);
            let mut look = pin!(async {
                clock.sleep_until(next_attempt).await;
                let mut seen = Refusals::default();
                let found = self.round(others.clone(), &mut seen).await;
                *refusals = seen;
                found
            });
            tokio::select! {
                biased;
                locked = &mut line => {
                    // Finish a round that has already started, because it shows whether the
                    // remaining segments also fail.
                    if locked.is_err()
                        && clock.now() >= next_attempt
                        && let Some(Some(guard)) = clock::until(clock, wait.end(), look).await
                    {
                        return Ok(Locked::Guard(guard));
                    }
                    return locked;
                }
                found = &mut look => if let Some(guard) = found {
                    return Ok(Locked::Guard(guard));
                },
            }
        }
    }

    async fn request(&self, segment: u32, wait: Wait) -> Result<Locked<StripedGuard>, Error> {
        let handle = self.handle.at(&self.segments[segment as usize]);
        Ok(match handle.lock_within(Mode::Exclusive, wait).await? {
            Locked::Guard(guard) => Locked::Guard(StripedGuard { guard, segment }),
            Locked::Held(busy) => Locked::Held(busy),
        })
    }
}

impl fmt::Debug for Striped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.segments.len();
        f.debug_struct("Striped").field("key", self.key()).field("segments", &count).finish()
    }
}

/// The errors and `Busy` results of segments that were not granted.
#[derive(Default)]
struct Refusals {
    /// The `Busy` result whose holder's lease expires first.
    soonest: Option<Busy>,
    failed: Option<Error>,
}

impl Refusals {
    /// Records a failed request. Only the first error is kept.
    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Records that another caller holds a segment.
    fn refuse(&mut self, busy: Busy) {
        let ends = |busy: &Busy| busy.remaining().unwrap_or(Duration::MAX);
        if self.soonest.as_ref().is_none_or(|soonest| ends(&busy) < ends(soonest)) {
            self.soonest = Some(busy);
        }
    }

    /// Returns the overall result for the caller. An error takes precedence over a `Busy` result,
    /// because the failed segment may have been free.
    fn outcome(self, key: &LockKey) -> Result<Locked<StripedGuard>, Error> {
        match (self.failed, self.soonest) {
            (Some(error), _) => Err(error),
            (None, Some(soonest)) => Ok(Locked::Held(soonest.of(key))),
            (None, None) => Err(Error::new(ErrorKind::Indeterminate, "no reply in time")
                .with_operation(Operation::Acquire)
                .with_key(key)),
        }
    }
}

/// A guard that holds one segment of a [`Striped`] lock: a [`LockGuard`] with the index of its
/// segment.
///
/// Dropping the guard releases the segment in the background.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let stock = LockClient::new(MemoryBackend::new()).striped("stock:umbrellas", 10)?;
/// let guard = stock.lock().await?;
/// let segment = guard.segment(); // 0 to 9
/// assert_eq!(guard.key(), &stock.segments()[segment as usize]);
/// guard.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct StripedGuard {
    guard: LockGuard,
    segment: u32,
}

impl StripedGuard {
    /// Returns the index of the segment, starting at 0.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    async fn run_and_release<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let work = held_by_caller::within(iter::once(self.to_run()), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// Converts this value into a plain guard, which still holds the segment but does not report
    /// its index.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// Releases the segment and waits until the store has confirmed the release. See
    /// [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the release continues in the
    /// background.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl Deref for StripedGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl fmt::Debug for StripedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedGuard")
            .field("segment", &self.segment)
            .field("guard", &self.guard)
            .finish()
    }
}
