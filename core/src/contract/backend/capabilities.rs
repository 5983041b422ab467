//! The optional features of a store and the strength of its fencing tokens.

use std::time::Duration;

/// The optional features of a store and the strength of its fencing tokens.
///
/// The client rejects a call that the store does not support, without sending a request. The
/// conformance suite checks that each declared feature works. The suite's report lists the test
/// cases that were skipped because the backend does not declare a feature.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::backend::{Capabilities, Feature, Fencing};
///
/// let capabilities = Capabilities::new("shelf", Fencing::BestEffort)
///     .with(Feature::Queue)
///     .with_ttl_range(Duration::from_millis(1), Duration::from_secs(3_600));
/// assert!(capabilities.supports(Feature::Queue));
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

/// How reliable the fencing tokens of a store are, from weakest to strongest.
///
/// ```
/// use leasehold_core::backend::Fencing;
///
/// assert!(Fencing::BestEffort < Fencing::Strict);
/// ```
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Fencing {
    /// The order of the tokens is not defined, so they cannot be used for fencing.
    None,
    /// The tokens of a key strictly increase as long as the store does not lose data and its clock
    /// does not go backwards.
    BestEffort,
    /// The tokens of a key strictly increase in the order of the grants, for the lifetime of the
    /// store.
    Strict,
}

/// An optional feature of a store, which the backend declares in its
/// [`Capabilities`](crate::backend::Capabilities).
///
/// Operations for operators and quorum membership are not features, because
/// [`admin`](crate::backend::LockBackend::admin) and
/// [`member`](crate::backend::LockBackend::member) return them.
///
/// See [`Capabilities`](crate::backend::Capabilities) for an example that declares a feature.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Feature {
    /// A [`LockBackend::watch`](crate::backend::LockBackend::watch) fires on the events that
    /// [`Subject`](crate::backend::Subject) lists, and when notifications may have been missed.
    Push,
    /// Claims with [`Patience::Queues`](crate::backend::Patience::Queues) are granted in order of
    /// arrival. Fair locks require this feature.
    ///
    /// The store also queues claims with [`Patience::Waits`](crate::backend::Patience::Waits), so
    /// that each process gets a fair share of the grants.
    Queue,
    /// A client's [kept](crate::backend::Tenure::Kept) leases, which the client renews, expire
    /// together if they have the same TTL. Renewing all of a client's leases with the same TTL
    /// costs as much as renewing a single lease.
    Sessions,
    /// Grants reserve [spare tokens](crate::backend::Grant::with_spare_tokens) for later holders in
    /// the same process. The first grant of a key may omit spare tokens.
    SpareTokens,
    /// The store supports
    /// [`LockBackend::acquire_all`](crate::backend::LockBackend::acquire_all) for up to 64
    /// exclusive claims.
    Together,
    /// Claims may request [units](crate::backend::Mode::Units) of a key, such as the permits of a
    /// semaphore. Semaphores require this feature. Reader-writer locks and elections require both
    /// this feature and [`Feature::Queue`].
    Units,
}

impl Feature {
    /// Returns a short name of the feature.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Queue => "queue",
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
    /// The default maximum TTL, which is one day.
    ///
    /// If a holder crashes, its lease can remain in force for the whole TTL, so a TTL of more than
    /// one day is usually a mistake.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Creates the declaration of the backend `name`, without optional features.
    ///
    /// By default, TTLs from 1 ms to [`Capabilities::DEFAULT_MAX_TTL`] are supported, in steps of 1
    /// ms.
    pub const fn new(name: &'static str, fencing: Fencing) -> Self {
        Self {
            name,
            fencing,
            features: 0,
            min_ttl: Duration::from_millis(1),
            max_ttl: Self::DEFAULT_MAX_TTL,
            ttl_granularity: Duration::from_millis(1),
            advice: "choose a different store",
        }
    }

    /// Declares `feature`.
    #[must_use]
    pub const fn with(mut self, feature: Feature) -> Self {
        self.features |= feature.bit();
        self
    }

    /// Removes `feature` from the declaration.
    #[must_use]
    pub const fn without(mut self, feature: Feature) -> Self {
        self.features &= !feature.bit();
        self
    }

    /// Sets the minimum and maximum TTL that the store supports.
    #[must_use]
    pub const fn with_ttl_range(mut self, min: Duration, max: Duration) -> Self {
        self.min_ttl = min;
        self.max_ttl = max;
        self
    }

    /// Sets the granularity of TTLs. The store rounds each TTL up to a multiple of `step`.
    #[must_use]
    pub const fn with_ttl_granularity(mut self, step: Duration) -> Self {
        self.ttl_granularity = step;
        self
    }

    /// Sets advice for users who need an unsupported feature: the reason why it is not supported,
    /// or an alternative.
    ///
    /// If a lock needs an unsupported feature, the error ends with this advice. If a backend does
    /// not set any advice, the error advises the user to choose a different store.
    #[must_use]
    pub const fn with_advice(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// Returns the name of the backend, as it appears in errors and logs.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns how reliable the fencing tokens are.
    pub const fn fencing(&self) -> Fencing {
        self.fencing
    }

    /// Returns whether `feature` is declared.
    pub const fn supports(&self, feature: Feature) -> bool {
        self.features & feature.bit() != 0
    }

    /// Returns the advice for users who need an unsupported feature.
    pub const fn advice(&self) -> &'static str {
        self.advice
    }

    /// Returns the minimum TTL that the store supports.
    pub const fn min_ttl(&self) -> Duration {
        self.min_ttl
    }

    /// Returns the maximum TTL that the store supports.
    pub const fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// Returns the granularity of TTLs. The store rounds each TTL up to a multiple of this
    /// duration.
    pub const fn ttl_granularity(&self) -> Duration {
        self.ttl_granularity
    }
}
