//! Stores that several cases of one process use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::OnceCell;

use crate::harness::Time;
use crate::profile::{AnyHarness, Profile};

/// The stores of this process, while a test binary runs its cases.
static POOL: Mutex<Option<Pool>> = Mutex::new(None);

struct Pool {
    /// Runs the tasks of the harnesses, such as proxies: the runtime of a case ends with the case.
    tasks: Handle,
    /// Stores that cases use at the same time.
    shared: HashMap<&'static str, Arc<OnceCell<Arc<dyn AnyHarness>>>>,
    /// Stores that a case has left to the next.
    idle: HashMap<&'static str, Vec<Arc<dyn AnyHarness>>>,
}

/// Runs `cases`, which may use each other's stores, and stops the stores when they have ended.
pub(crate) fn used_by<T>(cases: impl FnOnce() -> T) -> T {
    let runtime: Runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let tasks = runtime.handle().clone();
    *lock() = Some(Pool { tasks, shared: HashMap::new(), idle: HashMap::new() });

    let output = cases();

    let pool = lock().take();
    let _entered = runtime.enter();
    drop(pool);
    output
}

/// A store for a case that disturbs no other.
pub(crate) async fn take(store: &Profile) -> Arc<dyn AnyHarness> {
    let found = lock().as_mut().filter(|_| store.is_pooled).map(|pool| pool.find(store));
    match found {
        None => store.start().await,
        Some(Found::Idle(harness)) => harness,
        Some(Found::None(tasks)) => started(&tasks, store).await,
        Some(Found::Shared(tasks, cell)) => {
            Arc::clone(cell.get_or_init(|| started(&tasks, store)).await)
        }
    }
}

/// Leaves a store to the next case.
pub(crate) fn give_back(store: &Profile, harness: Arc<dyn AnyHarness>) {
    if let Some(pool) = &mut *lock()
        && store.is_pooled
        && store.time == Time::Driven
    {
        pool.idle.entry(store.name).or_default().push(harness);
    }
}

async fn started(tasks: &Handle, store: &Profile) -> Arc<dyn AnyHarness> {
    tasks.spawn(store.start()).await.expect("the store starts")
}

enum Found {
    Idle(Arc<dyn AnyHarness>),
    None(Handle),
    Shared(Handle, Arc<OnceCell<Arc<dyn AnyHarness>>>),
}

impl Pool {
    fn find(&mut self, store: &Profile) -> Found {
        let tasks = self.tasks.clone();
        // The clock of a driven store belongs to one case at a time.
        if store.time != Time::Driven {
            return Found::Shared(tasks, Arc::clone(self.shared.entry(store.name).or_default()));
        }
        match self.idle.get_mut(store.name).and_then(Vec::pop) {
            Some(harness) => Found::Idle(harness),
            None => Found::None(tasks),
        }
    }
}

fn lock() -> MutexGuard<'static, Option<Pool>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}
