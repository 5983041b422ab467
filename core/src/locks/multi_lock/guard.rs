//! The proof of several leases.

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
use crate::engine::runs;
use crate::locks::guard::{LockGuard, done};

/// The proof of the leases on all keys of a [`MultiLock`](crate::MultiLock).
///
/// While it lives, the watchdog renews each lease (unless that is [off](crate::RenewalMode::Off)).
/// The whole is held as long as every part is: losing one is losing the whole, though the others are
/// still renewed until it is released.
///
/// Each part is a [`LockGuard`] with a token of its own.
///
/// Dropping it hands the releases to a background task, the last key first, as dropping a [`LockGuard`] does.
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
    /// In the order of their keys.
    guards: Vec<LockGuard>,
    /// All that was asked for is there.
    complete: bool,
}

impl MultiGuard {
    /// Has all parts.
    pub(super) fn of(guards: Vec<LockGuard>) -> Self {
        Self { guards, complete: true }
    }

    /// Has no part yet. Until it is [complete](Self::complete), dropping it gives its parts back.
    pub(super) fn taking() -> Self {
        Self { guards: Vec::new(), complete: false }
    }

    pub(super) fn add(&mut self, guard: LockGuard) {
        self.guards.push(guard);
    }

    /// Nothing is to be added any more.
    pub(super) fn complete(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Ends the leases as if they had never been wanted.
    pub(super) async fn give_back(self) {
        self.guards.iter().for_each(LockGuard::waive_min_hold);
        // A failure to give back is not the caller's concern, and the background sees to it.
        drop(self.release().await);
    }

    /// The guards of the parts, in the order of their keys.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The guard of the part `key`, and so its token; `None` if that is no part.
    pub fn get(&self, key: impl IntoKey) -> Option<&LockGuard> {
        let key = key.into_key().ok()?;
        self.guards.iter().find(|guard| *guard.key() == key)
    }

    /// The earliest of the parts' [deadlines](LockGuard::deadline): from then on, the whole counts as lost
    /// unless that part is renewed before.
    pub fn deadline(&self) -> Instant {
        self.guards.iter().map(LockGuard::deadline).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// How long until the earliest deadline; zero once any part is lost.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Whether all leases are in force, by local knowledge and without I/O.
    ///
    /// True is a belief that may end while it is being acted on; false is final.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(LockGuard::is_held)
    }

    /// Makes sure that every lease is in force for at least `min_left`, if nothing happens to the store.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`] if any lease is lost, and [`ErrorKind::ExpiresSoon`] if less than `min_left` of one is left. The
    /// error names its [key](Error::key).
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.guards.iter().try_for_each(|guard| guard.ensure_held(min_left))
    }

    /// Waits until any part is lost, and tells which and why; `None` if the guard is released or dropped instead.
    ///
    /// As [`LockGuard::lost`], it ends at the latest when the earliest deadline has passed, does not borrow the guard, and keeps
    /// nothing alive.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: a loss is never withdrawn, and the next call tells of it again.
    pub fn lost(&self) -> impl Future<Output = Option<(LockKey, LossReason)>> + Send + 'static {
        let part = |guard: &LockGuard| {
            let key = guard.key().clone();
            guard.lost().map(|lost| lost.map(|reason| (key, reason))).boxed()
        };
        let mut parts: Vec<_> = self.guards.iter().map(part).collect();
        // Each poll polls every part, since each part reads the clock.
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

    /// Waits until any lease is [unconfirmed](crate::LeaseState::Unconfirmed) or lost, and tells which: time to finish early.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn unconfirmed(&self) -> (LockKey, LeaseState) {
        let parts = self
            .guards
            .iter()
            .map(|part| Box::pin(async move { (part.key().clone(), part.unconfirmed().await) }));
        select_all(parts).await.0
    }

    /// Waits until the holders of any part are [asked](crate::LockClient::request_revocation) to finish early, and tells of which; `None` if
    /// the guard is released or dropped before that. See [`LockGuard::revocation_requested`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: a request is never withdrawn, and the next call tells of it again.
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

    /// Whether the holders of any part were asked to finish early.
    pub fn is_revocation_requested(&self) -> bool {
        self.guards.iter().any(LockGuard::is_revocation_requested)
    }

    /// Renews all leases now, with another TTL from now on, as [`LockGuard::extend`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`LockGuard::extend`]: [`ErrorKind::LeaseLost`] if any part is lost, else the first that a renewal failed with. The others are
    /// extended all the same.
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::extend`].
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        first_error(join_all(self.guards.iter().map(|guard| guard.extend(ttl))).await)
    }

    /// Runs `future` for as long as all parts are held, and drops it unfinished if any is lost. The guard is kept.
    ///
    /// As [`LockGuard::while_held`], it grants [`loss_grace`](crate::LockOptions::loss_grace) to `future`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::LeaseLost`] if any part was lost before `future` had finished; the [key](Error::key) tells which.
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

    /// The span of the last part, in those of the parts before it.
    fn span(&self) -> Span {
        let spans = self.guards.iter().fold(None, |outer, guard| Some(guard.span(outer.as_ref())));
        spans.unwrap_or_else(Span::none)
    }

    pub(crate) async fn run_and_release<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> T,
    ) -> Result<T, Error> {
        let work = runs::within(self.guards.iter().map(LockGuard::to_run), work(&self));
        let output = self.while_held(work).await?;
        done(output, self.release().await)
    }

    /// Ends all leases, the last key first, and waits until the store has confirmed it.
    ///
    /// None waits for the reply about another, and none is left out because another fails.
    ///
    /// # Errors
    ///
    /// The errors of [`LockGuard::release`]: [`ErrorKind::LeaseLost`] if any part was lost before, else the
    /// first that a release failed with, after five seconds at most. After any error the guard is gone just the same.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the releases go on in the background.
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

/// The first error. Whether a part was lost weighs more than whether a request is known to have been applied.
fn first_error(outcomes: Vec<Result<(), Error>>) -> Result<(), Error> {
    let errors = outcomes.into_iter().filter_map(Result::err);
    errors.min_by_key(|error| error.kind() != ErrorKind::LeaseLost).map_or(Ok(()), Err)
}

/// The error of one whose part was lost.
pub(super) fn lost_error((key, reason): &(LockKey, LossReason), operation: Operation) -> Error {
    Error::lost(*reason).with_operation(operation).with_key(key)
}
