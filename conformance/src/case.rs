//! A case of the suite.

use std::fmt;

use leasehold_core::backend::Feature;

use crate::failure::{self, Failure};
use crate::fault::FaultKind;
use crate::profile::Profile;
use crate::run::{self, Running};
use crate::scene::Scene;

/// A case that is ready to run on one store.
///
/// ```
/// use leasehold_conformance::{Harness, cases};
/// # use async_trait::async_trait;
/// # use leasehold_core::backend::LockBackend;
/// # use leasehold_core::memory::MemoryBackend;
/// # use leasehold_core::{Holder, LockKey};
/// # struct Memory(MemoryBackend);
/// # #[async_trait]
/// # impl Harness for Memory {
/// #     type Backend = MemoryBackend;
/// #     const NAME: &str = "memory";
/// #     async fn start() -> Self { Self(MemoryBackend::new()) }
/// #     async fn connect(&self) -> MemoryBackend { self.0.clone() }
/// #     async fn witness(&self, key: &LockKey) -> Option<Holder> {
/// #         self.0.inspect(key).await.unwrap().holders().first().cloned()
/// #     }
/// # }
///
/// let fencing = cases::<Memory>().into_iter().filter(|case| case.group == "fencing");
/// assert!(fencing.count() > 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of the module that contains the case.
    pub group: &'static str,
    /// The name of the case, which states the property that the case checks.
    pub name: &'static str,
    /// What the case tests, for example the client or the store.
    pub subject: Subject,
    /// The numbers of the hazards that the case covers, from the catalogue in `docs/hazards.md` of
    /// the repository.
    pub numbers: &'static [u16],
    /// The features and hooks that the case requires: the backend must declare the features, and
    /// the harness must support the hooks.
    pub needs: &'static [Need],
    /// The reason why this harness skips the case, if the harness's constants exclude the case.
    pub skips: Option<Need>,
    pub(crate) store: Profile,
    pub(crate) body: Body,
}

impl Case {
    /// Returns the case's group and name in the format that test runners use.
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Runs the case on a separate runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Skipped`] if the case cannot run on this store.
    ///
    /// # Panics
    ///
    /// Panics if the case fails.
    pub fn run(&self) -> Outcome {
        match self.skips {
            Some(need) => Err(Skipped(need)),
            None => match self.body {
                Body::OnScene(case) => run::on_scene(self.store, self.subject, self.needs, case),
                Body::Model(model) => model(self.store),
            },
        }
    }

    /// Runs the case on a separate runtime, and returns its failure instead of a panic.
    ///
    /// The process's panic hook still runs. The first call extends this hook, so that failures contain
    /// their places in the source code.
    ///
    /// # Errors
    ///
    /// Returns a [`Failure`] if the case fails.
    pub fn check(&self) -> Result<Outcome, Failure> {
        failure::catch(|| self.run())
    }
}

/// The code of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// The case uses a scene that is created for this case only.
    OnScene(for<'a> fn(&'a Scene) -> Running<'a>),
    /// The case creates its own scene.
    Model(fn(Profile) -> Outcome),
}

/// What a case tests, for example the client or the store.
///
/// [`Harness::SUBJECTS`](crate::Harness::SUBJECTS) selects cases by their subject.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// The client's queue, retries, renewals and guards. A store only adds latency to cases that
    /// test the client, so these cases run on harnesses in [virtual time](crate::Time::Virtual). To
    /// run them on all harnesses, set the environment variable `LEASEHOLD_CONFORMANCE_ALL`.
    Layers,
    /// The client and its store under load.
    Load,
    /// The network connection between the client and its store.
    Network,
    /// The contract that the store and its backend must fulfil.
    Store,
}

impl Subject {
    /// All subjects.
    pub const ALL: [Self; 4] = [Self::Layers, Self::Load, Self::Network, Self::Store];
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layers => "layers",
            Self::Load => "load",
            Self::Network => "network",
            Self::Store => "store",
        })
    }
}

/// The outcome of a case, unless the case panics.
///
/// [`Case::run`] returns this type.
pub type Outcome = Result<(), Skipped>;

/// Why a case was not run: the backend lacks this feature, or the harness lacks this hook.
///
/// [`Case::run`] returns this type as an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Skipped(pub Need);

/// Optional features of backends and optional hooks of harnesses.
///
/// [`Harness::HOOKS`](crate::Harness::HOOKS) and [`Harness::LACKS`](crate::Harness::LACKS) contain
/// these values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Need {
    /// The [`Harness::advance`](crate::Harness::advance) hook.
    Advance,
    /// A fault that the suite causes. [`Need::FAULTS`] lists these faults.
    Fault(FaultKind),
    /// The [`Feature::ForceRelease`] feature.
    ForceRelease,
    /// The [`Feature::Inspect`] feature.
    Inspect,
    /// The [`Feature::List`] feature.
    List,
    /// The [`Feature::Membership`] feature.
    Membership,
    /// The [`Feature::Push`] feature.
    Push,
    /// The [`Feature::Queue`] feature.
    Queue,
    /// The harness must select the case: [`Harness::GROUPS`](crate::Harness::GROUPS) must contain
    /// the case's group, and [`Harness::SUBJECTS`](crate::Harness::SUBJECTS) must contain its
    /// subject.
    Selection,
    /// The [`Feature::Revocation`] feature.
    Revocation,
    /// The [`Feature::SpareTokens`] feature.
    SpareTokens,
    /// The [`Feature::Together`] feature.
    Together,
    /// The [`Feature::Units`] feature.
    Units,
    /// [`Time::Virtual`](crate::Time::Virtual), for a case that tests the
    /// [client](Subject::Layers).
    VirtualTime,
}

impl Need {
    /// All features and hooks.
    pub const ALL: [Self; 17] = [
        Self::Advance,
        Self::Fault(FaultKind::ConnectionsKilled),
        Self::Fault(FaultKind::NetworkSilent),
        Self::Fault(FaultKind::ServerKilled),
        Self::Fault(FaultKind::ServerStopped),
        Self::ForceRelease,
        Self::Inspect,
        Self::List,
        Self::Membership,
        Self::Push,
        Self::Queue,
        Self::Revocation,
        Self::Selection,
        Self::SpareTokens,
        Self::Together,
        Self::Units,
        Self::VirtualTime,
    ];

    /// All faults that the suite causes.
    pub const FAULTS: [Self; 4] = [
        Self::Fault(FaultKind::ConnectionsKilled),
        Self::Fault(FaultKind::NetworkSilent),
        Self::Fault(FaultKind::ServerKilled),
        Self::Fault(FaultKind::ServerStopped),
    ];

    /// Returns the backend feature, or `None` for a hook of the harness.
    pub const fn feature(self) -> Option<Feature> {
        match self {
            Self::ForceRelease => Some(Feature::ForceRelease),
            Self::Inspect => Some(Feature::Inspect),
            Self::List => Some(Feature::List),
            Self::Membership => Some(Feature::Membership),
            Self::Push => Some(Feature::Push),
            Self::Queue => Some(Feature::Queue),
            Self::Revocation => Some(Feature::Revocation),
            Self::SpareTokens => Some(Feature::SpareTokens),
            Self::Together => Some(Feature::Together),
            Self::Units => Some(Feature::Units),
            Self::Advance | Self::Fault(_) | Self::Selection | Self::VirtualTime => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(feature) = self.feature() {
            return f.write_str(feature.name());
        }
        f.write_str(match self {
            Self::Fault(kind) => kind.name(),
            Self::Selection => "selection of this case",
            Self::VirtualTime => "virtual time",
            _ => "advance",
        })
    }
}
