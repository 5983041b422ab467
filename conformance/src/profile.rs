//! A type-erased harness, so that the cases are compiled only once for all stores.

use std::env;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::LockBackend;
use leasehold_core::{Holder, LockKey, LockOptions};
use tokio::runtime::{Builder, Runtime};

use crate::fault::FaultKind;
use crate::harness::{Groups, Harness, Rounds, Time, Timing};
use crate::need::Need;
use crate::subject::Subject;

pub(crate) type Starting = Pin<Box<dyn Future<Output = Arc<dyn AnyHarness>> + Send>>;

/// The constants of a harness, and a function that starts its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) time: Time,
    pub(crate) groups: Groups,
    rounds: Rounds,
    pub(crate) subjects: &'static [Subject],
    pub(crate) lacks: &'static [Need],
    pub(crate) is_pooled: bool,
    hooks: &'static [Need],
    start: fn() -> Starting,
}

impl Profile {
    pub(crate) fn of<H: Harness>() -> Self {
        Self {
            name: H::NAME,
            time: H::TIME,
            groups: H::GROUPS,
            rounds: H::ROUNDS,
            subjects: H::SUBJECTS,
            lacks: H::LACKS,
            is_pooled: H::POOLED,
            hooks: H::HOOKS,
            start: || Box::pin(async { Arc::new(H::start().await) as Arc<dyn AnyHarness> }),
        }
    }

    /// Starts the store, or finds a running store.
    pub(crate) fn start(&self) -> Starting {
        (self.start)()
    }

    /// Returns a runtime for one case.
    pub(crate) fn runtime(&self) -> Runtime {
        let mut builder = match self.time {
            Time::Real => Builder::new_multi_thread(),
            Time::Driven | Time::Virtual => Builder::new_current_thread(),
        };
        builder.worker_threads(2).enable_all().start_paused(self.time == Time::Virtual);
        builder.build().expect("a runtime can be made")
    }

    /// Returns how many of `all` rounds of a long case run on this store.
    pub(crate) fn rounds(&self, all: usize) -> usize {
        if runs_everything() { all } else { self.rounds.of(all) }
    }

    /// Returns why the harness skips a case, if the harness's constants exclude the case.
    pub(crate) fn skips(&self, group: &str, subject: Subject, needs: &[Need]) -> Option<Need> {
        if !runs_everything() && !self.groups.contains(group) {
            return Some(Need::Selection);
        }
        if !runs_everything() && !self.subjects.contains(&subject) {
            return Some(match subject {
                Subject::Layers => Need::VirtualTime,
                _ => Need::Selection,
            });
        }
        let has = |need: &Need| {
            if need.is_hook() { self.offers(*need) } else { !self.lacks.contains(need) }
        };
        needs.iter().copied().find(|need| !has(need))
    }

    /// Returns whether the harness supports this hook.
    pub(crate) fn offers(&self, hook: Need) -> bool {
        self.hooks.contains(&hook) || (hook == Need::Advance && self.time == Time::Driven)
    }
}

/// Returns whether all groups run on all harnesses, including cases of the client in real time.
fn runs_everything() -> bool {
    env::var_os("LEASEHOLD_CONFORMANCE_ALL").is_some()
}

/// An object-safe version of [`Harness`].
#[async_trait]
pub(crate) trait AnyHarness: Send + Sync {
    async fn connect(&self) -> Arc<dyn LockBackend>;
    async fn connect_patiently(&self) -> Arc<dyn LockBackend>;
    async fn probe(&self, key: &LockKey) -> Option<Holder>;
    fn timing(&self) -> Timing;
    fn options(&self) -> LockOptions;
    async fn disturb(&self, fault: FaultKind);
    async fn heal(&self);
    async fn advance_store(&self, by: Duration);
    async fn flush_news(&self);
    fn heartbeat(&self) -> Box<dyn FnMut() + Send>;
    async fn advance(&self, keys: &[LockKey], time: Duration);
}

#[async_trait]
impl<H: Harness> AnyHarness for H {
    async fn connect(&self) -> Arc<dyn LockBackend> {
        Arc::new(Harness::connect(self).await)
    }

    async fn connect_patiently(&self) -> Arc<dyn LockBackend> {
        Arc::new(Harness::connect_patiently(self).await)
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        Harness::probe(self, key).await
    }

    fn timing(&self) -> Timing {
        Harness::timing(self)
    }

    fn options(&self) -> LockOptions {
        Harness::options(self)
    }

    async fn disturb(&self, fault: FaultKind) {
        Harness::disturb(self, fault).await;
    }

    async fn heal(&self) {
        Harness::heal(self).await;
    }

    async fn advance_store(&self, by: Duration) {
        Harness::advance_store(self, by).await;
    }

    async fn flush_news(&self) {
        Harness::flush_news(self).await;
    }

    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Harness::heartbeat(self)
    }

    async fn advance(&self, keys: &[LockKey], time: Duration) {
        Harness::advance(self, keys, time).await;
    }
}
