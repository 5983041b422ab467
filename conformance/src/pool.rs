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
    // The clock of a driven store belongs to one case at a time.
    if store.time == Time::Driven {
        match with_pool(store, |pool| (pool.tasks.clone(), pool.idle_of(store).pop())) {
            Some((_, Some(idle))) => idle,
            Some((tasks, None)) => start(&tasks, store).await,
            None => store.start().await,
        }
    } else {
        match with_pool(store, |pool| (pool.tasks.clone(), pool.shared_of(store))) {
            Some((tasks, shared)) => Arc::clone(shared.get_or_init(|| start(&tasks, store)).await),
            None => store.start().await,
        }
    }
}

/// Leaves a store to the next case.
pub(crate) fn give_back(store: &Profile, harness: Arc<dyn AnyHarness>) {
    if store.time == Time::Driven {
        with_pool(store, |pool| pool.idle_of(store).push(harness));
    }
}

/// Does something with the pool, unless the store is for one case alone.
fn with_pool<T>(store: &Profile, work: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    lock().as_mut().filter(|_| store.is_pooled).map(work)
}

/// Starts a store that outlives the case.
async fn start(tasks: &Handle, store: &Profile) -> Arc<dyn AnyHarness> {
    tasks.spawn(store.start()).await.expect("the store starts")
}

impl Pool {
    fn idle_of(&mut self, store: &Profile) -> &mut Vec<Arc<dyn AnyHarness>> {
        self.idle.entry(store.name).or_default()
    }

    fn shared_of(&mut self, store: &Profile) -> Arc<OnceCell<Arc<dyn AnyHarness>>> {
        Arc::clone(self.shared.entry(store.name).or_default())
    }
}

fn lock() -> MutexGuard<'static, Option<Pool>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use leasehold_core::memory::MemoryBackend;
    use leasehold_core::{Holder, LockClient, LockKey};

    use super::*;
    use crate::harness::Harness;
    use crate::test::run_case;

    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static STOPPED: AtomicUsize = AtomicUsize::new(0);

    struct Counted(MemoryBackend);

    impl Drop for Counted {
        fn drop(&mut self) {
            STOPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[async_trait]
    impl Harness for Counted {
        type Backend = MemoryBackend;

        const NAME: &str = "counted";
        const POOLED: bool = true;

        async fn start() -> Self {
            STARTED.fetch_add(1, Ordering::Relaxed);
            Self(MemoryBackend::new())
        }

        async fn connect(&self) -> MemoryBackend {
            self.0.clone()
        }

        async fn witness(&self, key: &LockKey) -> Option<Holder> {
            let inspection = LockClient::new(self.0.clone()).admin().inspect(key).await;
            inspection.unwrap().holders().first().cloned()
        }
    }

    #[test]
    fn cases_share_a_store_unless_they_see_all_keys() {
        used_by(|| {
            run_case::<Counted>("mutual_exclusion", "a_held_lock_is_refused_at_once");
            run_case::<Counted>("mutual_exclusion", "similar_names_are_different_locks");
            assert_eq!(STARTED.load(Ordering::Relaxed), 1);
            assert_eq!(STOPPED.load(Ordering::Relaxed), 0);

            run_case::<Counted>("inspection", "many_keys_are_listed_page_by_page");
            assert_eq!(STARTED.load(Ordering::Relaxed), 2);
        });

        assert_eq!(STOPPED.load(Ordering::Relaxed), 2);
    }
}
