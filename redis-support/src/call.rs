//! Maps lock operations to calls of Lua scripts.

mod member;

use std::fmt;
use std::sync::Arc;

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, Fingerprint, Lease, Mode};

use crate::driver::Run;
use crate::layout::{Layout, Place};
use crate::script::Script;
use crate::words::{Shape, Words};

/// A script with its keys and arguments. Clones share the keys and arguments. `Debug` does not show
/// the arguments, because they contain lease IDs.
///
/// ```
/// use leasehold_core::LockKey;
/// use leasehold_redis_support::{Call, Layout, Script};
///
/// let call = Call::inspect(&Layout::default(), &LockKey::new("invoice:42")?);
/// assert_eq!(call.script(), Script::Inspect);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Call {
    shape: Shape,
    words: Arc<Words>,
}

/// The keys that every claim reads. The first few keys show whether other clients are involved.
const WANTED: [Place<'_>; 7] = [
    Place::Lock,
    Place::Fence,
    Place::Held,
    Place::Queue,
    Place::Revoke,
    Place::Places,
    Place::News,
];

/// The keys that contain the holders and waiters to show to an operator.
const SHOWN: [Place<'_>; 7] = [
    Place::Lock,
    Place::Fence,
    Place::Held,
    Place::Units,
    Place::News,
    Place::Queue,
    Place::Places,
];

impl Call {
    /// The maximum number of locks in one call. While the call runs, the server does not serve any
    /// other client.
    pub const MAX_TOGETHER: usize = 64;

    /// Returns the call that tries to acquire a lock.
    ///
    /// If the client waits for a mutex and listens to `channel`, it is notified on this channel
    /// when a release reserves the mutex for it.
    pub fn acquire(layout: &Layout, claim: &Claim, channel: Option<&str>) -> Self {
        let lease = claim.lease();
        match lease.mode() {
            Mode::Exclusive => {
                let words = Words::of_mutex(layout, claim).wanted(claim, channel);
                Self::new(words.shape(Script::Acquire), words)
            }
            Mode::Units { units, limit } => {
                let (of, id) = (layout.places(claim.key()), lease.id().secret());
                let words = Words::of(&of, &WANTED)
                    .keys(&of, &[Place::Units, Place::NewsFor(&id), Place::Contended])
                    .word(&id)
                    .millis(lease.ttl())
                    .number(units)
                    .number(limit)
                    .description(lease)
                    .queued(claim);
                Self::new(words.shape(Script::AcquireUnits), words)
            }
        }
    }

    /// Returns the call that acquires either all or none of several locks. Returns `None` for
    /// claims of permits, and for more than [`MAX_TOGETHER`](Self::MAX_TOGETHER) claims.
    ///
    /// The locks may be in different hash slots, so a cluster does not support this call.
    pub fn acquire_all(layout: &Layout, claims: &[Claim]) -> Option<Self> {
        let whole = claims.iter().all(|claim| claim.mode().is_mutex());
        if !whole || claims.len() > Self::MAX_TOGETHER {
            return None;
        }
        let with_keys =
            |words: Words, claim: &Claim| words.keys(&layout.places(claim.key()), &WANTED);
        let with_args = |words: Words, claim: &Claim| {
            let lease = claim.lease();
            words.value(lease).millis(lease.ttl()).id(lease)
        };
        let words = claims.iter().fold(Words::default(), with_keys);
        let words = claims.iter().fold(words, with_args);
        Some(Self::new(words.shape(Script::AcquireAll), words))
    }

