//! The stores that several test cases in one process share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::fault::FaultKind;
use crate::harness::Time;
use crate::profile::{AnyHarness, Profile};

/// The number of stores of a harness that its cases use one at a time. Each store takes time to
/// start, and uses the CPU even while idle.
const EXCLUSIVE_STORES: usize = 2;

const OUTLIVES: &str = "the pool outlives its cases";

/// The stores of this process, for as long as a test binary runs its cases.
static POOL: Mutex<Option<Pool>> = Mutex::new(None);

struct Pool {
    /// The runtime of the harnesses' tasks, such as proxies. The tasks cannot run on a case's
    /// runtime, which ends with the case.
    tasks: Handle,
    /// The stores that cases use at the same time.
    shared: HashMap<&'static str, Arc<OnceCell<Arc<dyn AnyHarness>>>>,
    /// The stores that cases use one at a time.
    exclusive: HashMap<&'static str, Exclusive>,
}

/// The stores of one harness that cases use one at a time.
struct Exclusive {
    turns: Arc<Semaphore>,
    /// The stores that a case has returned.
    idle: Vec<Arc<dyn AnyHarness>>,
}

impl Default for Exclusive {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(EXCLUSIVE_STORES)), idle: Vec::new() }
    }
}

/// The use of a store by one case.
pub(crate) struct Use {
    pub(crate) harness: Arc<dyn AnyHarness>,
    /// The turn of a case that uses the store exclusively.
    turn: Option<Turn>,
}

struct Turn {
    _permit: OwnedSemaphorePermit,
    tasks: Handle,
}

impl Use {
    /// Causes a fault on the store's runtime. A harness that restarts its store opens new
    /// connections, which later cases use.
    pub(crate) async fn disturb(&self, fault: FaultKind) {
        let harness = Arc::clone(&self.harness);
        self.on_runtime(async move { harness.disturb(fault).await }).await;
    }

    /// Ends all faults on the store's runtime.
    pub(crate) async fn heal(&self) {
        let harness = Arc::clone(&self.harness);
        self.on_runtime(async move { harness.heal().await }).await;
    }

    async fn on_runtime(&self, change: impl Future<Output = ()> + Send + 'static) {
        match &self.turn {
            Some(turn) => turn.tasks.spawn(change).await.expect("disturbing the store panicked"),
            None => change.await,
        }
    }
}

/// The cases that may share a store with a case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sharing {
    /// Concurrent cases and later cases.
    Now,
    /// Later cases.
    Later,
    /// No other cases.
    Never,
}

/// Runs `cases`, which may share stores, and stops the stores afterwards.
pub(crate) fn used_by<T>(cases: impl FnOnce() -> T) -> T {
    let runtime: Runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let tasks = runtime.handle().clone();
    *lock() = Some(Pool { tasks, shared: HashMap::new(), exclusive: HashMap::new() });

    let output = cases();

    let pool = lock().take();
    let _entered = runtime.enter();
    drop(pool);
    output
}

/// Returns a store for a case.
pub(crate) async fn take(store: &Profile, sharing: Sharing) -> Use {
    let tasks = with_pool(store, |pool| pool.tasks.clone());
    let Some(tasks) = tasks.filter(|_| sharing != Sharing::Never) else {
        return Use { harness: store.start().await, turn: None };
    };
    // The clock of a driven store can be used by only one case at a time.
    if sharing == Sharing::Now && store.time != Time::Driven {
        let shared = with_pool(store, |pool| pool.shared_of(store)).expect(OUTLIVES);
        let harness = Arc::clone(shared.get_or_init(|| start(&tasks, store)).await);
        return Use { harness, turn: None };
    }
    let turns = with_pool(store, |pool| Arc::clone(&pool.exclusive_of(store).turns));
    let permit = turns.expect(OUTLIVES).acquire_owned().await.expect("it is never closed");
    let idle = with_pool(store, |pool| pool.exclusive_of(store).idle.pop()).expect(OUTLIVES);
    let harness = match idle {
        Some(idle) => idle,
        None => start(&tasks, store).await,
    };
    Use { harness, turn: Some(Turn { _permit: permit, tasks }) }
}

/// Returns a store to the pool, for the next case.
pub(crate) fn give_back(store: &Profile, used: Use) {
    if used.turn.is_some() {
        with_pool(store, |pool| pool.exclusive_of(store).idle.push(used.harness));
    }
}

/// Calls `work` with the pool. Returns `None` if each case has a separate store.
fn with_pool<T>(store: &Profile, work: impl FnOnce(&mut Pool) -> T) -> Option<T> {
    lock().as_mut().filter(|_| store.is_pooled).map(work)
}

/// Starts a store on the runtime `tasks`, so that the store outlives the case.
async fn start(tasks: &Handle, store: &Profile) -> Arc<dyn AnyHarness> {
    tasks.spawn(store.start()).await.expect("starting the store panicked")
}

impl Pool {
    fn exclusive_of(&mut self, store: &Profile) -> &mut Exclusive {
        self.exclusive.entry(store.name).or_default()
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
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use leasehold_core::memory::MemoryBackend;
    use leasehold_core::{Holder, LockClient, LockKey};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::harness::Harness;
    use crate::test::run_case;

    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static STOPPED: AtomicUsize = AtomicUsize::new(0);
    /// The task of a connection that a disturbance opened.
    static OPENED: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

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

        async fn probe(&self, key: &LockKey) -> Option<Holder> {
            let inspection = LockClient::new(self.0.clone()).admin().inspect(key).await;
            inspection.unwrap().holders().first().cloned()
        }

        async fn heal(&self) {
            *OPENED.lock().unwrap() = Some(tokio::spawn(pending()));
        }
    }

    #[test]
    fn stores_outlive_cases_that_may_share_them() {
        used_by(|| {
            run_case::<Counted>("mutual_exclusion", "a_held_lock_is_refused_at_once").unwrap();
            run_case::<Counted>("mutual_exclusion", "similar_names_are_different_locks").unwrap();
            assert_eq!(STARTED.load(Ordering::Relaxed), 1);
            assert_eq!(STOPPED.load(Ordering::Relaxed), 0);

            run_case::<Counted>("fencing", "tokens_strictly_increase").unwrap();
            run_case::<Counted>("fencing", "tokens_strictly_increase").unwrap();
            assert_eq!(STARTED.load(Ordering::Relaxed), 2);
            assert_eq!(STOPPED.load(Ordering::Relaxed), 0);

            run_case::<Counted>("membership", "a_renewal_raises_the_minimum_token").unwrap();
            assert_eq!(STARTED.load(Ordering::Relaxed), 3);
            assert_eq!(STOPPED.load(Ordering::Relaxed), 1);

            let store = Profile::of::<Counted>();
            store.runtime().block_on(async {
                let used = take(&store, Sharing::Later).await;
                used.heal().await;
                give_back(&store, used);
            });
            let task = OPENED.lock().unwrap().take().unwrap();
            assert!(
                !task.is_finished(),
                "the connection was closed at the end of the case that opened it"
            );
        });

        assert_eq!(STOPPED.load(Ordering::Relaxed), 3);
    }
}
