//! One case of the suite.

use std::fmt;

use leasehold_core::backend::Feature;

use crate::profile::Profile;
use crate::run::{self, Running};
use crate::scene::Scene;

/// A case, ready to be run against one store.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The subject: the module that has the case.
    pub group: &'static str,
    /// The claim: a sentence that can be false.
    pub name: &'static str,
    /// The part of a lock that it tests.
    pub subject: Subject,
    /// Its numbers in the catalogue of hazards, `docs/hazards.md` in the repository.
    pub numbers: &'static [u16],
    /// The features that the backend must declare, and the hooks that the harness must offer, for the case to run.
    pub needs: &'static [Need],
    /// The reason for which this store's harness skips it, as far as its constants tell.
    pub skips: Option<Need>,
    pub(crate) store: Profile,
    pub(crate) body: Body,
}

impl Case {
    /// Its group and name, as test runners show it.
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Runs it, on a runtime of its own.
    ///
    /// # Errors
    ///
    /// [`Skipped`] if it cannot be run on this store.
    ///
    /// # Panics
    ///
    /// If the case fails.
    pub fn run(&self) -> Outcome {
        match self.skips {
            Some(need) => Err(Skipped(need)),
            None => match self.body {
                Body::OnScene(case) => run::on_scene(self.store, self.subject, self.needs, case),
                Body::Model(model) => model(self.store),
            },
        }
    }
}

/// The code of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// It acts on a scene that is made for it.
    OnScene(for<'a> fn(&'a Scene) -> Running<'a>),
    /// It makes a scene itself.
    Model(fn(Profile) -> Outcome),
}

/// The part of a lock that a case tests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// The layers above the contract: queue, retry, watchdog, guards. A store only adds latency, so these cases run on
    /// harnesses in [virtual time](crate::Time::Virtual), and elsewhere if `LEASEHOLD_CONFORMANCE_ALL` is set in the
    /// environment.
    Layers,
    /// The client and its store under load.
    Load,
    /// The connection between the client and its store.
    Network,
    /// The contract that the store and its backend keep.
    Store,
}

impl Subject {
    /// All of them.
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

/// The outcome of a case that does not panic.
pub type Outcome = Result<(), Skipped>;

/// A case was not run, for want of this.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Skipped(pub Need);

/// Features that not every backend declares, and hooks that not every harness offers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Need {
    /// [`Harness::advance`](crate::Harness::advance).
    Advance,
    /// [`Disturbance::BlackHole`](crate::Disturbance::BlackHole).
    BlackHole,
    /// [`Disturbance::Disconnect`](crate::Disturbance::Disconnect).
    Disconnect,
    /// [`Feature::ForceRelease`].
    ForceRelease,
    /// [`Feature::Inspect`].
    Inspect,
    /// [`Feature::List`].
    List,
    /// [`Feature::Membership`].
    Membership,
    /// [`Disturbance::Pause`](crate::Disturbance::Pause).
    Pause,
    /// [`Feature::Push`].
    Push,
    /// [`Feature::Queue`].
    Queue,
    /// [`Disturbance::Restart`](crate::Disturbance::Restart).
    Restart,
    /// The case's group among [`Harness::GROUPS`](crate::Harness::GROUPS), and its subject among
    /// [`Harness::SUBJECTS`](crate::Harness::SUBJECTS).
    Selection,
    /// [`Feature::Revocation`].
    Revocation,
    /// [`Feature::SpareTokens`].
    SpareTokens,
    /// [`Feature::Together`].
    Together,
    /// [`Feature::Units`].
    Units,
    /// [`Time::Virtual`](crate::Time::Virtual), for a case that tests the [layers](Subject::Layers).
    VirtualTime,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Advance,
        Self::BlackHole,
        Self::Disconnect,
        Self::ForceRelease,
        Self::Inspect,
        Self::List,
        Self::Membership,
        Self::Pause,
        Self::Push,
        Self::Queue,
        Self::Restart,
        Self::Revocation,
        Self::Selection,
        Self::SpareTokens,
        Self::Together,
        Self::Units,
        Self::VirtualTime,
    ];

    /// The backend's feature that it is; `None` if it is a harness's hook.
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
            Self::Advance
            | Self::BlackHole
            | Self::Disconnect
            | Self::Pause
            | Self::Restart
            | Self::Selection
            | Self::VirtualTime => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(feature) = self.feature() {
            return f.write_str(feature.name());
        }
        f.write_str(match self {
            Self::BlackHole => "black hole",
            Self::Disconnect => "disconnect",
            Self::Pause => "pause",
            Self::Restart => "restart",
            Self::Selection => "selection of this case",
            Self::VirtualTime => "virtual time",
            _ => "advance",
        })
    }
}
