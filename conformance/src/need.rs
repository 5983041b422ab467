//! The features, facets and hooks that a case needs.

use std::fmt;

use leasehold_core::backend::{Feature, LockBackend};

use crate::fault::FaultKind;

/// The outcome of a case, unless the case panics.
///
/// [`Case::run`](crate::Case::run) returns this type.
pub type Outcome = Result<(), Skipped>;

/// The reason that a case was not run, which is a feature or facet that the backend does not
/// support, or a hook that the harness does not have.
///
/// [`Case::run`](crate::Case::run) returns this type as an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Skipped(pub Need);

/// Optional features and facets of backends, and optional hooks of harnesses.
///
/// [`Harness::HOOKS`](crate::Harness::HOOKS) and [`Harness::LACKS`](crate::Harness::LACKS) contain
/// these values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Need {
    /// The facet [`StoreAdmin`](leasehold_core::backend::StoreAdmin).
    Admin,
    /// The [`Harness::advance`](crate::Harness::advance) hook.
    Advance,
    /// A fault that the suite causes.
    Fault(FaultKind),
    /// The facet [`Member`](leasehold_core::backend::Member).
    Member,
    /// The [`Feature::Push`] feature.
    Push,
    /// The [`Feature::Queue`] feature.
    Queue,
    /// The harness must select the case: [`Harness::GROUPS`](crate::Harness::GROUPS) must contain
    /// the case's group, and [`Harness::SUBJECTS`](crate::Harness::SUBJECTS) must contain its
    /// subject.
    Selection,
    /// The [`Feature::SpareTokens`] feature.
    SpareTokens,
    /// The [`Feature::Together`] feature.
    Together,
    /// The [`Feature::Units`] feature.
    Units,
    /// [`Time::Virtual`](crate::Time::Virtual), for a case that tests the
    /// [client](crate::Subject::Layers).
    VirtualTime,
}

impl Need {
    /// All features, facets and hooks.
    pub const ALL: [Self; 15] = [
        Self::Admin,
        Self::Advance,
        Self::Fault(FaultKind::ConnectionsKilled),
        Self::Fault(FaultKind::NetworkSilent),
        Self::Fault(FaultKind::ReadOnly),
        Self::Fault(FaultKind::ServerKilled),
        Self::Fault(FaultKind::ServerStopped),
        Self::Member,
        Self::Push,
        Self::Queue,
        Self::Selection,
        Self::SpareTokens,
        Self::Together,
        Self::Units,
        Self::VirtualTime,
    ];

    /// The faults of the network and of the server process that the suite causes.
    pub const FAULTS: [Self; 4] = [
        Self::Fault(FaultKind::ConnectionsKilled),
        Self::Fault(FaultKind::NetworkSilent),
        Self::Fault(FaultKind::ServerKilled),
        Self::Fault(FaultKind::ServerStopped),
    ];

    /// Returns whether this is a hook of the harness, and not a feature or facet of the backend.
    pub const fn is_hook(self) -> bool {
        matches!(self, Self::Advance | Self::Fault(_) | Self::Selection | Self::VirtualTime)
    }

    /// Returns whether `backend` supports this feature or facet. A backend supports no hook.
    pub(crate) fn is_met_by(self, backend: &impl LockBackend) -> bool {
        match self {
            Self::Admin => backend.admin().is_some(),
            Self::Member => backend.member().is_some(),
            _ => self.feature().is_some_and(|it| backend.capabilities().supports(it)),
        }
    }

    const fn feature(self) -> Option<Feature> {
        match self {
            Self::Push => Some(Feature::Push),
            Self::Queue => Some(Feature::Queue),
            Self::SpareTokens => Some(Feature::SpareTokens),
            Self::Together => Some(Feature::Together),
            Self::Units => Some(Feature::Units),
            Self::Admin
            | Self::Advance
            | Self::Fault(_)
            | Self::Member
            | Self::Selection
            | Self::VirtualTime => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admin => "admin operations",
            Self::Advance => "advance",
            Self::Fault(kind) => kind.name(),
            Self::Member => "quorum membership",
            Self::Selection => "selection of this case",
            Self::VirtualTime => "virtual time",
            feature => feature.feature().expect("all other values are features").name(),
        })
    }
}
