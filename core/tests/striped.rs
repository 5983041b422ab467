//! A resource in segments: any one that is free, and the first that becomes free.

mod scene;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::clock::Clock;
use leasehold_core::fault::Fault;
use leasehold_core::{
    ErrorKind, LockClient, LockGuard, LockKey, LockOptions, LossReason, MemoryBackend, Operation,
    Retry, Striped, StripedGuard,
};

use self::scene::{DRIFT, Scene, TTL, dropped_after, key, ms};

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL)
}

fn segments(scene: &Scene, count: u32) -> Striped {
    scene.client.striped("stock", count).unwrap()
}

/// Holds all segments as another process would.
async fn hold_all(scene: &Scene, striped: &Striped) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for segment in striped.segments() {
        guards.push(scene.other.mutex(segment).unwrap().lock().await.unwrap());
    }
    guards
}

mod segments {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn are_as_many_as_make_sense() {
        let client = LockClient::new(MemoryBackend::new());

        for count in [0, Striped::MAX_SEGMENTS + 1, u32::MAX] {
            assert_eq!(client.striped("k", count).unwrap_err().kind(), ErrorKind::Invalid);
        }
        for count in [1, Striped::MAX_SEGMENTS] {
            let striped = client.striped("k", count).unwrap();
            assert_eq!(striped.segments().len(), count as usize);
            let guard = striped.try_lock().await.unwrap().unwrap();
            assert!(guard.segment() < count);
        }
    }

