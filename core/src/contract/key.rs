//! The name under which locks exclude each other.

mod name;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, LazyLock};

pub use name::IntoKey;

/// The name of a lock, checked and encoded once.
///
/// A name is 1 to [`LockKey::MAX_LEN`] bytes of anything. The bytes `A-Z a-z 0-9 . _ - : / @ + = ,`
/// stand for themselves and all others are percent-encoded, so no brace, glob, blank or control byte
/// ever reaches a store, and two different names never become one key.
///
/// ```
/// use leasehold_core::LockKey;
///
/// assert_eq!(LockKey::new("invoice:42")?.as_str(), "invoice:42");
/// assert_eq!(LockKey::new("50% {off}")?.as_str(), "50%25%20%7Boff%7D");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
pub struct LockKey(Arc<Name>);

/// Behind one thin pointer, since six places have the key of a held lease.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Name {
    encoded: Box<str>,
    /// The maps of one call would else compute it ten times.
    hash: u64,
}

/// Keys hash alike in all maps of a process, and otherwise in the next process, so that no client can choose names that collide.
#[cfg(not(feature = "_simulation"))]
static HASHES: LazyLock<std::hash::RandomState> = LazyLock::new(Default::default);

/// The runs of a seed are equal in all processes.
#[cfg(feature = "_simulation")]
static HASHES: LazyLock<BuildHasherDefault<std::hash::DefaultHasher>> =
    LazyLock::new(Default::default);

impl LockKey {
    /// The longest name, in bytes before encoding.
    ///
    /// Long enough for a path or a URL; short enough that a key stays cheap in every store.
    pub const MAX_LEN: usize = 512;

    /// A key that is asked about, to see whether a store answers, and never locked.
    pub(crate) fn of_pings() -> Self {
        Self::of("leasehold-ping")
    }

    /// The encoded name, as it appears in every store.
    pub fn as_str(&self) -> &str {
        &self.0.encoded
    }

    /// The key of an encoded name.
    fn of(encoded: impl Into<Box<str>>) -> Self {
        let encoded = encoded.into();
        let hash = Self::hash_of(&encoded);
        Self(Arc::new(Name { encoded, hash }))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// The hash of the key with this encoded name.
    pub(crate) fn hash_of(name: &str) -> u64 {
        HASHES.hash_one(name)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As the encoded name, for the sake of [`Borrow`].
impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// Lets a map keyed by [`LockKey`] be asked by the encoded name.
impl Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// A map that finds keys by the hashes that they have already.
pub(crate) type KeyMap<V> = HashMap<Hashed, V, BuildHasherDefault<Given>>;

/// A key of a [`KeyMap`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Hashed(pub(crate) LockKey);

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash());
    }
}

/// The hasher of a value that is a hash.
#[derive(Default)]
pub(crate) struct Given(u64);

impl Hasher for Given {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a key writes its hash only");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
