//! The proof of a lease.

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
use crate::engine::runs;
use crate::locks::guard::LockGuard;

/// The proof of a lease on a key: the [`LockGuard`] of code without a runtime.
///
/// While it lives, the lease is renewed in the background. Dropping it is a [release](Self::release) whose errors go to the log: it
/// blocks until the store has confirmed it, for two seconds at most. In async code it does not block, and the background thread goes
/// on with it.
///
/// See [`Mutex`](super::Mutex) for an example.
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    // Dropped first, so that the background waits for its release.
    guard: LockGuard,
    background: Ending,
}

impl Guard {
    pub(super) fn new(guard: LockGuard, background: &Background) -> Self {
        Self { guard, background: Ending::new(background) }
    }

    /// The key that is held.
    pub fn key(&self) -> &LockKey {
        self.guard.key()
    }

    /// The fencing token, to be sent along with every write to the protected resource.
    pub fn token(&self) -> &FencingToken {
        self.guard.token()
    }

    /// How many units of the key are held: 1 for a mutex or a reader.
    pub fn units(&self) -> u32 {
        self.guard.units()
    }

    /// The instant, on the [client's clock](super::LockClient::now), from which the lease counts as
    /// lost unless it is renewed before. See [`LockGuard::deadline`].
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// How long until the [deadline](Self::deadline); zero once the lease is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// The state of the lease, by local knowledge and without I/O.
    pub fn state(&self) -> LeaseState {
        self.guard.state()
    }

    /// Whether the lease is in force, by local knowledge and without I/O. False is final.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Makes sure, without I/O, that the lease is in force for at least `min_left`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::ensure_held`].
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.guard.ensure_held(min_left)
    }

    /// Blocks until the lease is lost, and tells why; `None` if it was not lost within `wait`.
    ///
    /// The call ends at the latest when the deadline has passed, even if the store and the network
    /// hang. Other threads may use the guard meanwhile. See [`LockGuard::lost`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn wait_lost(&self, wait: Duration) -> Result<Option<LossReason>, Error> {
        Ok(self.background.wait_for(self.guard.lost(), wait)?.flatten())
    }

    /// Whether a client has [asked](super::LockClient::request_revocation) the holders of the key to finish
    /// early. See [`LockGuard::revocation_requested`].
    pub fn is_revocation_requested(&self) -> bool {
        self.guard.is_revocation_requested()
    }

    /// Renews the lease now, with another TTL from now on. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::extend`], and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in
    /// [async code](super).
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        self.background.block_on(self.guard.extend(ttl))
    }

    /// Gives back some of the permits that it holds. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::give_back`], and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn give_back(&self, permits: u32) -> Result<(), Error> {
        self.background.block_on(self.guard.give_back(permits))
    }

    /// Ends the lease, and blocks until the store has confirmed it, for five seconds at most and no longer than until the
    /// [deadline](Self::deadline).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::release`], and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in
    /// [async code](super). After any error the guard is gone just the same, and the
    /// release goes on in the background.
    pub fn release(self) -> Result<(), Error> {
        self.background.take().block_on(self.guard.release())
    }

    /// Runs `work`, then releases. A release that gets no answer does not take the result away.
    pub(super) fn run_and_release<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = self.run(|| work(&self));
        // A loss until now is found before the output is looked at.
        self.background.take().block_on(self.guard.run_and_release(async |_guard| output))
    }

    /// Runs `work` under the lock.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        runs::sync_within(iter::once(self.guard.to_run()), work)
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
    /// Blocks until the call has a guard or fails.
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
