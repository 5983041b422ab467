//! Striped locks: callers acquire any one of several segments.

use std::fmt;
use std::iter;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Instant};
use crate::contract::backend::Operation;
use crate::contract::backend::Share;
use crate::contract::busy::Busy;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::{Engine, Locked};
use crate::engine::runs;
use crate::engine::tries::Tries;
use crate::engine::wait::Wait;
use crate::locks::face::{Face, Kind};
use crate::locks::guard::{LockGuard, done};
use crate::options::LockOptions;

/// A lock with several interchangeable segments. A caller acquires any free segment, and the guard
/// reports its index.
///
/// Use it to split a contended resource. For example, a shop sells 10,000 umbrellas, and a single
/// counter in the database allows one sale at a time. With ten segments and ten counters of 1,000
/// umbrellas, ten sales can run at the same time. The holder of segment 3 sells from counter 3. All
/// callers must use the same number of segments.
///
/// Each segment is the [mutex](crate::LockClient::mutex) `<key>/<index>`, with the lease and the
/// fencing token of that key. Tokens of different segments cannot be compared.
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
/// # How a segment is found
///
/// A caller tries one segment after the other, starting with a random one, and acquires the first
/// segment that is free. If all segments are held and the caller may wait, it queues for one of
/// them. In the meantime, it tries all other segments after each pause of [`LockOptions::retry`].
/// The default pauses are random. They last at least 25 ms and grow to at most 1 s.
///
/// With many segments, a waiting caller therefore sends many requests. Use only as many segments as
/// there should be holders at the same time.
#[derive(Clone)]
pub struct Striped {
    face: Face,
    segments: Arc<[LockKey]>,
}

