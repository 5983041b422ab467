//! A case of the suite.

use crate::failure::{self, Failure};
use crate::need::{Need, Outcome, Skipped};
use crate::profile::Profile;
use crate::run::{self, Running};
use crate::scene::Scene;
use crate::subject::Subject;

/// A case that is ready to run on one store.
///
/// ```
/// use leasehold_conformance::{Harness, cases};
/// # use async_trait::async_trait;
/// # use leasehold_core::backend::StoreAdmin;
/// # use leasehold_core::memory::MemoryBackend;
/// # use leasehold_core::{Holder, LockKey};
/// # struct Memory(MemoryBackend);
/// # #[async_trait]
/// # impl Harness for Memory {
/// #     type Backend = MemoryBackend;
/// #     const NAME: &str = "memory";
/// #     async fn start() -> Self { Self(MemoryBackend::new()) }
/// #     async fn connect(&self) -> MemoryBackend { self.0.clone() }
/// #     async fn probe(&self, key: &LockKey) -> Option<Holder> {
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
    /// What the case requires. The backend must support the features and facets, and the harness must
    /// support the hooks.
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
    /// The process's panic hook still runs. The first call extends this hook, so that failures
    /// contain their places in the source code.
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
