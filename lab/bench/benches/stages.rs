//! The stages of a lock, each by itself: the cost of our own code, with a store that costs next to nothing.

use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use leasehold_core::backend::{Claim, Lease};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{LockClient, LockGuard, LockKey, Mutex, OwnerId, ReentrantMutex};
use leasehold_redis_support::{Call, Layout};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

criterion_group!(stages, memory, queue, reentrancy, watchdog, call);
criterion_main!(stages);

/// All stages, without other callers.
fn memory(criterion: &mut Criterion) {
    let runtime = runtime();
    let mutex = client().mutex("job").expect("it is a good key");
    criterion.bench_function("memory/lock and release", |bencher| {
        bencher.iter_custom(|times| in_task(&runtime, lock_and_release(mutex.clone(), times)));
    });
}

async fn lock_and_release(mutex: Mutex, times: u64) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        lock(&mutex).await.release().await.expect("memory does not fail");
    }
    began.elapsed()
}

/// Callers of one process that wait for one key: from one to the next.
fn queue(criterion: &mut Criterion) {
    const WAITERS: u64 = 64;

    let runtime = runtime();
    let client = client();
    criterion.bench_function("queue/turn, 64 waiters", |bencher| {
        bencher.iter_custom(|times| {
            let mutex = client.mutex("hot").expect("it is a good key");
            in_task(&runtime, async move {
                let began = Instant::now();
                let mut waiters = JoinSet::new();
                for _ in 0..WAITERS {
                    // Each has as many turns; the time of surplus turns is subtracted.
                    waiters.spawn(lock_and_release(mutex.clone(), times.div_ceil(WAITERS)));
                }
                waiters.join_all().await;
                began.elapsed().mul_f64(times as f64 / times.next_multiple_of(WAITERS) as f64)
            })
        });
    });
}

/// An owner that holds the lock takes it once more.
fn reentrancy(criterion: &mut Criterion) {
    let runtime = runtime();
    let mutex = client().reentrant_mutex("job").expect("it is a good key");
    criterion.bench_function("reentrancy/entry and exit", |bencher| {
        bencher.iter_custom(|times| {
            in_task(&runtime, OwnerId::new().scope(enter_again(mutex.clone(), times)))
        });
    });
}

async fn enter_again(mutex: ReentrantMutex, times: u64) -> Duration {
    let outer = mutex.lock().await.expect("memory does not fail");
    let began = Instant::now();
    for _ in 0..times {
        let inner = mutex.lock().await.expect("memory does not fail");
        inner.release().await.expect("memory does not fail");
    }
    let elapsed = began.elapsed();
    outer.release().await.expect("memory does not fail");
    elapsed
}

/// A lock is filed with the watchdog, and taken out again, beside 10,000 held ones: the difference to the same without
/// other locks is the watchdog's.
fn watchdog(criterion: &mut Criterion) {
    const HELD: u32 = 10_000;

    let runtime = runtime();
    let client = client();
    let mutex = client.mutex("job").expect("it is a good key");
    let held: Vec<LockGuard> = in_task(&runtime, async move {
        let mut held = Vec::new();
        for number in 0..HELD {
            let mutex = client.mutex(format!("held/{number}")).expect("it is a good key");
            held.push(lock(&mutex).await);
        }
        held
    });
    criterion.bench_function("watchdog/lock and release beside 10,000", |bencher| {
        bencher.iter_custom(|times| in_task(&runtime, lock_and_release(mutex.clone(), times)));
    });
    drop(held);
}

/// The request that Redis would get for a lock and for its release, without sending it.
fn call(criterion: &mut Criterion) {
    let layout = Layout::default();
    let key = LockKey::new("job").expect("it is a good key");
    criterion.bench_function("call/acquire and release", |bencher| {
        bencher.iter(|| {
            let claim = Claim::new(Lease::new(&key, Duration::from_secs(30)));
            let acquire = Call::acquire(&layout, &claim, None);
            black_box((acquire, Call::release(&layout, claim.lease())))
        });
    });
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a process can have threads")
}

fn client() -> LockClient<MemoryBackend> {
    LockClient::new(MemoryBackend::new())
}

/// In a task, as in users' programs: the runtime's own thread would have to be woken for each change.
fn in_task<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    runtime.block_on(async { tokio::spawn(future).await.expect("it does not panic") })
}

async fn lock(mutex: &Mutex) -> LockGuard {
    mutex.lock().await.expect("memory does not fail")
}
