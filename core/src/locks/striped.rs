//! A resource in segments, of which callers take any one.

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

/// A resource that many want at once, split into segments: a caller takes any one that is free, and is told which.
///
/// A stock of 10,000 pieces that is sold by one counter in the store sells one piece at a time. Split into ten
/// segments of 1,000 pieces each, it sells ten at a time: the holder of segment 3 sells from the third counter.
/// The caller gives the segments their meaning, and all callers must agree on their number.
///
/// Each segment is the [mutex](crate::LockClient::mutex) `<key>/<index>`, with the lease and the fencing token of
/// that key. Tokens of different segments have no order.
///
/// A caller looks at one segment after the other, from a random one on, and takes the first that is free. If none is, and it may
/// wait, it waits in line for one of them, and looks at the others again after each pause of [`LockOptions::retry`]: by default after
/// 25 ms at first, and at the latest after a second. So with many segments a caller that finds them all held makes many requests:
/// take no more of them than callers that are to hold one at a time.
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
#[derive(Clone)]
pub struct Striped {
    face: Face,
    segments: Arc<[LockKey]>,
}

impl Striped {
    /// The most segments: more callers at once than one store serves anyway, and each that waits makes so
    /// many requests.
    pub const MAX_SEGMENTS: u32 = 1_024;

    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
        segments: u32,
    ) -> Result<Self, Error> {
        if segments == 0 || segments > Self::MAX_SEGMENTS {
            let max = Self::MAX_SEGMENTS;
            let message = format!("a resource has 1 to {max} segments, not {segments}");
            return Err(Error::new(ErrorKind::Invalid, message).with_key(&key));
        }
        let segments = (0..segments).map(|index| key.segment(index)).collect::<Result<_, _>>()?;
        Ok(Self { face: Face::new(engine, key, options, Kind::Mutex)?, segments })
    }

    /// The same segments with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { face: self.face.with_options(options)?, ..self })
    }

    /// The key of the whole, which is never locked itself.
    pub fn key(&self) -> &LockKey {
        self.face.key()
    }

    /// The keys of the segments, by index.
    pub fn segments(&self) -> &[LockKey] {
        &self.segments
    }

    /// Waits for any segment, for as long as [`LockOptions::wait`] says.
    ///
    /// Each segment has a line of its own, and the caller waits in one of them. [`Retry::attempts`](crate::retry::Retry::attempts) counts
    /// the attempts there, and limits the looks at the others.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::lock`](crate::Mutex::lock). The failure of one segment does not keep the caller from the others, and the caller
    /// asks for the segment again meanwhile. `lock` reports the failure instead of `Timeout` if it had no segment in the end.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn lock(&self) -> Result<StripedGuard, Error> {
        let engine = self.face.engine();
        let asked_at = engine.now();
        let wait = Wait::lasting(self.face.options().wait, asked_at);
        self.take(wait).await?.in_time(engine, asked_at)
    }

    /// Makes one attempt to acquire any segment. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments are held, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock(&self) -> Result<StripedGuard, TryLockError> {
        self.take(Wait::once(self.face.engine().now())).await?.or_busy()
    }

    /// Waits to acquire any segment, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments were held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<StripedGuard, TryLockError> {
        let wait = Wait::lasting(Some(wait), self.face.engine().now());
        self.take(wait).await?.or_busy()
    }

    /// Waits to acquire any segment, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if all segments were held throughout, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock_until(&self, instant: Instant) -> Result<StripedGuard, TryLockError> {
        self.try_lock_for(instant.since(self.face.engine().now())).await
    }

    /// Runs `work` with any segment, and drops it unfinished if the lease is lost.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`lock`](Self::lock) and [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the segment is released in the background.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&StripedGuard) -> T) -> Result<T, Error> {
        self.lock().await?.run_and_release(work).await
    }

    /// Makes one attempt to acquire any segment and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
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
    /// Returns the errors of [`try_lock_for`](Self::try_lock_for) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
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

        // One after the other, so that no more than one is taken where several are free.
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

    /// Makes one attempt after the other, until one is granted.
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

    /// Waits in the line of one segment, and looks at the others after each pause: a holder that died must not keep the caller from
    /// a segment that is free.
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
                    // A look under way tells whether the other segments fail as well.
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

    /// Asks for a segment.
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

/// The answers of segments that gave no lock.
#[derive(Default)]
struct Refusals {
    /// The refusal by the holder whose lease ends first.
    soonest: Option<Busy>,
    failed: Option<Error>,
}

impl Refusals {
    /// Notes that a request failed.
    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Notes that others hold a segment.
    fn refuse(&mut self, busy: Busy) {
        let ends = |busy: &Busy| busy.remaining().unwrap_or(Duration::MAX);
        if self.soonest.as_ref().is_none_or(|soonest| ends(&busy) < ends(soonest)) {
            self.soonest = Some(busy);
        }
    }

    /// The outcome for the caller. A segment that failed may have been free, so its error counts more than the refusals of the others.
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

/// The proof of a lease on one segment: a [`LockGuard`] that knows which.
///
/// See [`Striped`] for an example.
#[must_use = "dropping a guard releases its lock"]
pub struct StripedGuard {
    guard: LockGuard,
    segment: u32,
}

impl StripedGuard {
    /// The index of the segment that is held, from 0.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    async fn run_and_release<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, Error> {
        let work = runs::within(iter::once(self.to_run()), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// Forgets which segment it is of.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    /// Ends the lease, as [`LockGuard::release`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the release continues in the background.
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