impl Striped {
    /// The largest number of segments. A waiting caller may send one request per segment in each
    /// round.
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
        Ok(Self { face: Face::new(engine, key, options, Kind::Mutex)?, segments })
    }

    /// Returns this lock with other options. [`Mutex::with_options`](crate::Mutex::with_options)
    /// shows how to derive them from the options of the client.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options contradict each
    /// other, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support one of them.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { face: self.face.with_options(options)?, ..self })
    }

    /// Returns the key from which the keys of the segments are derived. This key itself is never
    /// locked.
    pub fn key(&self) -> &LockKey {
        self.face.key()
    }

    /// Returns the keys of the segments. The position of a key is the index of its segment.
    pub fn segments(&self) -> &[LockKey] {
        &self.segments
    }

    /// Waits until any segment is free, and returns a guard that holds it.
    ///
    /// By default, this method waits without a limit. Set [`LockOptions::wait`] to limit the wait,
    /// or call [`try_lock_for`](Self::try_lock_for). The caller waits in the queue of one segment.
    /// [`Retry::attempts`](crate::retry::Retry::attempts) limits the attempts for that segment, and
    /// the number of rounds over all other segments.
    ///
    /// # Errors
    ///
    /// Returns the errors that [`Mutex::lock`](crate::Mutex::lock) lists. If the request for one
    /// segment fails, the caller still tries all other segments. If the wait ends without a
    /// segment, `lock` returns the error of a failed segment instead of [`ErrorKind::Timeout`],
    /// because that segment may have been free.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and leases that the store has granted in the meantime are released in the background.
    pub async fn lock(&self) -> Result<StripedGuard, Error> {
        let engine = self.face.engine();
        let asked_at = engine.now();
        let wait = Wait::lasting(self.face.options().wait, asked_at);
        self.take(wait).await?.in_time(engine, asked_at)
    }

    /// Makes one attempt to acquire any segment. The method does not wait for other holders, only
    /// for the store's replies.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments are held, and [`TryLockError::Failed`] with
    /// an error of [`lock`](Self::lock) if the attempt failed. The method does not retry while the
    /// store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_lock(&self) -> Result<StripedGuard, TryLockError> {
        self.take(Wait::once(self.face.engine().now())).await?.or_busy()
    }

    /// Waits to acquire any segment, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if no segment became free in time, and
    /// [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store refused a
    /// request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<StripedGuard, TryLockError> {
        let wait = Wait::lasting(Some(wait), self.face.engine().now());
        self.take(wait).await?.or_busy()
    }

    /// Waits to acquire any segment, until `instant` on the client's clock, for example
    /// `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if no segment became free in time, and
    /// [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store refused a
    /// request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<StripedGuard, TryLockError> {
        self.try_lock_for(instant.since(self.face.engine().now())).await
    }

    /// Acquires any segment and runs `work`. If the lease is lost, `work` is dropped before it has
    /// finished.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`lock`](Self::lock) before `work` is called. Returns
    /// [`ErrorKind::LeaseLost`] if the lease was lost before `work` finished, or if the store
    /// reports at the release that the lease was gone.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the segment is released
    /// in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&StripedGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire any segment and, if it succeeds, runs `work` like
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors
    /// of [`run`](Self::run) as [`TryLockError::Failed`].
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

    /// Waits to acquire any segment, for at most `wait`, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the
    /// errors of [`run`](Self::run) as [`TryLockError::Failed`].
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
        let engine = self.face.engine();

        // Try the segments one after the other. Concurrent requests could acquire several segments.
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

    /// Makes one attempt for each segment in `order`, until one is granted.
    async fn round(
        &self,
        order: impl Iterator<Item = u32>,
        refusals: &mut Refusals,
    ) -> Option<StripedGuard> {
        for segment in order {
            let once = Wait::once(self.face.engine().now());
            match self.request(segment, once).await {
                Ok(Locked::Guard(guard)) => return Some(guard),
                Ok(Locked::Held(busy)) => refusals.refuse(busy),
                Err(error) => refusals.fail(error),
            }
        }
        None
    }

    /// Queues for one segment, and tries all other segments after each pause.
    ///
    /// Without these rounds, a dead holder of this segment would block the caller for a whole TTL,
    /// even if another segment becomes free.
    async fn wait_in_line(
        &self,
        segment: u32,
        others: impl Iterator<Item = u32> + Clone,
        wait: Wait,
        refusals: &mut Refusals,
    ) -> Result<Locked<StripedGuard>, Error> {
        let clock = self.face.engine().clock();
        let mut line = pin!(self.request(segment, wait));
        let mut tries = Tries::new(&self.face.options().retry, wait.asked_at());
        loop {
            let left = refusals.soonest.as_ref().and_then(Busy::remaining);
            let look_at =
                tries.pause_ends(clock.now(), left).filter(|look_at| *look_at < wait.end());
            let look_at = look_at.unwrap_or(Instant::FAR_FUTURE);
            let mut look = pin!(async {
                clock.sleep_until(look_at).await;
                let mut seen = Refusals::default();
                let found = self.round(others.clone(), &mut seen).await;
                *refusals = seen;
                found
            });
            tokio::select! {
                biased;
                locked = &mut line => {
                    // A round that has already started shows whether the other segments fail as
                    // well, so let it finish.
                    if locked.is_err()
                        && clock.now() >= look_at
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

    /// Requests the lock of one segment.
    async fn request(&self, segment: u32, wait: Wait) -> Result<Locked<StripedGuard>, Error> {
        let face = self.face.at(&self.segments[segment as usize]);
        Ok(match face.lock_within(Share::Whole, wait).await? {
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

/// The refusals and errors of segments that were not granted.
#[derive(Default)]
struct Refusals {
    /// The refusal whose holder's lease expires first.
    soonest: Option<Busy>,
    failed: Option<Error>,
}

impl Refusals {
    /// Records that a request failed. Only the first error is kept.
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

    /// Returns the result for the caller. An error takes precedence over refusals, because the
    /// failed segment may have been free.
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
    /// Returns the index of the segment. The first segment has index 0.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    async fn run_and_release<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let work = runs::within(iter::once(self.to_run()), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// Returns the plain guard, which still holds the segment but does not report its index.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// Releases the segment, and waits until the store has confirmed the release. See
    /// [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::release`].
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
