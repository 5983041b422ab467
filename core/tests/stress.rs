//! Threads that use one client at the same time. In a test of the age of leases, only the test
//! advances the clock, so the result does not depend on the load of the machine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::Operation;
use leasehold_core::clock::{Clock, ManualClock, SystemClock};
use leasehold_core::fault::{Fault, FaultBackend};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{LeaseState, LockClient, LockGuard};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::fixture::{Client, TTL, dropped_after, ms, options};

/// Limits the time of a test, which takes about a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(100);

struct Stress {
    client: Client,
    store: MemoryBackend,
    runtime: Runtime,
}

impl Stress {
    fn new(clock: impl Clock + Clone) -> Self {
        let store = MemoryBackend::with_clock(clock.clone());
        let backend = FaultBackend::new(store.clone()).with_clock(clock.clone());
        let client = LockClient::builder(backend).clock(clock).options(options());
        let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
        Self { client: client.build().unwrap(), store, runtime }
    }

    /// Runs one task per number on all threads until all tasks have finished.
    fn run<F: Future<Output = ()> + Send + 'static>(
        &self,
        tasks: usize,
        task: impl Fn(usize) -> F,
    ) {
        self.runtime.block_on(async {
            let mut running: JoinSet<()> = (0..tasks).map(task).collect();
            while let Some(ended) = timeout(LIMIT, running.join_next()).await.expect("a task hangs")
            {
                ended.unwrap();
            }
        });
    }

    /// Checks that neither the client nor the store keeps anything.
    fn assert_nothing_is_left(&self) {
        let shutdown = async { timeout(LIMIT, self.client.shutdown(TTL)).await };
        self.runtime.block_on(shutdown).expect("a release is missing").unwrap();

        assert_eq!(self.store.keys(), 0);
        #[cfg(feature = "_simulation")]
        for (entries, count) in self.client.entries() {
            assert_eq!(count, 0, "{entries}");
        }
    }
}

/// Leases are added, fall due, are renewed, change their TTL and end, each while other threads do
/// the same with other leases.
#[test]
fn leases_that_change_while_others_end_leave_no_entry() {
    const TASKS: usize = 16;
    const ROUNDS: usize = 400;

    /// The number of locks that a task acquires in about half of a TTL.
    const HELD: usize = 32;

    let clock = ManualClock::new();
    let stress = Stress::new(clock.clone());
    stress.run(TASKS, |task| {
        let (client, clock) = (stress.client.clone(), clock.clone());
        async move {
            let mut guards = VecDeque::new();
            for round in 0..ROUNDS {
                let mutex = client.mutex(format!("{task}/{round}")).unwrap();
                guards.push_back(mutex.lock().await.unwrap());
                clock.advance(ms(29));
                yield_now().await;
                // The lease may have expired.
                drop(guards[guards.len() / 2].extend(TTL / (1 << (round % 6))).await);
                if guards.len() > HELD {
                    end(&client, guards.pop_front().unwrap(), round).await;
                }
            }
        }
    });

    stress.assert_nothing_is_left();
}

/// Ends the lease in one of several ways, unless it has expired.
async fn end(client: &Client, guard: LockGuard, round: usize) {
    match round % 4 {
        0 => drop(guard.release().await),
        1 => drop(guard),
        2 => drop(client.admin().force_release(guard.key(), "a test").await.unwrap()),
        _ => drop(client.request_revocation(guard.key()).await.unwrap()),
    }
}

/// Callers lock the keys, wait for them, and leave while they wait. Few callers want the same key,
/// so the queues of the keys appear and disappear all the time.
#[test]
fn callers_of_few_keys_that_come_and_go_take_turns() {
    const TASKS: usize = 8;
    const KEYS: usize = 4;
    const ROUNDS: usize = 10_000;

    /// No lease expires, however busy the machine is.
    const LONG: Duration = Duration::from_secs(3_600);

    #[derive(Default)]
    struct Checked {
        is_held: AtomicBool,
        last_token: AtomicU64,
    }

    let stress = Stress::new(SystemClock);
    let checked: Arc<[Checked; KEYS]> = Arc::default();
    stress.run(TASKS, |task| {
        let client = stress.client.clone();
        let mutexes: Vec<_> = (0..KEYS)
            .map(|n| client.mutex(format!("k{n}")).unwrap().with_options(options().ttl(LONG)))
            .map(Result::unwrap)
            .collect();
        let checked = Arc::clone(&checked);
        async move {
            for round in 0..ROUNDS {
                let n = (task + round) % KEYS;
                let (mutex, Checked { is_held, last_token }) = (&mutexes[n], &checked[n]);
                let locked = match round % 7 {
                    0 => mutex.try_lock().await.ok(),
                    1..=3 => dropped_after(round % 7, mutex.lock()).await.map(Result::unwrap),
                    _ => Some(mutex.lock().await.unwrap()),
                };
                let Some(guard) = locked else { continue };
                assert!(!is_held.swap(true, Ordering::SeqCst), "two callers have the lock");
                let token = guard.token().number();
                assert!(last_token.swap(token, Ordering::SeqCst) < token);
                if round % 3 == 0 {
                    yield_now().await;
                }
                is_held.store(false, Ordering::SeqCst);
                if round % 2 == 0 {
                    drop(guard);
                } else {
                    guard.release().await.unwrap();
                }
            }
        }
    });

    stress.assert_nothing_is_left();
}

/// Threads read the state of the guards of one key while the last possible renewals are confirmed
/// before or after the deadlines.
#[test]
fn lost_guards_of_one_key_stay_lost_for_all_threads() {
    const PERMITS: usize = 32;
    const KEYS: usize = 10;

    /// One step of the clock. The deadline and the last confirmation are in the same step.
    const STEP: Duration = ms(300);

    let clock = ManualClock::new();
    let stress = Stress::new(clock.clone());
    let faults = stress.client.backend().faults();
    for n in 0..KEYS {
        let semaphore = stress.client.semaphore(format!("k{n}"), 32).unwrap();
        let acquired = join_all((0..PERMITS).map(|_| semaphore.acquire(1)));
        let guards = stress.runtime.block_on(acquired).into_iter().map(Result::unwrap);
        let guards: Arc<[LockGuard]> = guards.collect();
        faults.heal();
        faults.inject(Operation::Renew, Fault::SwallowRequest, 2 * PERMITS);
        faults.inject(Operation::Renew, Fault::DelayReply(ms(4_600)), PERMITS);

        stress.run(4, |task| {
            let (clock, guards) = (clock.clone(), Arc::clone(&guards));
            async move {
                let mut lost = [false; PERMITS];
                for _ in 0..400 {
                    if task == 0 {
                        clock.advance(STEP / 4);
                    }
                    for (guard, lost) in guards.iter().zip(&mut lost) {
                        let is_lost = matches!(guard.state(), LeaseState::Lost(_));
                        assert!(is_lost || !*lost, "a lost lease is valid again");
                        *lost = is_lost;
                    }
                    yield_now().await;
                }
            }
        });
    }

    stress.assert_nothing_is_left();
}
