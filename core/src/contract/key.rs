//! The names of locks.

mod name;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, LazyLock};

pub use name::IntoKey;

/// The name of a lock, checked and encoded once.
///
/// A name consists of 1 to [`LockKey::MAX_LEN`] bytes, each of which may have any value. The bytes
/// `A-Z a-z 0-9 . _ - : / @ + = ,` are not encoded. All other bytes are percent-encoded, so a store
/// never receives brackets, glob characters, spaces or control characters. Different names always
/// have different encodings.
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

/// The data of a key is behind a single thin pointer, because a held lease stores its key in six
/// places.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Name {
    encoded: Box<str>,
    /// The hash is computed once, because the maps would otherwise compute it up to ten times per
    /// call.
    hash: u64,
}

/// All maps of a process use the same hash function. The hash function differs between processes,
/// so a client cannot choose names that collide.
#[cfg(not(feature = "_simulation"))]
static HASHES: LazyLock<std::hash::RandomState> = LazyLock::new(Default::default);

/// In the simulation, all runs with the same seed must be identical, so the hash function is fixed.
#[cfg(feature = "_simulation")]
static HASHES: LazyLock<BuildHasherDefault<std::hash::DefaultHasher>> =
    LazyLock::new(Default::default);

impl LockKey {
    /// The maximum length of a name in bytes, before encoding.
    ///
    /// The maximum length is large enough for a path or a URL, and small enough to keep keys cheap
    /// in every store.
    pub const MAX_LEN: usize = 512;

    /// Returns the key that health checks inspect and that is never locked.
    pub(crate) fn of_pings() -> Self {
        Self::of("leasehold-ping")
    }

    /// Returns the encoded name, as it appears in every store.
    pub fn as_str(&self) -> &str {
        &self.0.encoded
    }

    /// Creates the key with this encoded name.
    fn of(encoded: impl Into<Box<str>>) -> Self {
        let encoded = encoded.into();
        let hash = Self::hash_of(&encoded);
        Self(Arc::new(Name { encoded, hash }))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// Returns the hash of the key with this encoded name.
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

/// Hashes the encoded name, as [`Borrow`] requires.
impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

/// Allows lookups by encoded name in a map of [`LockKey`]s.
impl Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// A map that uses the precomputed hashes of its keys.
pub(crate) type KeyMap<V> = HashMap<Hashed, V, BuildHasherDefault<Given>>;

/// A key of a [`KeyMap`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Hashed(pub(crate) LockKey);

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash());
    }
}

/// A hasher whose input is already a hash.
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
