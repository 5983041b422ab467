//! The features and the promises of a store.

use std::time::Duration;

/// The features of a backend's store, and the promise of its tokens.
///
/// The layers above refuse a call that the store cannot serve before any I/O. The conformance suite
/// checks that the declaration is honest: a declared feature must work, and the report names each
/// case that it skips.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::backend::{Capabilities, Feature, Fencing};
///
/// let capabilities = Capabilities::new("shelf", Fencing::BestEffort)
///     .with(Feature::Inspect)
///     .with_ttl_range(Duration::from_millis(1), Duration::from_secs(3_600));
/// assert!(capabilities.supports(Feature::Inspect));
/// assert!(!capabilities.supports(Feature::Push));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capabilities {
    name: &'static str,
    fencing: Fencing,
    features: u32,
    min_ttl: Duration,
    max_ttl: Duration,
    ttl_granularity: Duration,
    advice: &'static str,
}

/// How far the fencing tokens of a store can be relied on, weakest first.
///
/// See [`Capabilities`](crate::backend::Capabilities) for an example.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Fencing {
    /// The numbers mean nothing.
    None,
    /// Tokens of a key strictly increase while the store keeps its data and its clock does not go back.
    BestEffort,
    /// Tokens of a key strictly increase in grant order for the life of the store.
    Strict,
}

/// Something that not every store can do.
///
/// See [`Capabilities`](crate::backend::Capabilities) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Feature {
    /// [`LockBackend::force_release`](crate::backend::LockBackend::force_release) works.
    ForceRelease,
    /// [`LockBackend::inspect`](crate::backend::LockBackend::inspect) works, and a refusal names a [holder](crate::backend::Contention::with_holder).
    Inspect,
    /// [`LockBackend::list`](crate::backend::LockBackend::list) works, for users that may.
    List,
    /// The store may be a member of a quorum: [`standing`](crate::backend::LockBackend::standing) and
    /// [`enlist`](crate::backend::LockBackend::enlist) work, it heeds the [charter](crate::backend::Claim::with_charter) of a claim and the
    /// [floor](crate::backend::Lease::with_floor) of a lease, and it heeds the [least token](crate::backend::Claim::with_least_token) of a claim under its charter.
    Membership,
    /// [`LockBackend::watch`](crate::backend::LockBackend::watch) fires when a key is released, also by others.
    Push,
    /// Claims that [queue](crate::backend::Patience::Queues) are granted first come, first served: fair locks. Claims that only
    /// [wait](crate::backend::Patience::Waits) get a place as well, so that processes have fair shares.
    Queue,
    /// [`LockBackend::request_revocation`](crate::backend::LockBackend::request_revocation) works.
    Revocation,
    /// Leases that are [kept](crate::backend::Tenure::Kept) share one time to live per client and TTL: to renew all of
    /// them together costs as much as to renew one.
    Sessions,
    /// Grants reserve [tokens](crate::backend::Grant::with_spare_tokens) for the later holders of a lease that is passed on; a key's first grant need not.
    SpareTokens,
    /// [`LockBackend::try_acquire_all`](crate::backend::LockBackend::try_acquire_all) works for up to 64 claims of whole keys.
    Together,
    /// Claims may ask for [units](crate::backend::Share::Units) of a key: semaphores and, with
    /// [`Feature::Queue`], reader-writer locks and elections.
    Units,
}

impl Feature {
    /// A feature in a few words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ForceRelease => "force release",
            Self::Inspect => "inspect",
            Self::List => "list",
            Self::Membership => "membership",
            Self::Push => "push",
            Self::Queue => "queue",
            Self::Revocation => "revocation",
            Self::Sessions => "sessions",
            Self::SpareTokens => "spare tokens",
            Self::Together => "together",
            Self::Units => "units",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl Capabilities {
    /// The longest TTL that a backend allows unless it says otherwise: a day.
    ///
    /// A lease outlives a crashed holder by its TTL, so a longer one is a mistake more often than a wish.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Creates the declaration of the backend `name`, with nothing beyond the required methods.
    ///
    /// TTLs may be 1 ms to [`Capabilities::DEFAULT_MAX_TTL`], in steps of 1 ms.
    pub const fn new(name: &'static str, fencing: Fencing) -> Self {
        Self {
            name,
            fencing,
            features: 0,
            min_ttl: Duration::from_millis(1),
            max_ttl: Self::DEFAULT_MAX_TTL,
            ttl_granularity: Duration::from_millis(1),
            advice: "choose another store",
        }
    }

    /// Declares `feature`.
    #[must_use]
    pub const fn with(mut self, feature: Feature) -> Self {
        self.features |= feature.bit();
        self
    }

    /// Takes the declaration of `feature` back.
    #[must_use]
    pub const fn without(mut self, feature: Feature) -> Self {
        self.features &= !feature.bit();
        self
    }

    /// Declares the shortest and the longest TTL.
    #[must_use]
    pub const fn with_ttl_range(mut self, min: Duration, max: Duration) -> Self {
        self.min_ttl = min;
        self.max_ttl = max;
        self
    }

    /// Declares the step to which the store rounds TTLs up.
    #[must_use]
    pub const fn with_ttl_granularity(mut self, step: Duration) -> Self {
        self.ttl_granularity = step;
        self
    }

    /// Gives the reason why the store lacks features, or an alternative. The error for a lock that needs one of them ends with this
    /// text; by default it says to choose another store.
    #[must_use]
    pub const fn with_advice(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// The backend's name, as errors and logs show it.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How far its tokens can be relied on.
    pub const fn fencing(&self) -> Fencing {
        self.fencing
    }

    /// Whether `feature` is declared.
    pub const fn supports(&self, feature: Feature) -> bool {
        self.features & feature.bit() != 0
    }

    /// The reason why the store lacks features, or an alternative.
    pub const fn advice(&self) -> &'static str {
        self.advice
    }

    /// The shortest TTL that the store takes.
    pub const fn min_ttl(&self) -> Duration {
        self.min_ttl
    }

    /// The longest TTL that the store takes.
    pub const fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// The step to which the store rounds TTLs up.
    pub const fn ttl_granularity(&self) -> Duration {
        self.ttl_granularity
    }
}
