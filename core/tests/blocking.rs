//! The blocking face: real threads, on the store in memory.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::blocking::{Guard, LockClient, Mutex};
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockOptions, LossReason, MemoryBackend, Operation, OwnerId,
};

/// For what is to happen at once, on a machine that is busy.
const LONG: Duration = Duration::from_secs(30);

/// For what is not to happen.
const SHORT: Duration = Duration::from_millis(20);

fn client() -> LockClient {
    LockClient::new(MemoryBackend::new()).unwrap()
}

fn client_with(options: LockOptions) -> (LockClient, MemoryBackend, Faults) {
    let store = MemoryBackend::new();
    let backend = FaultBackend::new(store.clone());
    let faults = backend.faults().clone();
    let client = LockClient::from_async(async || {
        Ok(leasehold_core::LockClient::builder(backend).options(options).build()?.erase())
    });
    (client.unwrap(), store, faults)
}

/// Waits for what another thread is about to bring about.
#[track_caller]
fn wait_until(happened: impl Fn() -> bool) {
    let give_up = Instant::now() + LONG;
    while !happened() {
        assert!(Instant::now() < give_up, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What another thread gets.
fn elsewhere<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(call).join().unwrap())
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

mod mutex {
    use super::*;

    #[test]
    fn keeps_threads_out_of_each_others_way() {
        let mutex = client().mutex("k").unwrap();
        let counter = AtomicU32::new(0);

        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let guard = mutex.lock().unwrap();
                        let seen = counter.load(Ordering::Relaxed);
                        thread::yield_now();
                        counter.store(seen + 1, Ordering::Relaxed);
                        guard.release().unwrap();
                    }
                });
            }
        });

        assert_eq!(counter.into_inner(), 400);
    }

    #[test]
    fn is_not_had_while_it_is_held_however_it_is_tried() {
        let mutex = client().mutex("k").unwrap();
        let guard = mutex.lock().unwrap();
        let impatient = mutex.clone().with_options(LockOptions::new().wait(SHORT)).unwrap();

        let start = Instant::now();
        assert!(mutex.try_lock().unwrap().is_none());
        assert!(mutex.try_lock_for(SHORT).unwrap().is_none());
        assert!(mutex.try_lock_until(start + SHORT * 2).unwrap().is_none());
        assert_eq!(kind(impatient.lock()), Some(ErrorKind::Timeout));

        assert!(start.elapsed() >= SHORT * 2);
        assert!(mutex.is_locked().unwrap());
        guard.release().unwrap();
        assert!(!mutex.is_locked().unwrap());
    }

    #[test]
    fn is_had_when_it_is_free_however_it_is_tried() {
        let mutex = client().mutex("k").unwrap();

        mutex.try_lock().unwrap().unwrap().release().unwrap();
        mutex.try_lock_for(SHORT).unwrap().unwrap().release().unwrap();
        mutex.try_lock_until(Instant::now() + SHORT).unwrap().unwrap().release().unwrap();
        assert_eq!(mutex.key().as_str(), "k");
    }

    #[test]
    fn is_handed_to_the_thread_that_waits() {
        let mutex = client().mutex("k").unwrap();
        let guard = mutex.lock().unwrap();

        thread::scope(|scope| {
            let waiting = scope.spawn(|| mutex.try_lock_for(LONG).unwrap().unwrap().release());
            // It holds in either order; as a rule, the other thread waits by then.
            thread::sleep(SHORT);
            drop(guard);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn runs_work_and_is_free_again_even_if_that_panics() {
        let mutex = client().mutex("k").unwrap();

        let held = mutex.run(|guard| guard.is_held() && mutex.try_lock().unwrap().is_none());
        let panicked = thread::scope(|scope| {
            scope.spawn(|| mutex.run(|_guard| panic!("part of the test"))).join().is_err()
        });

        assert!(held.unwrap());
        assert!(panicked);
        assert!(mutex.try_lock_for(LONG).unwrap().is_some());
    }
}

mod reentrancy {
    use super::*;

    #[test]
    fn is_the_threads() {
        let mutex = client().reentrant_mutex("k").unwrap();
        let outer = mutex.lock().unwrap();

        let inner = [
            mutex.lock().unwrap(),
            mutex.try_lock().unwrap().unwrap(),
            mutex.try_lock_for(SHORT).unwrap().unwrap(),
            mutex.try_lock_until(Instant::now()).unwrap().unwrap(),
        ];
        let inside = mutex.run(|guard| guard.token().number()).unwrap();

        assert!(inner.iter().all(|inner| inner.token() == outer.token()));
        assert_eq!(inside, outer.token().number());
        assert!(elsewhere(|| mutex.try_lock().unwrap().is_none()));
        assert!(elsewhere(|| mutex.try_lock_for(SHORT).unwrap().is_none()));
        drop(inner);
        assert!(outer.is_held() && mutex.is_locked().unwrap());
        elsewhere(|| outer.release()).unwrap();
        assert!(elsewhere(|| mutex.try_lock().unwrap().is_some()));
    }

    #[test]
    fn is_shared_by_the_threads_of_a_scope_and_by_no_others() {
        let mutex = client().reentrant_mutex("k").unwrap();
        let owner = OwnerId::new();

        let outer = owner.sync_scope(|| mutex.lock().unwrap());

        let inner = elsewhere(|| owner.sync_scope(|| mutex.try_lock().unwrap().unwrap()));
        assert_eq!(inner.token(), outer.token());
        assert!(mutex.try_lock().unwrap().is_none());
        assert!(OwnerId::new().sync_scope(|| mutex.try_lock().unwrap().is_none()));
    }

    #[test]
    fn has_a_limit() {
        let once = LockOptions::new().reentry_limit(1);
        let mutex = client().reentrant_mutex("k").unwrap().with_options(once).unwrap();
        let _guard = mutex.lock().unwrap();

        assert_eq!(kind(mutex.lock()), Some(ErrorKind::ReentryLimit));
    }
}

mod rw_lock {
    use super::*;

    #[test]
    fn lets_readers_share_and_a_writer_be_alone() {
        let lock = client().rw_lock("k").unwrap();

        let readers = [
            lock.read().unwrap(),
            lock.try_read().unwrap().unwrap(),
            elsewhere(|| lock.try_read_for(LONG).unwrap().unwrap()),
            lock.try_read_until(Instant::now() + LONG).unwrap().unwrap(),
        ];
        assert!(lock.try_write().unwrap().is_none());
        assert!(lock.try_write_for(SHORT).unwrap().is_none());
        assert!(lock.try_write_until(Instant::now() + SHORT).unwrap().is_none());
        for reader in readers {
            reader.release().unwrap();
        }

        let writer = lock.write().unwrap();
        assert!(lock.try_read().unwrap().is_none());
        assert!(lock.try_read_for(SHORT).unwrap().is_none());
        writer.release().unwrap();
        lock.try_write().unwrap().unwrap().release().unwrap();
        lock.try_write_for(LONG).unwrap().unwrap().release().unwrap();
        let writer = lock.try_write_until(Instant::now() + LONG).unwrap().unwrap();
        assert!(writer.is_held() && lock.is_locked().unwrap());
        writer.into_guard().release().unwrap();
    }

    #[test]
    fn lets_a_writer_become_a_reader() {
        let lock = client().rw_lock("k").unwrap();
        let writer = lock.write().unwrap();
        let token = writer.token().clone();

        let reader = writer.downgrade().unwrap();

        assert_eq!(*reader.token(), token);
        assert!(elsewhere(|| lock.try_read().unwrap().is_some()));
        assert!(lock.try_write().unwrap().is_none());
    }

    #[test]
    fn that_is_reentrant_lets_the_thread_in_again_and_never_a_reader_write() {
        let lock = client().rw_lock("k").unwrap().reentrant();

        let writer = lock.write().unwrap();
        lock.read().unwrap().release().unwrap();
        assert!(elsewhere(|| lock.try_read().unwrap().is_none()));
        writer.release().unwrap();

        let _reader = lock.read().unwrap();
        assert_eq!(kind(lock.write()), Some(ErrorKind::WouldDeadlock));
    }
}

mod semaphore {
    use super::*;

    #[test]
    fn has_so_many_permits_and_no_more() {
        let permits = client().semaphore("k", 3).unwrap();

        let two = permits.acquire(2).unwrap();
        assert_eq!(two.units(), 2);
        assert!(permits.try_acquire(2).unwrap().is_none());
        assert!(permits.try_acquire_for(2, SHORT).unwrap().is_none());
        assert!(permits.try_acquire_until(2, Instant::now() + SHORT).unwrap().is_none());
        assert_eq!(permits.run(1, |_guard| permits.available().unwrap()).unwrap(), 0);
        assert_eq!(kind(permits.acquire(4)), Some(ErrorKind::Invalid));

        two.release().unwrap();
        assert_eq!(permits.available().unwrap(), permits.limit());
    }
}

mod leases {
    use super::*;

    /// Short enough to wait for its end, long enough to be renewed on a machine that is busy.
    const TTL: Duration = Duration::from_secs(1);

    #[test]
    fn are_renewed_while_the_thread_works() {
        let (client, _store, faults) = client_with(LockOptions::new().ttl(TTL));
        let guard = client.mutex("k").unwrap().lock().unwrap();
        let first = guard.deadline();

        // Work that calls nothing of ours which could renew it.
        wait_until(|| faults.calls(Operation::Renew) >= 3 && client.now() > first);

        assert!(guard.is_held());
        guard.release().unwrap();
    }

    #[test]
    fn that_cannot_be_renewed_end_by_themselves() {
        let (client, _store, faults) = client_with(LockOptions::new().ttl(TTL));
        let guard = client.mutex("k").unwrap().lock().unwrap();
        faults.inject(Operation::Renew, Fault::SwallowRequest, 1_000);

        assert_eq!(guard.wait_lost(LONG).unwrap(), Some(LossReason::Expired));

        assert!(client.now() >= guard.deadline());
        assert_eq!(guard.remaining(), Duration::ZERO);
    }

    #[test]
    fn that_are_held_can_be_asked_about_and_extended() {
        let (client, _store, _faults) = client_with(LockOptions::new().ttl(LONG));
        let guard = client.mutex("k").unwrap().lock().unwrap();

        assert_eq!(guard.wait_lost(SHORT).unwrap(), None);
        assert_eq!(guard.state(), LeaseState::Held);
        guard.ensure_held(Duration::from_secs(1)).unwrap();
        guard.extend(LONG * 10).unwrap();

        assert!(guard.remaining() > LONG * 9);
        assert!(guard.deadline() > client.now() + LONG * 9);
        assert_eq!(guard.key().as_str(), "k");
    }

    #[test]
    fn that_an_operator_ends_are_seen_as_lost_by_everybody_who_looks() {
        let client = client();
        let guard = client.mutex("k").unwrap().lock().unwrap();
        let watching = &guard;

        let seen = thread::scope(|scope| {
            let watcher = scope.spawn(|| watching.wait_lost(LONG).unwrap());
            client.admin().force_release("k", "part of the test").unwrap();
            watcher.join().unwrap()
        });

        assert_eq!(seen, Some(LossReason::Vanished));
        assert!(!guard.is_held());
        assert_eq!(kind(guard.ensure_held(Duration::ZERO)), Some(ErrorKind::LeaseLost));
        assert_eq!(kind(guard.extend(LONG)), Some(ErrorKind::LeaseLost));
        assert_eq!(kind(guard.release()), Some(ErrorKind::LeaseLost));
        assert!(!client.admin().inspect("k").unwrap().is_held());
    }

    #[test]
    fn that_are_lost_under_work_are_an_error_once_that_has_ended() {
        let client = client();
        let mutex = client.mutex("k").unwrap();
        let mut ended = false;

        let outcome = mutex.run(|guard| {
            client.admin().force_release("k", "part of the test").unwrap();
            guard.wait_lost(LONG).unwrap();
            ended = true;
        });

        assert!(ended);
        assert_eq!(kind(outcome), Some(ErrorKind::LeaseLost));
    }

    #[test]
    fn whose_release_gets_no_answer_take_no_result_away() {
        let (client, store, faults) = client_with(LockOptions::new());
        faults.inject(Operation::Release, Fault::LoseReply, 1);

        assert_eq!(client.mutex("k").unwrap().run(|_guard| 42).unwrap(), 42);

        assert_eq!(store.keys(), 0);
    }

    #[test]
    fn can_be_asked_back() {
        let client = client();
        let guard = client.mutex("k").unwrap().lock().unwrap();
        assert!(!guard.is_revocation_requested());

        client.request_revocation("k").unwrap();

        wait_until(|| guard.is_revocation_requested());
        assert!(guard.is_held());
    }
}

mod clients {
    use super::*;

    const fn assert_send_sync_static<T: Send + Sync + 'static>(_: &T) {}

    #[test]
    fn are_used_by_many_threads() {
        let client = client();
        assert_send_sync_static(&client);
        assert_send_sync_static(&client.admin());
        assert_send_sync_static(&client.mutex("k").unwrap());
        assert_send_sync_static(&client.reentrant_mutex("k").unwrap());
        assert_send_sync_static(&client.semaphore("k", 1).unwrap());
        let lock = client.rw_lock("rw").unwrap();
        assert_send_sync_static(&lock);
        assert_send_sync_static(&lock.write().unwrap());
        assert_send_sync_static(&client.mutex("k").unwrap().lock().unwrap());

        thread::scope(|scope| {
            for thread in 0..8 {
                let client = client.clone();
                scope.spawn(move || {
                    client.mutex(format!("k{thread}")).unwrap().run(|_guard| {}).unwrap();
                });
            }
        });
    }

    #[test]
    fn that_cannot_be_built_say_why() {
        let refused = LockClient::from_async(async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Err(Error::new(ErrorKind::Denied, "part of the test"))
        });

        assert_eq!(kind(refused), Some(ErrorKind::Denied));
    }

    #[test]
    fn keep_the_tasks_going_that_building_them_started() {
        let beats = Arc::new(AtomicU32::new(0));
        let beating = Arc::clone(&beats);

        let _client = LockClient::from_async(async || {
            tokio::spawn(async move {
                loop {
                    beating.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            Ok(leasehold_core::LockClient::new(MemoryBackend::new()).erase())
        });

        wait_until(|| beats.load(Ordering::Relaxed) > 10);
    }

    #[test]
    fn that_are_shut_down_release_all_and_let_nobody_wait() {
        let (client, store, _faults) = client_with(LockOptions::new());
        let mutex = client.mutex("k").unwrap();
        let guard = mutex.lock().unwrap();

        thread::scope(|scope| {
            let waiting = scope.spawn(|| kind(mutex.lock()));
            // It holds in either order; as a rule, the other thread waits by then.
            thread::sleep(SHORT);
            client.shutdown(LONG).unwrap();
            assert_eq!(waiting.join().unwrap(), Some(ErrorKind::Closed));
        });

        assert_eq!(store.keys(), 0);
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Shutdown));
        assert_eq!(kind(mutex.lock()), Some(ErrorKind::Closed));
    }
}

mod ends {
    use super::*;

    #[test]
    fn a_guard_dropped_after_its_client_is_released_even_if_that_takes_more_than_one_try() {
        let (client, store, faults) = client_with(LockOptions::new());
        let guard = client.mutex("k").unwrap().lock().unwrap();
        faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 3);
        drop(client);

        assert!(guard.is_held());
        guard.extend(LONG).unwrap();
        drop(guard);

        wait_until(|| store.keys() == 0);
        assert_eq!(faults.calls(Operation::Release), 4);
    }

    #[test]
    fn the_background_ends_with_the_last_who_could_need_it() {
        let store = Arc::new(MemoryBackend::new());
        let alive = Arc::downgrade(&store);
        let (needed, ended) = std::sync::mpsc::channel::<()>();
        let client = LockClient::from_async(async || {
            // Nothing but the end of the runtime drops this.
            tokio::spawn(async move {
                let _needed = needed;
                std::future::pending::<()>().await;
            });
            Ok(leasehold_core::LockClient::new(store).erase())
        })
        .unwrap();
        let mutex = client.mutex("k").unwrap();
        let guard = mutex.lock().unwrap();
        drop((client, mutex));
        assert!(ended.recv_timeout(SHORT).is_err_and(|error| error.to_string().contains("timed")));

        drop(guard);

        ended.recv_timeout(LONG).unwrap_err();
        wait_until(|| alive.upgrade().is_none());
    }

    #[test]
    fn a_process_that_holds_a_lock_can_end() {
        const HOLD: &str = "LEASEHOLD_TEST_HOLD";
        if std::env::var_os(HOLD).is_some() {
            std::mem::forget(client().mutex("k").unwrap().lock().unwrap());
            println!("it is held");
            return;
        }
        let this = "ends::a_process_that_holds_a_lock_can_end";
        let child = Command::new(std::env::current_exe().unwrap())
            .args([this, "--exact", "--nocapture"])
            .env(HOLD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();

        let output = child.wait_with_output().unwrap();

        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains("it is held"));
    }
}

mod async_code {
    use super::*;

    /// All calls that wait; what they come to.
    fn calls(client: &LockClient, guard: Guard) -> Vec<Option<ErrorKind>> {
        let now = Instant::now();
        let mutex = client.mutex("m").unwrap();
        let reentrant = client.reentrant_mutex("r").unwrap();
        let lock = client.rw_lock("rw").unwrap();
        let permits = client.semaphore("s", 1).unwrap();
        let admin = client.admin();
        let build = async || Ok(leasehold_core::LockClient::new(MemoryBackend::new()).erase());
        let plain = |_guard: &Guard| ();
        vec![
            kind(mutex.lock()),
            kind(mutex.try_lock()),
            kind(mutex.try_lock_for(SHORT)),
            kind(mutex.try_lock_until(now)),
            kind(mutex.run(plain)),
            kind(mutex.is_locked()),
            kind(reentrant.lock()),
            kind(reentrant.try_lock()),
            kind(reentrant.try_lock_for(SHORT)),
            kind(reentrant.try_lock_until(now)),
            kind(reentrant.run(plain)),
            kind(reentrant.is_locked()),
            kind(lock.read()),
            kind(lock.try_read()),
            kind(lock.try_read_for(SHORT)),
            kind(lock.try_read_until(now)),
            kind(lock.write()),
            kind(lock.try_write()),
            kind(lock.try_write_for(SHORT)),
            kind(lock.try_write_until(now)),
            kind(lock.is_locked()),
            kind(permits.acquire(1)),
            kind(permits.try_acquire(1)),
            kind(permits.try_acquire_for(1, SHORT)),
            kind(permits.try_acquire_until(1, now)),
            kind(permits.run(1, plain)),
            kind(permits.available()),
            kind(admin.inspect("k")),
            kind(admin.force_release("k", "part of the test")),
            kind(client.request_revocation("k")),
            kind(client.shutdown(SHORT)),
            kind(guard.wait_lost(SHORT)),
            kind(guard.extend(LONG)),
            kind(guard.release()),
            kind(LockClient::from_async(build)),
        ]
    }

    #[tokio::test]
    async fn is_told_to_await_by_every_call_that_would_block_it() {
        let (client, guard) = elsewhere(|| {
            let client = client();
            let guard = client.mutex("k").unwrap().lock().unwrap();
            (client, guard)
        });

        for (n, kind) in calls(&client, guard).iter().enumerate() {
            assert_eq!(*kind, Some(ErrorKind::Unsupported), "call {n}");
        }
    }

    #[test]
    fn is_any_place_where_a_runtime_is_entered() {
        let client = client();
        let mutex = client.mutex("k").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let try_lock = |mutex: &Mutex| kind(mutex.try_lock());

        let entered = {
            let _entered = runtime.enter();
            try_lock(&mutex)
        };
        let blocking = mutex.clone();
        let blocking = runtime.block_on(runtime.spawn_blocking(move || try_lock(&blocking)));

        assert_eq!(entered, Some(ErrorKind::Unsupported));
        assert_eq!(blocking.unwrap(), Some(ErrorKind::Unsupported));
        assert_eq!(try_lock(&mutex), None);
    }

    #[test]
    fn may_make_look_at_and_drop_all_of_it() {
        let (client, store, _faults) = client_with(LockOptions::new());
        let guard = client.mutex("k").unwrap().lock().unwrap();
        let writer = client.rw_lock("rw").unwrap().write().unwrap();
        let released = client.mutex("released").unwrap().lock().unwrap();
        let downgraded = client.rw_lock("downgraded").unwrap().write().unwrap();

        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async move {
            drop(LockClient::new(MemoryBackend::new()).unwrap());
            assert!(guard.is_held() && writer.is_held());
            assert_eq!(kind(released.release()), Some(ErrorKind::Unsupported));
            assert_eq!(kind(downgraded.downgrade()), Some(ErrorKind::Unsupported));
            drop((guard, writer, client));
        });

        wait_until(|| store.keys() == 0);
    }
}

