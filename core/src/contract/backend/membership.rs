//! The membership of a store in a quorum: its identity, its quorum configuration and its minimum
//! token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

/// The identity of the data in a store. A store that loses its data also loses its identity.
///
/// ```
/// use leasehold_core::backend::StoreId;
///
/// let store = StoreId::new();
/// assert_eq!(StoreId::parse(&store.to_string()), Some(store));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StoreId(Uuid);

impl StoreId {
    /// Generates a new identity.
    ///
    /// # Panics
    ///
    /// Panics if the operating system cannot provide random bytes.
    #[expect(clippy::new_without_default, reason = "two default values would differ")]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// Parses a store's identity from the string in which the store keeps it. Returns `None` if
    /// `text` is not an identity.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

/// Writes the text representation that [`StoreId::parse`] accepts.
impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

/// The quorum configuration: the names of the members and the maximum TTL of a lease.
///
/// All clients and members of a quorum must use the same configuration. Members store the
/// configuration as text and compare the complete text. A client with a different member name or a
/// different maximum TTL is therefore rejected.
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::backend::Charter;
///
/// let ttl = Duration::from_secs(120);
/// assert_eq!(Charter::new(["a", "b", "c"], ttl), Charter::new(["c", "b", "a"], ttl));
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Charter(Arc<str>);

impl Charter {
    /// Creates a configuration from the member names and the maximum TTL. The order of the names
    /// does not matter.
    pub fn new<'a>(members: impl IntoIterator<Item = &'a str>, max_ttl: Duration) -> Self {
        let mut members: Vec<&str> = members.into_iter().collect();
        members.sort_unstable();
        Self(format!("{} for up to {} ms", members.join(", "), max_ttl.as_millis()).into())
    }

    /// Parses a quorum configuration from the string in which a store keeps it.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the quorum configuration as a string, for storage in a member.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Charter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The membership status of a store in a quorum.
///
/// ```
/// use leasehold_core::backend::{Standing, StoreId};
///
/// let standing = Standing::new(StoreId::new());
/// assert!(standing.charter().is_none(), "the store is not a member yet");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Standing {
    store: StoreId,
    charter: Option<Charter>,
    floor: u64,
    age: Duration,
}

impl Standing {
    /// Creates the status of a new store, which is not a member of a quorum.
    pub fn new(store: StoreId) -> Self {
        Self { store, charter: None, floor: 0, age: Duration::ZERO }
    }

    /// Sets the quorum configuration of the store.
    #[must_use]
    pub fn with_charter(mut self, charter: Option<Charter>) -> Self {
        self.charter = charter;
        self
    }

    /// Sets an upper bound for all tokens that have been granted for any key under the quorum
    /// configuration.
    #[must_use]
    pub fn with_floor(mut self, floor: u64) -> Self {
        self.floor = floor;
        self
    }

    /// Sets the length of time for which the store is known not to have lost any confirmed data.
    #[must_use]
    pub fn with_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Returns the identity of the data in the store.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the quorum configuration of the store, or `None` if the store is not a member of a
    /// quorum.
    pub fn charter(&self) -> Option<&Charter> {
        self.charter.as_ref()
    }

    /// Returns an upper bound for all tokens that have been granted for any key under the quorum
    /// configuration.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the length of time for which the store is known not to have lost any confirmed data.
    pub fn age(&self) -> Duration {
        self.age
    }
}

/// A request that asks a store to become or remain a member of a quorum.
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::backend::{Charter, Enlistment, StoreId};
///
/// let charter = Charter::new(["a", "b", "c"], Duration::from_secs(600));
/// let request = Enlistment::new(StoreId::new(), charter).with_floor(100);
/// assert_eq!(request.floor(), 100);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Enlistment {
    store: StoreId,
    charter: Charter,
    floor: u64,
}

impl Enlistment {
    /// Creates a membership request for the store with the identity `store`. A store with a
    /// different identity ignores the membership request.
    pub fn new(store: StoreId, charter: Charter) -> Self {
        Self { store, charter, floor: 0 }
    }

    /// Sets the minimum token. All later tokens that are granted under the quorum configuration,
    /// for any key, are larger than the minimum token.
    #[must_use]
    pub fn with_floor(mut self, floor: u64) -> Self {
        self.floor = floor;
        self
    }

    /// Returns the identity that the store must have.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the quorum configuration that the store adopts if it does not have one.
    pub fn charter(&self) -> &Charter {
        &self.charter
    }

    /// Returns the minimum token. All later tokens that are granted under the quorum configuration,
    /// for any key, are larger than the minimum token.
    pub fn floor(&self) -> u64 {
        self.floor
    }
}