    /// Returns the call that renews a lease.
    pub fn renew(layout: &Layout, lease: &Lease) -> Self {
        let of = layout.places(lease.key());
        match lease.mode() {
            Mode::Exclusive => {
                let words = Words::of(&of, &[Place::Lock, Place::Revoke]);
                let words = words.value(lease).millis(lease.ttl());
                Self::new(words.shape(Script::Renew).with_essential(1), words)
            }
            Mode::Units { units, .. } => {
                let keys = [
                    Place::Held,
                    Place::Units,
                    Place::Queue,
                    Place::Places,
                    Place::News,
                    Place::Revoke,
                    Place::Lock,
                    Place::Contended,
                ];
                let words = Words::of(&of, &keys)
                    .id(lease)
                    .millis(lease.ttl())
                    .number(units)
                    .description(lease);
                Self::new(words.shape(Script::RenewUnits).with_essential(2), words)
            }
        }
    }

    /// Returns the call that releases a lease.
    pub fn release(layout: &Layout, lease: &Lease) -> Self {
        let of = layout.places(lease.key());
        match lease.mode() {
            Mode::Exclusive => {
                let keys = [Place::Lock, Place::Queue, Place::Places, Place::News];
                let words = Words::of(&of, &keys).value(lease).id(lease);
                Self::new(words.shape(Script::Release).with_essential(1), words)
            }
            Mode::Units { .. } => {
                let keys = [Place::Held, Place::Units, Place::Queue, Place::Places, Place::News];
                let words = Words::of(&of, &keys).id(lease);
                Self::new(words.shape(Script::ReleaseUnits).with_essential(2), words)
            }
        }
    }

    /// Returns the call that reads holders and waiters.
    pub fn inspect(layout: &Layout, key: &LockKey) -> Self {
        let words = Words::of(&layout.places(key), &SHOWN);
        Self::new(words.shape(Script::Inspect), words)
    }

    /// Returns the call that checks whether the server grants locks.
    pub fn ping(layout: &Layout) -> Self {
        let words = Words::default().key(&layout.nothing());
        Self::new(words.shape(Script::Ping), words)
    }

    /// Returns the store call with which leases are revoked.
    pub fn force_release(layout: &Layout, key: &LockKey, only: Option<Fingerprint>) -> Self {
        let of = layout.places(key);
        let words = Words::of(&of, &SHOWN).keys(&of, &[Place::Revoke]).meant(only);
        Self::new(words.shape(Script::ForceRelease), words)
    }

    /// Returns the call that requests the revocation of leases.
    pub fn request_revocation(layout: &Layout, key: &LockKey, only: Option<Fingerprint>) -> Self {
        let keys = [Place::Lock, Place::Held, Place::Units, Place::Revoke, Place::Contended];
        let words = Words::of(&layout.places(key), &keys).meant(only);
        Self::new(words.shape(Script::Revoke), words)
    }

    fn new(shape: Shape, words: Words) -> Self {
        Self { shape, words: Arc::new(words) }
    }

    /// Returns the call with only its required keys, or `None` if it does not have optional keys.
    /// Without the optional keys, the script does not use them. A required key exists for as long
    /// as the lease. While a slot migrates, a server does not run scripts with missing keys.
    pub(crate) fn with_essential_keys(&self) -> Option<Self> {
        let Shape { keys, essential, .. } = &self.shape;
        let kept = keys.start..keys.start + essential;
        (kept != *keys).then(|| Self {
            shape: Shape { keys: kept, ..self.shape.clone() },
            words: Arc::clone(&self.words),
        })
    }

    /// Returns the script in a form that can run.
    pub(crate) fn run(&self) -> Run<'_> {
        Run { shape: &self.shape, words: &self.words }
    }

    /// Returns the script.
    pub fn script(&self) -> Script {
        self.shape.script
    }

    /// Returns all keys that the script uses. All keys of a lock are in one hash slot.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.words.in_range(self.shape.keys.clone())
    }

    /// Returns the arguments after the keys. The arguments may contain a lease ID.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.words.in_range(self.shape.args.clone())
    }
}

impl Words {
    /// Creates the words of a call that acquires a mutex.
    fn of_mutex(layout: &Layout, claim: &Claim) -> Self {
        let (of, id) = (layout.places(claim.key()), claim.id().secret());
        Self::of(&of, &WANTED).keys(&of, &[Place::NewsFor(&id), Place::Contended])
    }

