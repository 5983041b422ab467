//! The guard of a multi-lock.

use std::fmt;
use std::future::{pending, poll_fn};
use std::mem;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use futures_util::stream::{FuturesUnordered, StreamExt};

use tracing::{Instrument, Span};

use crate::clock::Instant;
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::{IntoKey, LockKey};
use crate::contract::loss::{LeaseState, LossReason};
use crate::engine::held_by_caller;
use crate::locks::guard::{LockGuard, done};

/// A guard that holds all parts of a [`MultiLock`](crate::MultiLock).
///
/// While the guard exists, the watchdog renews each lease, unless [renewal is
/// off](crate::RenewalMode::Off). If any part is lost, the guard is considered lost. After the loss
/// of one part, the remaining parts are still renewed until the guard is released.
///
/// Each part is a [`LockGuard`] with a fencing token. Dropping the guard releases all parts in the
/// background, in reverse key order.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let guard = client.multi_lock().mutexes(["from", "to"])?.lock().await?;
///
/// let lost = guard.lost();
/// tokio::spawn(async move {
///     // The task ends with the guard.
///     if let Some((key, reason)) = lost.await {
///         eprintln!("{key} is lost: {reason}");
///     }
/// });
/// guard.ensure_held(Duration::from_secs(1))?;
/// let from = guard.get("from").expect("it is a part").token().number();
/// # let _ = from;
/// guard.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a guard releases its locks"]
pub struct MultiGuard {
    /// Sorted by key.
    guards: Vec<LockGuard>,
    /// Whether all requested parts have been acquired.
    complete: bool,
}

impl MultiGuard {
    /// Creates a guard from all its parts.
    pub(super) fn of(guards: Vec<LockGuard>) -> Self {
        Self { guards, complete: true }
    }

    /// Creates a guard without parts. If the guard is dropped before it is
    /// [complete](Self::complete), its parts are released without waiting for `min_hold`.
    pub(super) fn taking() -> Self {
        Self { guards: Vec::new(), complete: false }
    }

    pub(super) fn add(&mut self, guard: LockGuard) {
        self.guards.push(guard);
    }

    /// Marks the guard as complete, so that no more parts can be added.
    pub(super) fn complete(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Releases the parts of a failed acquisition without waiting for `min_hold`.
    pub(super) async fn give_back(self) {
        self.guards.iter().for_each(LockGuard::waive_min_hold);
        // The caller gets the error from the acquisition. The background task retries failed
        // releases.
        drop(self.release().await);
    }

    /// Returns the guards of the parts, sorted by key.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Returns the guard for the part named `key`, or `None` if there is no part with this key.
    pub fn get(&self, key: impl IntoKey) -> Option<&LockGuard> {
        let key = key.into_key().ok()?;
        self.guards.iter().find(|guard| *guard.key() == key)
    }

    /// Returns the earliest [deadline](LockGuard::deadline) of all parts. The guard is considered
    /// lost at the earliest deadline unless the part with that deadline is renewed first.
    pub fn deadline(&self) -> Instant {
        self.guards.iter().map(LockGuard::deadline).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the time until the earliest deadline, or zero if any part is lost.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Returns whether all leases are valid. This method reads local state and does no I/O.
    ///
    /// A result of `true` may be out of date by the time the caller acts on it. A result of `false`
    /// is final.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(LockGuard::is_held)
    }

    /// Checks that every lease is valid, and that at least `min_left` remains before each deadline.
    /// The check uses the local deadlines and does no I/O.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`] if any lease is lost, and [`ErrorKind::ExpiresSoon`] if
    /// less than `min_left` remains for any lease. [`Error::key`] returns that lease's key.
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.guards.iter().try_for_each(|guard| guard.ensure_held(min_left))
    }