mod other_kinds {
    use super::*;

    #[test]
    fn several_locks_are_all_taken_or_none() {
        let client = LockClient::new(MemoryBackend::new()).unwrap();
        let both = client.multi_lock().mutexes(["b", "a"]).unwrap().permits("c", 1, 2).unwrap();

        let guard = both.lock().unwrap();
        assert!(guard.is_held());
        assert_eq!(
            guard.tokens().map(|token| token.key().as_str()).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        assert!(both.try_lock().unwrap().is_none());
        assert!(client.mutex("b").unwrap().try_lock().unwrap().is_none());
        assert_eq!(guard.wait_lost(Duration::ZERO).unwrap(), None);
        guard.release().unwrap();

        let held = client.mutex("b").unwrap().lock().unwrap();
        assert!(both.try_lock_for(Duration::from_millis(20)).unwrap().is_none());
        assert!(client.mutex("a").unwrap().try_lock().unwrap().is_some(), "none is kept");
        drop(held);
        assert_eq!(both.run(|guard| guard.tokens().count()).unwrap(), 3);
    }

    #[test]
    fn a_loss_during_the_work_is_reported_after_it() {
        let client = LockClient::new(MemoryBackend::new()).unwrap();
        let end = |key: &str| {
            assert_eq!(client.admin().force_release(key, "test").unwrap().ended().len(), 1);
        };
        let lost = |error: Error| assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");

        let both = client.multi_lock().mutexes(["a", "b"]).unwrap();
        let ran = both.run(|guard| {
            end("b");
            assert!(guard.wait_lost(Duration::from_secs(10)).unwrap().is_some());
        });
        lost(ran.unwrap_err());
        let election = client.election("e").unwrap();
        let ran = election.run_leader("one", |term| {
            end("e");
            assert!(term.wait_lost(Duration::from_secs(10)).unwrap().is_some());
        });
        lost(ran.unwrap_err());
    }

    #[test]
    fn each_segment_is_held_once() {
        let client = LockClient::new(MemoryBackend::new()).unwrap();
        let stock = client.striped("stock", 3).unwrap();

        let guards: Vec<_> = (0..3).map(|_| stock.lock().unwrap()).collect();
        let mut segments: Vec<u32> = guards.iter().map(|guard| guard.segment()).collect();
        segments.sort_unstable();
        assert_eq!(segments, [0, 1, 2]);
        assert!(stock.try_lock().unwrap().is_none());
        for guard in guards {
            guard.release().unwrap();
        }
        assert!(stock.run(|guard| guard.segment()).unwrap() < 3);
    }

    #[test]
    fn a_leader_is_observed_by_other_threads() {
        let client = LockClient::new(MemoryBackend::new()).unwrap();
        let election = client.election("scheduler").unwrap();
        let mut observer = election.observe();
        let soon = Duration::from_secs(10);
        assert_eq!(observer.next_within(soon).unwrap(), Some(None));
        assert_eq!(observer.next_within(Duration::ZERO).unwrap(), None);

        let seen = thread::spawn(move || {
            let mut values = Vec::new();
            while values.last().map(String::as_str) != Some("two") {
                let leader = observer.next_within(soon).unwrap().expect("something changes");
                values.extend(leader.map(|leader| leader.value().to_string()));
            }
            values
        });
        let term = election.campaign("one").unwrap();
        assert!(election.try_campaign("another").unwrap().is_none());
        term.proclaim("two").unwrap();
        assert_eq!(term.value().as_str(), "two");

        assert_eq!(seen.join().unwrap().last().unwrap(), "two");
        assert!(term.is_held());
        term.resign().unwrap();
        assert!(election.leader().unwrap().is_none());
    }
}
