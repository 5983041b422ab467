//! The part of a store in a quorum: its identity, its charter, and the floor of its tokens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

/// The identity of a store's data. A store that loses its data loses the identity, too.
///
/// See [`Quorum`](crate::quorum::Quorum) for an example.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StoreId(Uuid);

impl StoreId {
    /// Draws a new identity.
    ///
    /// # Panics
    ///
    /// If the operating system has no randomness to give.
    #[expect(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The identity that a store keeps as this text; `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

/// Writes the text that [`StoreId::parse`] reads.
impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.simple())
    }
}

/// The agreement that all clients and members of a quorum share: the names of the members, and the longest TTL of a lease.
///
/// Members keep the charter as text and compare it as a whole, so clients that differ in a name or in the TTL refuse each other.
///
/// See [`Quorum`](crate::quorum::Quorum) for an example.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Charter(Arc<str>);

impl Charter {
    /// Creates the charter of the members with these names.
    pub fn new<'a>(members: impl IntoIterator<Item = &'a str>, max_ttl: Duration) -> Self {
        let mut members: Vec<&str> = members.into_iter().collect();
        members.sort_unstable();
        Self(format!("{} for up to {} ms", members.join(", "), max_ttl.as_millis()).into())
    }

    /// The charter that a store keeps as this text.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The text that a store keeps.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Charter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A store's knowledge of itself as a member of a quorum.
///
/// See [`Quorum`](crate::quorum::Quorum) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Standing {
    store: StoreId,
    charter: Option<Charter>,
    floor: u64,
    age: Duration,
}

impl Standing {
    /// Creates the standing of the store `store`, which no quorum has enlisted, with its data just founded.
    pub fn new(store: StoreId) -> Self {
        Self { store, charter: None, floor: 0, age: Duration::ZERO }
    }

    /// Says under which charter the store is enlisted.
    #[must_use]
    pub fn with_charter(mut self, charter: Option<Charter>) -> Self {
        self.charter = charter;
        self
    }

    /// Says which number no token so far exceeds that the store granted under its charter, of any key.
    #[must_use]
    pub fn with_floor(mut self, floor: u64) -> Self {
        self.floor = floor;
        self
    }

    /// Says for how long the store has surely kept all that it has answered.
    #[must_use]
    pub fn with_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// The identity of the store's data.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// The charter under which the store is enlisted, if it is.
    pub fn charter(&self) -> Option<&Charter> {
        self.charter.as_ref()
    }

    /// A number that no token so far exceeds that the store granted under its charter, of any key.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// For how long the store has surely kept all that it has answered.
    pub fn age(&self) -> Duration {
        self.age
    }
}

/// A request that a store become or stay a member of a quorum.
///
/// See [`Quorum`](crate::quorum::Quorum) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Enlistment {
    store: StoreId,
    charter: Charter,
    floor: u64,
}

impl Enlistment {
    /// Creates the request to the store `store`, which ignores the request if that is not its identity any more.
    pub fn new(store: StoreId, charter: Charter) -> Self {
        Self { store, charter, floor: 0 }
    }

    /// Says which number all later tokens under the charter shall exceed, of any key.
    #[must_use]
    pub fn with_floor(mut self, floor: u64) -> Self {
        self.floor = floor;
        self
    }

    /// The identity that the store must have.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// The charter that the store takes, if it has none.
    pub fn charter(&self) -> &Charter {
        &self.charter
    }

    /// The number that all later tokens under the charter exceed, of any key.
    pub fn floor(&self) -> u64 {
        self.floor
    }
}
