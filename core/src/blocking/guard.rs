//! The guard of the blocking locks.

use std::fmt;
use std::iter;
use std::time::Duration;

use super::background::{Background, Ending};
use crate::clock::Instant;
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::loss::{LeaseState, LossReason};
use crate::contract::token::FencingToken;
use crate::engine::held_by_caller;
use crate::locks::guard::LockGuard;

/// A guard that holds a lease on a key. This is the blocking version of [`LockGuard`].
///
/// The background thread renews the lease while the guard exists. Dropping the guard releases the
/// lock and blocks for up to two seconds while it waits for the store to confirm the release. If
/// the release fails during the drop, the error is only logged. In async code, the drop does not
/// block, and the background thread completes the release.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let guard = LockClient::new(MemoryBackend::new())?.mutex("invoice:42")?.lock()?;
/// guard.ensure_held(Duration::from_secs(1))?; // before a step that takes a second
/// println!("UPDATE … WHERE fence <= {}", guard.token().as_i64());
/// guard.release()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    // Dropped before `background`, so that the drop of `background` waits for the release.
    guard: LockGuard,
    background: Ending,
}

impl Guard {
    pub(super) fn new(guard: LockGuard, background: &Background) -> Self {
        Self { guard, background: Ending::new(background) }
    }

    /// Returns the key that the guard holds.
    pub fn key(&self) -> &LockKey {
        self.guard.key()
    }

    /// Returns the fencing token. Send the token with every write to the protected resource.
    pub fn token(&self) -> &FencingToken {
        self.guard.token()
    }

    /// Returns how many of the key's units the guard holds. The guard of a mutex or a reader holds
    /// 1 unit, and the guard of a semaphore holds 1 unit per permit.
    pub fn units(&self) -> u32 {
        self.guard.units()
    }

    /// Returns the instant, on the [client's clock](super::LockClient::now), at which the lease is
    /// considered lost unless it is renewed first. See [`LockGuard::deadline`].
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// Returns the time until the [deadline](Self::deadline), or zero if the lease is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns the state of the lease. The state is known locally, so this method does no I/O.
    pub fn state(&self) -> LeaseState {
        self.guard.state()
    }

    /// Returns whether the lease is still valid. This method reads local state and does no I/O.
    ///
    /// A result of `true` may be out of date by the time the caller acts on it. A result of `false`
    /// is final.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Checks that the lease is valid, and that at least `min_left` remains before its deadline.
    /// The method checks the local deadline and does no I/O.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease is lost, and
    /// [`ErrorKind::ExpiresSoon`](crate::ErrorKind::ExpiresSoon) if less than `min_left` remains.
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.guard.ensure_held(min_left)
    }

    /// Blocks until the lease is lost or `wait` has elapsed. Returns the reason for the loss, or
    /// `None` if the lease was not lost within `wait`.
    ///
    /// A lease is considered lost after its deadline, even if the store or the network hangs. Other
    /// threads can use the guard while this method blocks. See [`LockGuard::lost`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn wait_lost(&self, wait: Duration) -> Result<Option<LossReason>, Error> {
        Ok(self.background.wait_for(self.guard.lost(), wait)?.flatten())
    }

    /// Returns whether a client has [asked](super::LockClient::request_revocation) the key's
    /// holders to finish early. See [`LockGuard::revocation_requested`].
    pub fn is_revocation_requested(&self) -> bool {
        self.guard.is_revocation_requested()
    }

    /// Renews the lease now with the new TTL `ttl`. The method blocks until the store has replied.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockGuard::extend`], and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.background.block_on(self.guard.extend(ttl))
    }

    /// Returns some of the guard's permits to the semaphore. The method blocks until the store has
    /// replied.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockGuard::give_back`], and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn give_back(&self, permits: u32) -> Result<(), Error> {
        self.background.block_on(self.guard.give_back(permits))
    }

    /// Releases the lock and blocks until the store has confirmed the release. The method blocks
    /// for at most five seconds and never past the [deadline](Self::deadline).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockGuard::release`], and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super). The guard is consumed even if the release fails, and the release continues in
    /// the background.
    pub fn release(self) -> Result<(), Error> {
        self.background.take().block_on(self.guard.release())
    }

    /// Runs `work`, then releases the lock. If only the reply to the release is lost, the method
    /// still returns the result of `work`.
    pub(super) fn run_and_release<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = self.run(|| work(&self));
        // The async version checks whether the lease was lost before it returns `output`.
        self.background.take().block_on(self.guard.run_and_release(async |_guard| output))
    }

    /// Runs `work` under the lock, so that a nested call for the same lock fails instead of waiting
    /// for itself.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        held_by_caller::sync_within(iter::once(self.guard.to_run()), work)
    }

    pub(super) fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.background.block_on(self.guard.proclaim(value))
    }

    pub(super) fn proclaimed(&self) -> Description {
        self.guard.proclaimed()
    }

    pub(super) fn share_with_readers(self) -> Result<Self, Error> {
        self.background.block_on(self.guard.share_with_readers())?;
        Ok(self)
    }
}

impl Background {
    /// Blocks until `call` returns a guard or an error.
    pub(super) fn lock<E: From<Error>>(
        &self,
        call: impl Future<Output = Result<LockGuard, E>>,
    ) -> Result<Guard, E> {
        Ok(Guard::new(self.block_on(call)?, self))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
