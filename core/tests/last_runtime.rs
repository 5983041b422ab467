//! Releases that the last runtime leaves behind are sent by a thread, and drops wait for it a little.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use std::{fs, thread};

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::fault::{Fault, FaultBackend};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::observe::Observer;
use leasehold_core::{LockClient, LockGuard};
use tokio::runtime::{Builder, Runtime};

/// The time for which drops wait in all.
const PATIENCE: Duration = Duration::from_secs(2);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn guard<B: LockBackend>(client: &LockClient<B>, runtime: &Runtime, key: &str) -> LockGuard {
    runtime.block_on(client.mutex(key).unwrap().lock()).unwrap()
}

/// Waits until the thread that sends releases has ended.
fn until_no_thread_sends() {
    let is_sender = |task: std::io::Result<fs::DirEntry>| {
        // The system keeps 15 bytes of a name. A thread that ends meanwhile has none.
        let name = fs::read_to_string(task.unwrap().path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "leasehold-relea")
    };
    while fs::read_dir("/proc/self/task").unwrap().any(is_sender) {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_end_of_the_last_runtime_releases_dropped_guards() {
    for runtime in [one_thread(), two_threads()] {
        let client = LockClient::new(MemoryBackend::new());
        drop(guard(&client, &runtime, "k"));

        drop(runtime);

        assert_eq!(client.backend().keys(), 0);
    }
}

#[test]
fn the_end_of_the_last_runtime_releases_the_guards_of_its_tasks() {
    for runtime in [one_thread(), two_threads()] {
        let client = LockClient::new(MemoryBackend::new());
        for task in 0..100 {
            let guard = guard(&client, &runtime, &format!("task-{task}"));
            runtime.spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
        }

        drop(runtime);

        assert_eq!(client.backend().keys(), 0);
    }
}

#[test]
fn a_guard_that_outlives_all_runtimes_is_released_by_its_drop() {
    let client = LockClient::new(MemoryBackend::new());
    let runtime = one_thread();
    let (one, other) = (guard(&client, &runtime, "one"), guard(&client, &runtime, "other"));
    drop(runtime);
    assert_eq!(client.backend().keys(), 2);

    drop(one);
    assert_eq!(client.backend().keys(), 1);

    until_no_thread_sends();
    drop(other);
    assert_eq!(client.backend().keys(), 0);
}

#[test]
fn a_guard_that_outlives_its_client_is_released_by_its_drop() {
    let store = MemoryBackend::new();
    let client = LockClient::new(store.clone());
    let runtime = one_thread();
    let guard = guard(&client, &runtime, "k");
    drop((runtime, client));

    drop(guard);

    assert_eq!(store.keys(), 0);
}

#[test]
fn a_store_that_does_not_answer_delays_all_drops_together_by_two_seconds() {
    let client = LockClient::new(FaultBackend::new(MemoryBackend::new()));
    let faults = client.backend().faults();
    let runtime = one_thread();
    let guards: Vec<_> = (0..10).map(|n| guard(&client, &runtime, &format!("{n}"))).collect();
    faults.inject(Operation::Release, Fault::SwallowRequest, 1_000);
    let start = Instant::now();

    drop(runtime);
    assert!(start.elapsed() < PATIENCE, "nothing was left");
    drop(guards);

    let waited = start.elapsed();
    assert!(waited >= PATIENCE && waited < PATIENCE * 2, "{waited:?}");
}

#[test]
fn a_runtime_that_is_left_spares_drops_the_wait() {
    let client = LockClient::new(FaultBackend::new(MemoryBackend::new()));
    let faults = client.backend().faults();
    let (one, other) = (one_thread(), one_thread());
    let guards = [guard(&client, &one, "one"), guard(&client, &other, "other")];
    faults.inject(Operation::Release, Fault::SwallowRequest, 2);
    let start = Instant::now();

    drop(guards);
    drop(one);

    assert!(start.elapsed() < PATIENCE);
    drop(other);
    assert!(start.elapsed() >= PATIENCE, "the thread retries the releases that the task left");
}

/// An observer that lives as long as the client and its leases.
struct Present {
    _count: Arc<()>,
}

impl Observer for Present {}

#[test]
fn a_renewal_that_no_task_can_repeat_does_not_keep_the_lease_in_memory() {
    let count = Arc::new(());
    let present = Present { _count: Arc::clone(&count) };
    let backend = FaultBackend::new(MemoryBackend::new());
    let client = LockClient::builder(backend).observer(present).build().unwrap();
    let runtime = one_thread();
    let guard = guard(&client, &runtime, "k");
    client.backend().faults().inject(Operation::Renew, Fault::SwallowRequest, 1);

    runtime.block_on(async {
        let mut renewal = pin!(guard.extend(Duration::from_secs(60)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(renewal.as_mut().poll(&mut context).is_pending());
    });
    drop(runtime);
    drop(guard);
    drop(client);
    until_no_thread_sends();

    assert_eq!(Arc::strong_count(&count), 1, "the lease is still in memory");
}
