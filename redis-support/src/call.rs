//! Maps lock operations to calls of Lua scripts.

mod member;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Claim, Fingerprint, Lease, Patience, Share};
use leasehold_core::{LockKey, LockOptions};

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
        let (of, lease) = (layout.places(claim.key()), claim.lease());
        let id = lease.id().secret();
        let (place, patience) = match claim.patience() {
            Patience::Waits => (LockOptions::PLACE_TTL.min(lease.ttl()), Patience::RESERVATION),
            _ => (claim.place().unwrap_or_default(), Duration::ZERO),
        };
        match lease.share() {
            Share::Whole => {
                let charter = claim.charter().map(|charter| (charter, layout.member()));
                let words = Words::of(&of, &WANTED).keys(&of, &[Place::NewsFor(&id), Place::Crowd]);
                let words = match &charter {
                    Some((_, member)) => words.key(&member.record),
                    None => words,
                };
                let words = words
                    .value(lease)
                    .millis(lease.ttl())
                    .number(claim.spare_tokens())
                    .word(&id)
                    .millis(place)
                    .millis(patience)
                    .word(channel.unwrap_or("-"));
                if let Some((charter, member)) = &charter {
                    let words = words.word(charter.as_str()).number(claim.least_token());
                    let words = words.word(&member.floor);
                    return Self::new(words.shape(Script::AcquireUnderCharter), words);
                }
                Self::new(words.shape(Script::Acquire), words)
            }
            Share::Units { units, limit } => {
                let words = Words::of(&of, &WANTED)
                    .keys(&of, &[Place::Units, Place::NewsFor(&id), Place::Crowd])
                    .word(&id)
                    .millis(lease.ttl())
                    .number(units)
                    .number(limit)
                    .description(lease)
                    .millis(place)
                    .millis(patience);
                Self::new(words.shape(Script::AcquireUnits), words)
            }
        }
    }

    /// Returns the call that acquires either all or none of several locks. Returns `None` for
    /// claims of permits, and for more than [`MAX_TOGETHER`](Self::MAX_TOGETHER) claims.
    ///
    /// The locks may be in different hash slots, so a cluster does not support this call.
    pub fn acquire_all(layout: &Layout, claims: &[Claim]) -> Option<Self> {
        let whole = claims.iter().all(|claim| claim.share().is_whole());
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
        match lease.share() {
            Share::Whole if lease.floor() > 0 => {
                let words = Words::of(&of, &[Place::Lock, Place::Revoke, Place::Fence]);
                let words = words.value(lease).millis(lease.ttl()).number(lease.floor());
                let words = words.word(&layout.member().floor);
                Self::new(words.shape(Script::RaiseFloor), words)
            }
            Share::Whole => {
                let words = Words::of(&of, &[Place::Lock, Place::Revoke]);
                let words = words.value(lease).millis(lease.ttl());
                Self::new(words.shape(Script::Renew).with_essential(1), words)
            }
            Share::Units { units, .. } => {
                let keys = [
                    Place::Held,
                    Place::Units,
                    Place::Queue,
                    Place::Places,
                    Place::News,
                    Place::Revoke,
                    Place::Lock,
                    Place::Crowd,
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
        match lease.share() {
            Share::Whole => {
                let keys = [Place::Lock, Place::Queue, Place::Places, Place::News];
                let words = Words::of(&of, &keys).value(lease).id(lease);
                Self::new(words.shape(Script::Release).with_essential(1), words)
            }
            Share::Units { .. } => {
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
        let keys = [Place::Lock, Place::Held, Place::Units, Place::Revoke, Place::Crowd];
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
    use leasehold_core::Description;
    use leasehold_core::backend::Charter;

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
    fn a_charter_takes_a_script_and_words_of_its_own() {
        let (layout, charter) = (Layout::default(), Charter::new(["a"], Duration::from_secs(1)));
        let plain = Claim::new(lease()).with_least_token(7);
        let under = plain.clone().with_charter(charter.clone());
        let [plain, under] = [plain, under].map(|claim| Call::acquire(&layout, &claim, None));

        assert_eq!(under.script(), Script::AcquireUnderCharter);
        assert!(under.keys().eq(plain.keys().chain(["lock:~member"])));
        assert!(under.args().skip(7).eq([charter.as_str(), "7", "lock:~floor"]));
        assert_eq!((plain.script(), plain.args().len()), (Script::Acquire, 7));
    }

    #[test]
    fn a_floor_takes_a_script_of_its_own() {
        let renew = |lease: &Lease| Call::renew(&Layout::default(), lease);
        let (plain, raised) = (renew(&lease()), renew(&lease().with_floor(9)));

        assert_eq!((plain.script(), raised.script()), (Script::Renew, Script::RaiseFloor));
        assert!(raised.keys().take(2).eq(plain.keys()) && raised.keys().len() == 3);
        assert!(raised.args().skip(2).eq(["9", "lock:~floor"]));
    }

    #[test]
    fn debug_keeps_the_id_to_itself() {
        let (layout, claim) = (Layout::default(), Claim::new(lease()));
        let calls = [Call::renew(&layout, claim.lease()), Call::acquire(&layout, &claim, None)];
        let shown = format!("{calls:?}");

        assert!(!shown.contains(&claim.id().secret()), "{shown}");
    }
}