    /// Waits until any part is lost. Returns the lost part's key and the reason, or `None` if the
    /// guard is released or dropped first.
    ///
    /// Like [`LockGuard::lost`], the future completes no later than the first poll after the
    /// earliest deadline. The future does not borrow the guard and does not keep the leases or the
    /// client alive.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A loss is permanent, so the next call reports it again.
    pub fn lost(&self) -> impl Future<Output = Option<(LockKey, LossReason)>> + Send + 'static {
        let part = |guard: &LockGuard| {
            let key = guard.key().clone();
            guard.lost().map(|lost| lost.map(|reason| (key, reason))).boxed()
        };
        let mut parts: Vec<_> = self.guards.iter().map(part).collect();
        // Poll every part each time, because a part compares its deadline with the clock only when
        // it is polled.
        poll_fn(move |cx| {
            let mut lost = None;
            parts.retain_mut(|part| match part.poll_unpin(cx) {
                Poll::Ready(ended) => {
                    lost = lost.take().or(ended);
                    false
                }
                Poll::Pending => true,
            });
            if lost.is_some() || parts.is_empty() { Poll::Ready(lost) } else { Poll::Pending }
        })
    }

    /// Waits until any lease is [unconfirmed](crate::LeaseState::Unconfirmed) or lost, then returns
    /// that lease's key and state.
    ///
    /// The renewal of an unconfirmed lease is overdue. Use this method to finish work before a
    /// lease is lost.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. As long as any lease is unconfirmed or lost, every call returns
    /// immediately.
    pub async fn unconfirmed(&self) -> (LockKey, LeaseState) {
        let parts = self
            .guards
            .iter()
            .map(|part| Box::pin(async move { (part.key().clone(), part.unconfirmed().await) }));
        select_all(parts).await.0
    }

    /// Waits until a client [asks](crate::LockClient::request_revocation) the holders of any part
    /// to finish early. Returns that part's key, or `None` if the guard is released or dropped
    /// first. See [`LockGuard::revocation_requested`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. A revocation request is never withdrawn, so the next call
    /// reports it again.
    pub fn revocation_requested(&self) -> impl Future<Output = Option<LockKey>> + Send + 'static {
        let part = |guard: &LockGuard| {
            let (key, asked) = (guard.key().clone(), guard.revocation_requested());
            asked.map(|asked| asked.then_some(key)).boxed()
        };
        let mut parts: FuturesUnordered<_> = self.guards.iter().map(part).collect();
        async move {
            while let Some(asked) = parts.next().await {
                if asked.is_some() {
                    return asked;
                }
            }
            None
        }
    }

    /// Returns whether a client has asked the holders of any part to finish early.
    pub fn is_revocation_requested(&self) -> bool {
        self.guards.iter().any(LockGuard::is_revocation_requested)
    }

    /// Renews all leases now with the new TTL `ttl`. See [`LockGuard::extend`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`] if any part is lost, and otherwise the first error from
    /// [`LockGuard::extend`]. If one part fails to renew, the remaining parts are still renewed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the store may have renewed some of the
    /// leases. No local deadline is later than the lease's expiry in the store.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        first_error(join_all(self.guards.iter().map(|guard| guard.extend(ttl))).await)
    }

    /// Runs `future` as long as all parts are held. If any part is lost, `future` is dropped before
    /// it finishes. The guard is kept.
    ///
    /// Like [`LockGuard::while_held`], this method gives `future` a grace period of
    /// [`loss_grace`](crate::LockOptions::loss_grace) to finish.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`] if any part was lost before `future` finished.
    /// [`Error::key`] returns the lost part's key.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `future`. The guard is kept.
    pub async fn while_held<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let error =
            |part: &LockGuard, reason| lost_error(&(part.key().clone(), reason), Operation::Run);
        let ends = self.guards.iter().map(|part| {
            Box::pin(async move {
                match part.lost_for_good().await {
                    Some(reason) => (part, reason),
                    None => pending().await,
                }
            })
        });
        let loss = |part| LockGuard::loss(part).map(|reason| (part, reason));
        tokio::select! {
            biased;
            ((part, reason), ..) = select_all(ends) => Err(error(part, reason)),
            output = future.instrument(self.span()) => match self.guards.iter().find_map(loss) {
                Some((part, reason)) => Err(error(part, reason)),
                None => Ok(output),
            },
        }
    }

    /// Nests the spans of all parts and returns the innermost span, so that log events of the work
    /// contain every token.
    fn span(&self) -> Span {
        let spans = self.guards.iter().fold(None, |outer, guard| Some(guard.span(outer.as_ref())));
        spans.unwrap_or_else(Span::none)
    }

    pub(crate) async fn run_and_release<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> T,
    ) -> Result<T, Error> {
        let work = held_by_caller::within(self.guards.iter().map(LockGuard::to_run), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// Releases all parts in reverse key order and waits until the store has confirmed the
    /// releases.
    ///
    /// The releases run concurrently. If one release fails, the remaining parts are still released.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`] if any part was lost before the release, and otherwise the
    /// first error from [`LockGuard::release`]. If the store does not reply, the method returns an
    /// error after at most five seconds. The guard is consumed even if the release fails.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the releases continue in the
    /// background.
    pub async fn release(mut self) -> Result<(), Error> {
        let releases = mem::take(&mut self.guards).into_iter().rev().map(LockGuard::release);
        first_error(join_all(releases).await)
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            if !self.complete {
                guard.waive_min_hold();
            }
            drop(guard);
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiGuard")?;
        f.debug_list().entries(&self.guards).finish()
    }
}

/// Returns the first `LeaseLost` error, or the first error if no part was lost. A missing reply for
/// one part must not hide the loss of another part.
fn first_error(outcomes: Vec<Result<(), Error>>) -> Result<(), Error> {
    let errors = outcomes.into_iter().filter_map(Result::err);
    errors.min_by_key(|error| error.kind() != ErrorKind::LeaseLost).map_or(Ok(()), Err)
}

pub(super) fn lost_error((key, reason): &(LockKey, LossReason), operation: Operation) -> Error {
    Error::lost(*reason).with_operation(operation).with_key(key)
}