    /// Adds the arguments of a call that acquires a mutex.
    fn wanted(self, claim: &Claim, channel: Option<&str>) -> Self {
        let lease = claim.lease();
        self.value(lease)
            .millis(lease.ttl())
            .number(claim.spare_tokens())
            .id(lease)
            .queued(claim)
            .word(channel.unwrap_or("-"))
    }

    /// Adds the lifetime and the reservation of the claim's queue entry.
    fn queued(self, claim: &Claim) -> Self {
        self.millis(claim.queue_ttl().unwrap_or_default())
            .millis(claim.reservation().unwrap_or_default())
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name of a key for a single claim contains the claim's ID.
        let keys: Vec<_> = self.keys().filter_map(|key| key.split('#').next()).collect();
        f.debug_struct("Call")
            .field("script", &self.script())
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::Description;
    use leasehold_core::backend::{QuorumConfiguration, Vote};

    use super::*;

    fn lease() -> Lease {
        Lease::new(&LockKey::new("k").unwrap(), Duration::from_micros(1_500))
    }

    fn arg(call: &Call, index: usize) -> String {
        call.args().nth(index).unwrap().to_owned()
    }

    #[test]
    fn the_value_is_the_id_and_the_description() {
        let bare = lease();
        let described = lease().with_description(Some(Description::new("web-1/42").unwrap()));
        let value = |lease: &Lease| arg(&Call::renew(&Layout::default(), lease), 0);

        assert_eq!(value(&bare), bare.id().secret());
        assert_eq!(value(&described), format!("{} web-1/42", described.id().secret()));
    }

    #[test]
    fn ttls_are_rounded_up() {
        assert_eq!(arg(&Call::renew(&Layout::default(), &lease()), 1), "2");
    }

    #[test]
    fn without_the_keys_that_may_be_missing_the_arguments_are_the_same() {
        let call = Call::release(&Layout::default(), &lease());
        let less = call.with_essential_keys().unwrap();

        assert!(less.keys().eq(["lock:k"]) && call.keys().len() == 4);
        assert!(less.args().eq(call.args()));
        assert!(less.with_essential_keys().is_none());
    }

    #[test]
    fn vote_adds_the_membership_to_the_acquisition() {
        let (layout, claim) = (Layout::default(), Claim::new(lease()));
        let configuration = QuorumConfiguration::new(["a"], Duration::from_secs(1));
        let vote = Vote::new(claim.clone(), configuration.clone()).with_requested_token(7);

        let plain = Call::acquire(&layout, &claim, None);
        let vote = Call::vote(&layout, &vote, None);

        assert_eq!((plain.script(), vote.script()), (Script::Acquire, Script::Vote));
        assert!(vote.keys().eq(plain.keys().chain(["lock:~member"])));
        let added = [configuration.as_str(), "7", "lock:~floor"];
        assert!(vote.args().eq(plain.args().chain(added)));
    }

    #[test]
    fn raise_adds_the_minimum_token_to_the_renewal() {
        let (layout, lease) = (Layout::default(), lease());

        let (plain, raise) = (Call::renew(&layout, &lease), Call::raise(&layout, &lease, 9));

        assert_eq!((plain.script(), raise.script()), (Script::Renew, Script::Raise));
        assert!(raise.keys().eq(plain.keys().chain(["lock:~fence"])));
        assert!(raise.args().eq(plain.args().chain(["9", "lock:~floor"])));
    }

    #[test]
    fn debug_keeps_the_id_to_itself() {
        let (layout, claim) = (Layout::default(), Claim::new(lease()));
        let calls = [Call::renew(&layout, claim.lease()), Call::acquire(&layout, &claim, None)];
        let shown = format!("{calls:?}");

        assert!(!shown.contains(&claim.id().secret()), "{shown}");
    }
}
