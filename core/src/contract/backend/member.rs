//! The facet of a store that can be a member of a quorum.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::contract::backend::{Attempt, Claim, Lease, Patience, Renewal};
use crate::contract::error::Error;

/// The operations of a store that can be a member of a quorum.
///
/// A backend that supports these operations implements this trait and returns itself from
/// [`LockBackend::member`](crate::backend::LockBackend::member). The conformance suite checks the
/// rules of each method.
///
/// A quorum sends its votes with [`vote`](Self::vote), and renews and releases its leases like any
/// other client. Clients outside the quorum can use the same store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # use std::time::Duration;
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{
///     Attempt, Claim, JoinRequest, Lease, Member as _, QuorumConfiguration, StoreId, Vote,
/// };
/// use leasehold_core::memory::MemoryBackend;
///
/// let store = MemoryBackend::new();
/// let quorum = QuorumConfiguration::new(["a", "b", "c"], Duration::from_secs(600));
/// let identity = store.status(StoreId::new()).await?.store();
/// store.join(&JoinRequest::new(identity, quorum.clone())).await?;
///
/// let claim = Claim::new(Lease::new(&LockKey::new("job")?, Duration::from_secs(30)));
/// let attempt = store.vote(&Vote::new(claim, quorum)).await?;
/// assert!(matches!(attempt, Attempt::Granted(_)));
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Member: Send + Sync {
    /// Returns the membership status of the store. If the store does not have an identity yet,
    /// `fresh` becomes its identity.
    ///
    /// A store that may have lost confirmed data must also have lost its identity and its quorum
    /// configuration.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not
    /// respond.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have adopted `fresh`.
    async fn status(&self, fresh: StoreId) -> Result<MemberStatus, Error>;

    /// Makes the store a member of a quorum, and returns the resulting membership status.
    ///
    /// The request also sets a minimum token, and the store grants only tokens larger than the
    /// minimum to later votes of this quorum. The store applies the request as one atomic step. If
    /// the store has a different identity or belongs to a different quorum, the request changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the reply was lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have joined the quorum. Repeating the request is
    /// safe.
    async fn join(&self, request: &JoinRequest) -> Result<MemberStatus, Error>;

    /// Tries once to acquire a lease, as
    /// [`LockBackend::acquire`](crate::backend::LockBackend::acquire) does, if the store belongs to
    /// the quorum of the vote.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), without changing
    /// anything, if the quorum configuration of the store differs from the configuration of the
    /// vote. May return [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the claim is
    /// not [exclusive](crate::backend::Mode::Exclusive).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have granted the lease, so the caller must release
    /// it.
    async fn vote(&self, vote: &Vote) -> Result<Attempt, Error>;

    /// Renews a lease, as [`LockBackend::renew`](crate::backend::LockBackend::renew) does, and
    /// raises the minimum token of the key to `min_token` in the same step. All later tokens of the
    /// key are larger. The store may also raise the minimum tokens of other keys.
    ///
    /// If the lease is no longer in force, the minimum token does not change.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the reply was lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have renewed the lease and raised the minimum token.
    async fn raise(&self, lease: &Lease, min_token: u64) -> Result<Renewal, Error>;
}

/// A claim in a quorum: the claim, and the quorum configuration that the store must have.
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Claim, Lease, QuorumConfiguration, Vote};
///
/// let lease = Lease::new(&LockKey::new("job")?, Duration::from_secs(30));
/// let quorum = QuorumConfiguration::new(["a", "b", "c"], Duration::from_secs(600));
/// let vote = Vote::new(Claim::new(lease), quorum).with_requested_token(100);
/// assert_eq!(vote.requested_token(), 100);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vote {
    claim: Claim,
    configuration: QuorumConfiguration,
    requested_token: u64,
}

impl Vote {
    /// How far a [requested minimum token](Self::with_requested_token), interpreted as a time, may
    /// be ahead of the store's own clock.
    ///
    /// See [`TOKENS_PER_MICROSECOND`](crate::backend::Grant::TOKENS_PER_MICROSECOND) for how tokens
    /// and times correspond. The limit is longer than a round trip to anywhere in the world, so a
    /// store accepts the minimum token of every client with a correct clock.
    pub const MAX_AHEAD: Duration = Duration::from_secs(1);