    #[test]
    fn are_named_after_the_key() {
        let client = LockClient::new(MemoryBackend::new());
        let striped = client.striped("50%", 2).unwrap();

        assert_eq!(striped.segments(), [key("50%/0"), key("50%/1")]);
        assert_eq!(format!("{striped:?}"), r#"Striped { key: "50%25", segments: 2 }"#);
    }

    #[test]
    fn need_room_for_their_names() {
        let client = LockClient::new(MemoryBackend::new());
        let longest = [b' '; LockKey::MAX_LEN - 2];

        assert!(client.striped(&longest[..], 10).is_ok());
        let refused = client.striped(&longest[..], 11).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(client.striped("", 1).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[tokio::test(start_paused = true)]
    async fn are_mutexes_of_their_own() {
        let scene = Scene::new();
        let guard = segments(&scene, 4).lock().await.unwrap();

        let name = format!("stock/{}", guard.segment());
        assert_eq!(guard.key(), &key(&name));
        assert_eq!(guard.token().key(), &key(&name));
        assert!(scene.other.mutex(name).unwrap().try_lock().await.unwrap().is_none());
        assert!(scene.other.mutex("stock").unwrap().try_lock().await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn have_the_options_of_the_whole() {
        let scene = Scene::new();
        let short = options().ttl(ms(10_000));
        let striped = segments(&scene, 4).with_options(short).unwrap();

        assert_eq!(striped.lock().await.unwrap().remaining(), ms(10_000 - 102));
        let impossible = striped.with_options(options().ttl(Duration::ZERO));
        assert_eq!(impossible.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

mod any_that_is_free {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_taken_until_all_are_held() {
        let scene = Scene::new();
        let striped = segments(&scene, 5);

        let mut guards = Vec::new();
        for _ in 0..5 {
            guards.push(striped.try_lock().await.unwrap().unwrap());
        }
        let held: BTreeSet<_> = guards.iter().map(StripedGuard::segment).collect();
        assert!(held.into_iter().eq(0..5));

        let asked_at = scene.clock.now();
        assert!(striped.try_lock().await.unwrap().is_none());
        assert!(striped.try_lock_for(Duration::ZERO).await.unwrap().is_none());
        assert_eq!(scene.clock.now(), asked_at);
        drop(guards);
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn is_found_wherever_it_is_and_nothing_else_is_touched() {
        for free in 0..4 {
            let scene = Scene::new();
            let striped = segments(&scene, 4);
            let mut held = hold_all(&scene, &striped).await;
            held.remove(free as usize).release().await.unwrap();

            let guard = striped.lock().await.unwrap();

            assert_eq!(guard.segment(), free);
            guard.release().await.unwrap();
            assert_eq!(scene.story(), [format!("+stock/{free}"), format!("-stock/{free}")]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_another_one_for_each_caller() {
        let scene = Scene::new();
        let striped = segments(&scene, 16);

        let mut taken = BTreeSet::new();
        for _ in 0..100 {
            taken.insert(striped.run(async |guard| guard.segment()).await.unwrap());
        }

        assert!(taken.len() > 4, "all callers begin at the same few: {taken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn is_taken_though_others_fail() {
        for fault in [Fault::Fail(ErrorKind::Denied), Fault::Fail(ErrorKind::Unavailable)] {
            let scene = Scene::new();
            let striped = segments(&scene, 4);
            for failing in [0, 1, 3] {
                let failing = &striped.segments()[failing];
                scene.faults.inject_on(failing, Operation::Acquire, fault, 1_000);
            }

            assert_eq!(striped.try_lock().await.unwrap().unwrap().segment(), 2);
            assert_eq!(scene.left().await, 0);
            assert_eq!(striped.lock().await.unwrap().segment(), 2);
        }
    }
}

mod one_that_failed {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_not_said_to_be_held() {
        let scene = Scene::new();
        let striped = segments(&scene, 4);
        let mut held = hold_all(&scene, &striped).await;
        held.remove(3).release().await.unwrap();
        scene.faults.inject_on(&key("stock/3"), Operation::Acquire, Fault::LoseReply, 1_000);

        let error = striped.try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(error.key(), Some(&key("stock/3")));
        let error = striped.try_lock_for(ms(2_000)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);

        scene.faults.heal();
        drop(held);
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn at_first_may_be_the_one_that_is_taken() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let mut held = hold_all(&scene, &striped).await;
        held.remove(1).release().await.unwrap();
        let fault = Fault::Fail(ErrorKind::Unavailable);
        scene.faults.inject_on(&key("stock/1"), Operation::Acquire, fault, 2);

        assert_eq!(striped.lock().await.unwrap().segment(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn at_first_and_was_held_at_last_is_held() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let _held = hold_all(&scene, &striped).await;
        scene.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 2);

        assert!(striped.try_lock_for(ms(2_000)).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_end_the_waiting_for_the_others() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let mut held = hold_all(&scene, &striped).await;
        let fault = Fault::Fail(ErrorKind::Denied);
        scene.faults.inject_on(&key("stock/0"), Operation::Acquire, fault, 1_000);
        let release = async {
            tokio::time::sleep(ms(500)).await;
            held.remove(2).release().await.unwrap();
        };

        let (locked, ()) = tokio::join!(striped.lock(), release);

        assert_eq!(locked.unwrap().segment(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn is_asked_for_again_while_others_are_waited_for() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let mut held = hold_all(&scene, &striped).await;
        held.remove(2).release().await.unwrap();
        let fault = Fault::Fail(ErrorKind::Unavailable);
        scene.faults.inject_on(&key("stock/2"), Operation::Acquire, fault, 100_000);
        let outage = async {
            tokio::time::sleep(LockOptions::DEFAULT_OUTAGE_WAIT * 2).await;
            scene.faults.heal();
        };

        let (locked, ()) = tokio::join!(striped.try_lock_for(ms(60_000)), outage);

        assert_eq!(locked.unwrap().expect("one is free").segment(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_asked_for_after_the_wait() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let mut held = hold_all(&scene, &striped).await;
        held.remove(2).release().await.unwrap();
        let refused = Fault::Fail(ErrorKind::Unavailable);
        scene.faults.inject_on(&key("stock/2"), Operation::Acquire, refused, 100_000);
        scene.faults.inject(Operation::Release, Fault::SwallowRequest, 100_000);
        let before = scene.faults.calls(Operation::Acquire);

        let locked = striped.try_lock_for(ms(1_000)).await;

        assert_eq!(locked.unwrap_err().kind(), ErrorKind::Unavailable);
        let attempts = scene.faults.calls(Operation::Acquire) - before;
        assert!(attempts < 100, "{attempts} attempts in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn is_waited_for_once_the_store_answers() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let mut held = hold_all(&scene, &striped).await;
        let fault = Fault::Fail(ErrorKind::Unavailable);
        scene.faults.inject_on(&key("stock/2"), Operation::Acquire, fault, 100_000);
        let outage = async {
            tokio::time::sleep(LockOptions::DEFAULT_OUTAGE_WAIT * 2).await;
            scene.faults.heal();
            tokio::time::sleep(ms(5_000)).await;
            held.remove(2).release().await.unwrap();
            scene.clock.now()
        };
        let waiting = async {
            let locked = striped.try_lock_for(ms(60_000)).await;
            (locked, scene.clock.now())
        };

        let ((locked, locked_at), freed_at) = tokio::join!(waiting, outage);

        assert_eq!(locked.unwrap().expect("one is freed").segment(), 2);
        assert!(locked_at.since(freed_at) <= ms(1), "it only looks now and then");
    }

    #[tokio::test(start_paused = true)]
    async fn is_the_error_if_all_do() {
        let scene = Scene::new();
        let fault = Fault::Fail(ErrorKind::Unavailable);
        scene.faults.inject(Operation::Acquire, fault, 100_000);
        let striped = segments(&scene, 3);

        let asked_at = scene.clock.now();
        let error = striped.lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let waited = scene.clock.now().since(asked_at);
        assert!(waited >= LockOptions::DEFAULT_OUTAGE_WAIT && waited <= ms(12_000), "{waited:?}");
    }
}

mod waiting {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ends_with_the_first_that_any_client_frees() {
        for freed in 0..4 {
            let scene = Scene::new();
            let striped = segments(&scene, 4);
            let mut held = hold_all(&scene, &striped).await;
            let release = async {
                tokio::time::sleep(ms(700)).await;
                held.remove(freed as usize).release().await.unwrap();
            };

            let asked_at = scene.clock.now();
            let (guard, ()) = tokio::join!(striped.lock(), release);

            let guard = guard.unwrap();
            assert_eq!(guard.segment(), freed);
            assert_eq!(scene.clock.now(), asked_at + ms(700));
            drop((guard, held));
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_with_the_first_that_is_freed_by_this_process() {
        let scene = Scene::new();
        let striped = segments(&scene, 4);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(striped.lock().await.unwrap());
        }
        let freed = held.swap_remove(1);
        let segment = freed.segment();
        let release = async {
            tokio::time::sleep(ms(700)).await;
            freed.release().await.unwrap();
        };

        let (guard, ()) = tokio::join!(striped.lock(), release);

        assert_eq!(guard.unwrap().segment(), segment);
        drop(held);
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_one_when_all_are_freed_at_once() {
        let scene = Scene::new();
        let striped = segments(&scene, 8);
        let held = hold_all(&scene, &striped).await;
        // Each request that waits for news is answered only when all have been granted.
        let release = async {
            tokio::time::sleep(ms(700)).await;
            scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(50)), 8);
            drop(held);
        };

        let (guard, ()) = tokio::join!(striped.lock(), release);

        let guard = guard.unwrap();
        assert_eq!(scene.left().await, 1, "the late grants are given back");
        assert!(guard.is_held());
        assert!(scene.story().len() > 1, "no grant was late: {:?}", scene.story());
        guard.release().await.unwrap();
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_a_dead_holder_expires() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let _held = hold_all(&scene, &striped).await;
        let asked_at = scene.clock.now();
        scene.client.backend().steal(&key("stock/1"), TTL).await.unwrap();

        let guard = striped.lock().await.unwrap();

        assert_eq!(guard.segment(), 1);
        let waited = scene.clock.now().since(asked_at);
        assert!(waited >= TTL && waited <= TTL + ms(10), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_with_the_wait() {
        for count in [1, 4, Striped::MAX_SEGMENTS] {
            let scene = Scene::with_options(options().wait(ms(2_000)));
            let striped = segments(&scene, count);
            let _held = hold_all(&scene, &striped).await;

            let asked_at = scene.clock.now();
            let error = striped.lock().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key("stock"))));
            assert_eq!(scene.clock.now(), asked_at + ms(2_000));
            assert!(striped.try_lock_for(ms(500)).await.unwrap().is_none());
            assert_eq!(scene.clock.now(), asked_at + ms(2_500));
            assert_eq!(scene.left().await, count as usize);
            assert_eq!(scene.story(), [""; 0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn may_end_at_an_instant() {
        let scene = Scene::new();
        let striped = segments(&scene, 2);
        let _held = hold_all(&scene, &striped).await;

        // The standard library's clock goes on while tokio's is paused: little enough to be told apart.
        let asked_at = scene.clock.now();
        let soon = std::time::Instant::now() + ms(60_000);
        assert!(striped.try_lock_until(soon).await.unwrap().is_none());

        let waited = scene.clock.now().since(asked_at);
        assert!(waited > ms(30_000) && waited <= ms(60_000), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn is_spent_on_a_silent_store_too_and_then_the_silence_is_the_error() {
        let scene = Scene::new();
        let striped = segments(&scene, 4);
        scene.faults.inject(Operation::Acquire, Fault::SwallowReply, 1_000);

        let asked_at = scene.clock.now();
        let error = striped.try_lock_for(ms(2_000)).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(scene.clock.now(), asked_at + ms(2_000));
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn that_ends_before_the_round_does_is_over_all_the_same() {
        let scene = Scene::new();
        let striped = segments(&scene, 8);
        let _held = hold_all(&scene, &striped).await;
        scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(400)), 1_000);

        let asked_at = scene.clock.now();
        assert!(striped.try_lock_for(ms(1_000)).await.unwrap().is_none());

        assert_eq!(scene.clock.now(), asked_at + ms(1_000));
        assert_eq!(scene.faults.calls(Operation::Acquire), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn by_attempts_counts_them_for_each_segment() {
        let counted = Retry::attempts(3).every(ms(200));
        let scene = Scene::with_options(options().retry(counted));
        let striped = segments(&scene, 4);
        let _held = hold_all(&scene, &striped).await;

        let error = striped.lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(scene.faults.calls(Operation::Acquire), 4 + 4 * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn is_served_in_the_order_of_asking_within_a_process() {
        let scene = Scene::new();
        let striped = segments(&scene, 2);
        let mut held = vec![striped.lock().await.unwrap(), striped.lock().await.unwrap()];
        let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
        for caller in 0..3 {
            let (striped, sender) = (striped.clone(), sender.clone());
            tokio::spawn(async move {
                let guard = striped.lock().await.unwrap();
                sender.send((caller, guard)).unwrap();
            });
            tokio::time::sleep(ms(10)).await;
        }

        for caller in 0..3 {
            held.remove(0).release().await.unwrap();
            let (served, guard) = served.recv().await.unwrap();
            assert_eq!(served, caller);
            held.push(guard);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn may_be_dropped_at_any_point() {
        for polls in 0.. {
            let scene = Scene::new();
            let striped = segments(&scene, 3);
            let held = hold_all(&scene, &striped).await;
            scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 100);
            let release = async {
                tokio::time::sleep(ms(100)).await;
                drop(held);
            };

            let (locked, ()) = tokio::join!(dropped_after(polls, striped.lock()), release);

            let done = locked.is_some();
            drop(locked.map(Result::unwrap));
            assert_eq!(scene.left().await, 0, "dropped after {polls} polls");
            for _ in 0..3 {
                assert!(striped.try_lock().await.unwrap().is_some(), "a turn was kept");
            }
            if done {
                assert!(polls > 6, "{polls}");
                break;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_ended_by_a_shutdown() {
        let scene = Scene::new();
        let striped = segments(&scene, 3);
        let _held = hold_all(&scene, &striped).await;
        let waiting = tokio::spawn(async move { striped.lock().await.unwrap_err().kind() });
        tokio::time::sleep(ms(100)).await;

        scene.client.shutdown(TTL).await.unwrap();

        assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lets_no_two_into_one_segment() {
        const SEGMENTS: u32 = 3;

        let store = MemoryBackend::new();
        let clients = [LockClient::new(store.clone()), LockClient::new(store.clone())];
        let inside: Arc<[AtomicBool]> = (0..SEGMENTS).map(|_| AtomicBool::new(false)).collect();
        let tasks = (0..12).map(|task| {
            let striped = clients[task % 2].striped("stock", SEGMENTS).unwrap();
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = striped.lock().await.unwrap();
                    let inside = &inside[guard.segment() as usize];
                    assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                    tokio::task::yield_now().await;
                    inside.store(false, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();

        for task in tasks {
            let task = tokio::time::timeout(Duration::from_secs(60), task).await;
            task.expect("nobody is served").unwrap();
        }

        // What was granted too late is given back right after it.
        let give_up = tokio::time::Instant::now() + Duration::from_secs(5);
        while store.keys() > 0 {
            assert!(tokio::time::Instant::now() < give_up, "a segment is left");
            tokio::task::yield_now().await;
        }
    }
}

mod guard {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_that_of_a_mutex() {
        let scene = Scene::new();
        let guard = segments(&scene, 2).lock().await.unwrap();

        assert!(guard.is_held());
        assert_eq!(guard.remaining(), TTL - DRIFT);
        scene.client.backend().expire(guard.key()).await.unwrap();
        assert_eq!(guard.lost().await, Some(LossReason::Vanished));
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    }

    #[tokio::test(start_paused = true)]
    async fn is_there_while_work_is_run_and_gone_afterwards() {
        let scene = Scene::new();
        let striped = segments(&scene, 2);
        scene.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 999);

        let worked = striped.run(async |guard| guard.is_held()).await;

        assert!(worked.unwrap(), "a release that fails takes nothing away");
        scene.faults.heal();
        assert_eq!(scene.left().await, 0);
        let lost = striped.run(async |guard| {
            scene.client.backend().expire(guard.key()).await.unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(lost.await.unwrap_err().kind(), ErrorKind::LeaseLost);
    }

    /// Futures that users spawn must be `Send`, the closure form included.
    #[tokio::test]
    async fn may_be_awaited_for_in_a_task() {
        const fn assert_send_sync<T: Send + Sync>() {}
        assert_send_sync::<Striped>();
        assert_send_sync::<StripedGuard>();
        let client = LockClient::new(MemoryBackend::new()).erase();
        let striped = client.striped("stock", 2).unwrap();

        let spawned = tokio::spawn(async move {
            striped.lock().await.unwrap().release().await.unwrap();
            striped.try_lock_for(ms(1)).await.unwrap().unwrap().release().await.unwrap();
            striped.run(async |guard| guard.segment()).await.unwrap()
        });

        assert!(spawned.await.unwrap() < 2);
    }
}
