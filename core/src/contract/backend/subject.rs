//! What a watch observes.

use crate::contract::backend::{Claim, Lease};
use crate::contract::key::LockKey;

/// What a [watch](crate::backend::LockBackend::watch) observes: a key, the events that a waiter
/// needs, or the events that a holder needs.
///
/// | event | key | claim | lease |
/// | --- | --- | --- | --- |
/// | any client releases the key, or leaves its queue | yes | yes | no |
/// | the first holder of a key with permits acquires it, or changes its description | yes | no | no |
/// | the claim can be granted, if the store [notifies](crate::backend::WokenBy) waiters individually | no | yes | no |
/// | another client ends the lease or requests a revocation | optional | optional | yes; for a lease on permits, only if the store can notify its holder |
///
/// A watch may report more events than it must, because a notification is only a hint. But the
/// watch of a lease must not fire whenever the key is acquired or released. Otherwise, each
/// holder's client would contact the store after every such event, and would not hand off its lease
/// in the meantime.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Lease, Mode, Subject};
///
/// let key = LockKey::new("k")?;
/// let lease = Lease::new(&key, Duration::from_secs(30));
/// assert_eq!(Subject::Lease(&lease).watched_key(), Some(&key));
/// let permit = lease.with_mode(Mode::READER);
/// assert_eq!(Subject::Lease(&permit).watched_key(), None);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Subject<'a> {
    /// All changes of a key.
    Key(&'a LockKey),
    /// The events that the caller of a claim waits for. A store with a queue can limit the watch to
    /// changes of the claims that are ahead of this claim.
    Claim(&'a Claim),
    /// The events that concern the holder of a lease.
    Lease(&'a Lease),
}

impl<'a> Subject<'a> {
    /// Returns the key.
    pub fn key(self) -> &'a LockKey {
        match self {
            Self::Key(key) => key,
            Self::Claim(claim) => claim.key(),
            Self::Lease(lease) => lease.key(),
        }
    }

    /// Returns the key whose changes a store without more precise notifications watches for this
    /// subject.
    ///
    /// Returns `None` for a lease on permits, because each holder would be notified whenever
    /// another holder acquires or releases permits.
    pub fn watched_key(self) -> Option<&'a LockKey> {
        match self {
            Self::Lease(lease) if !lease.mode().is_mutex() => None,
            subject => Some(subject.key()),
        }
    }
}