    /// Creates a vote for `claim` in the quorum with this configuration.
    pub fn new(claim: Claim, configuration: QuorumConfiguration) -> Self {
        Self { claim, configuration, requested_token: 0 }
    }

    /// Asks the store for a grant whose last token is at least `number`. If the grant has spare
    /// tokens, the last spare token is the last token. Clients use this request to get the same
    /// token from several stores.
    ///
    /// The store ignores a requested minimum token that, interpreted as a time, is more than
    /// [`MAX_AHEAD`](Self::MAX_AHEAD) ahead of its own clock. A client with a wrong clock therefore
    /// cannot use up the range of tokens.
    #[must_use]
    pub fn with_requested_token(mut self, number: u64) -> Self {
        self.requested_token = number;
        self
    }

    /// Sets whether the caller of the claim waits.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.claim = self.claim.with_patience(patience);
        self
    }

    /// Returns the claim.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Returns the quorum configuration that the store must have.
    pub fn configuration(&self) -> &QuorumConfiguration {
        &self.configuration
    }

    /// Returns the requested minimum token.
    pub fn requested_token(&self) -> u64 {
        self.requested_token
    }
}

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
/// use leasehold_core::backend::QuorumConfiguration;
///
/// let ttl = Duration::from_secs(120);
/// assert_eq!(QuorumConfiguration::new(["a", "b", "c"], ttl), QuorumConfiguration::new(["c", "b", "a"], ttl));
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct QuorumConfiguration(Arc<str>);

impl QuorumConfiguration {
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

impl fmt::Display for QuorumConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The membership status of a store in a quorum.
///
/// ```
/// use leasehold_core::backend::{MemberStatus, StoreId};
///
/// let status = MemberStatus::new(StoreId::new());
/// assert!(status.configuration().is_none(), "the store is not a member yet");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberStatus {
    store: StoreId,
    configuration: Option<QuorumConfiguration>,
    min_token: u64,
    age: Duration,
}

impl MemberStatus {
    /// Creates the status of a new store, which is not a member of a quorum.
    pub fn new(store: StoreId) -> Self {
        Self { store, configuration: None, min_token: 0, age: Duration::ZERO }
    }

    /// Sets the quorum configuration of the store.
    #[must_use]
    pub fn with_configuration(mut self, configuration: Option<QuorumConfiguration>) -> Self {
        self.configuration = configuration;
        self
    }

    /// Sets an upper bound for all tokens that have been granted for any key under the quorum
    /// configuration.
    #[must_use]
    pub fn with_min_token(mut self, min_token: u64) -> Self {
        self.min_token = min_token;
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
    pub fn configuration(&self) -> Option<&QuorumConfiguration> {
        self.configuration.as_ref()
    }

    /// Returns an upper bound for all tokens that have been granted for any key under the quorum
    /// configuration.
    pub fn min_token(&self) -> u64 {
        self.min_token
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
/// use leasehold_core::backend::{QuorumConfiguration, JoinRequest, StoreId};
///
/// let configuration = QuorumConfiguration::new(["a", "b", "c"], Duration::from_secs(600));
/// let request = JoinRequest::new(StoreId::new(), configuration).with_min_token(100);
/// assert_eq!(request.min_token(), 100);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JoinRequest {
    store: StoreId,
    configuration: QuorumConfiguration,
    min_token: u64,
}

impl JoinRequest {
    /// Creates a membership request for the store with the identity `store`. A store with a
    /// different identity ignores the membership request.
    pub fn new(store: StoreId, configuration: QuorumConfiguration) -> Self {
        Self { store, configuration, min_token: 0 }
    }

    /// Sets the minimum token. All later tokens that are granted under the quorum configuration,
    /// for any key, are larger than the minimum token.
    #[must_use]
    pub fn with_min_token(mut self, min_token: u64) -> Self {
        self.min_token = min_token;
        self
    }

    /// Returns the identity that the store must have.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the quorum configuration that the store adopts if it does not have one.
    pub fn configuration(&self) -> &QuorumConfiguration {
        &self.configuration
    }

    /// Returns the minimum token. All later tokens that are granted under the quorum configuration,
    /// for any key, are larger than the minimum token.
    pub fn min_token(&self) -> u64 {
        self.min_token
    }
}
