//! Several locks at once: all or none, in one order, within one wait.

mod scene;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{Clock, Instant, Sleep, TokioClock};
use leasehold_core::fault::Fault;
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, ErrorKind, Feature, Lease, LockBackend, LockClient,
    LockOptions, LossReason, MemoryBackend, MultiGuard, MultiLock, Operation, Release, Renewal,
    RenewalMode,
};

use self::scene::{DRIFT, Scene, TTL, dropped_after, key, ms};

const KEYS: [&str; 3] = ["a", "b", "c"];

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL)
}

fn three(scene: &Scene) -> MultiLock {
    scene.client.multi_lock().mutexes(KEYS).unwrap()
}

/// The parts of which no other client gets a lock.
async fn closed(scene: &Scene) -> Vec<&'static str> {
    let mut closed = Vec::new();
    for key in KEYS {
        match scene.other.mutex(key).unwrap().try_lock().await.unwrap() {
            Some(guard) => guard.release().await.unwrap(),
            None => closed.push(key),
        }
    }
    closed
}

mod parts {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_must_be_some() {
        let scene = Scene::new();
        let nothing = scene.client.multi_lock().mutexes([""; 0]).unwrap();

        for refused in [
            nothing.lock().await.map(Some),
            nothing.try_lock().await,
            nothing.try_lock_for(ms(10)).await,
            nothing.run(async |_| unreachable!()).await,
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!(scene.faults.calls(Operation::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_key_are_refused_whatever_they_are() {
        let scene = Scene::new();
        let one = || scene.client.multi_lock().mutex("a").unwrap();

        for refused in [
            one().mutex("a"),
            one().mutexes(["b", "a"]),
            one().read("a"),
            one().write("a"),
            one().permits("a", 1, 2),
            scene.client.multi_lock().mutexes(["b", "b"]),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!(scene.faults.calls(Operation::Acquire), 0);
    }

    #[test]
    fn that_can_never_be_had_are_refused() {
        let client = LockClient::new(MemoryBackend::new());

        for (permits, limit) in [(0, 1), (2, 1), (1, 0)] {
            let refused = client.multi_lock().permits("a", permits, limit);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!(client.multi_lock().mutex("").unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[tokio::test(start_paused = true)]
    async fn that_the_store_cannot_do_are_refused() {
        let client = LockClient::new(Plain(MemoryBackend::new()));
        let fair = options().fair(true);

        for refused in [
            client.multi_lock().read("a"),
            client.multi_lock().write("a"),
            client.multi_lock().permits("a", 1, 2),
            client.multi_lock().with_options(fair.clone()),
            client.multi_lock().mutex("a").unwrap().with_options(fair),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
        }
        assert!(client.multi_lock().mutex("a").unwrap().try_lock().await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn all_have_the_options_of_the_whole() {
        let scene = Scene::new();
        let short = options().ttl(ms(10_000));
        let whole = scene.client.multi_lock().mutex("a").unwrap();
        let whole = whole.with_options(short).unwrap().mutex("b").unwrap();

        let guard = whole.lock().await.unwrap();

        for part in guard.guards() {
            assert_eq!(part.remaining(), ms(10_000 - 102));
        }
        let impossible = whole.with_options(options().ttl(Duration::ZERO));
        assert_eq!(impossible.unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[tokio::test(start_paused = true)]
    async fn are_the_locks_that_are_had_one_by_one() {
        let scene = Scene::new();
        let whole = scene.client.multi_lock().write("writer").unwrap().read("reader").unwrap();
        let whole = whole.permits("permits", 2, 3).unwrap().mutex("mutex").unwrap();
        let other = &scene.other;

        let guard = whole.lock().await.unwrap();

        assert!(other.mutex("mutex").unwrap().try_lock().await.unwrap().is_none());
        let semaphore = other.semaphore("permits", 3).unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 1);
        assert!(semaphore.try_acquire(2).await.unwrap().is_none());
        let reader = other.rw_lock("reader").unwrap();
        assert!(reader.try_read().await.unwrap().is_some());
        assert!(reader.try_write().await.unwrap().is_none());
        assert!(other.rw_lock("writer").unwrap().try_read().await.unwrap().is_none());
        assert_eq!(guard.get("permits").unwrap().units(), 2);
        guard.release().await.unwrap();
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn have_tokens_of_their_own() {
        let scene = Scene::new();

        let guard = three(&scene).lock().await.unwrap();

        for name in KEYS {
            assert_eq!(guard.get(name).unwrap().token().key(), &key(name));
        }
        let tokens: Vec<_> = guard.guards().iter().map(|part| part.token().number()).collect();
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
        assert!(guard.get("d").is_none() && guard.get("").is_none());
    }

    /// A store of mutexes and nothing else.
    #[derive(Debug)]
    struct Plain(MemoryBackend);

    #[async_trait]
    impl LockBackend for Plain {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities().without(Feature::Units).without(Feature::Queue)
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            self.0.try_acquire(claim).await
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.0.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.0.release(lease).await
        }
    }
}

mod order {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_that_of_the_keys_and_back() {
        for added in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
            let scene = Scene::new();
            let whole = scene.client.multi_lock().mutexes(added).unwrap();
            assert!(whole.keys().map(|key| key.as_str()).eq(KEYS));

            whole.lock().await.unwrap().release().await.unwrap();

            assert_eq!(scene.story(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_kept_when_the_guard_is_dropped() {
        let scene = Scene::new();

        drop(three(&scene).lock().await.unwrap());

        assert_eq!(scene.left().await, 0);
        assert_eq!(scene.story(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn is_kept_when_the_last_part_is_not_to_be_had() {
        let scene = Scene::new();
        let _held = scene.other.mutex("c").unwrap().lock().await.unwrap();

        assert!(three(&scene).try_lock().await.unwrap().is_none());

        assert_eq!(scene.left().await, 1);
        assert_eq!(scene.story(), ["+a", "+b", "-b", "-a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn is_kept_when_the_release_is_dropped() {
        let scene = Scene::new();
        let guard = three(&scene).lock().await.unwrap();
        scene.faults.inject(Operation::Release, Fault::SwallowRequest, 3);

        assert!(dropped_after(1, guard.release()).await.is_none());

        assert_eq!(scene.left().await, 0);
        assert_eq!(scene.story(), ["+a", "+b", "+c", "-c", "-b", "-a"]);
    }

    /// {a, b} against {b, a}, from two processes with many tasks each.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lets_nobody_wait_in_a_circle_and_no_two_in_at_once() {
        const TASKS: u32 = 8;
        const TIMES: u32 = 25;

        let store = MemoryBackend::new();
        let clients = [LockClient::new(store.clone()), LockClient::new(store.clone())];
        let inside = Arc::new(AtomicU32::new(0));
        let tasks = (0..TASKS).map(|task| {
            let client = clients[task as usize % 2].clone();
            let keys = if task % 4 < 2 { ["a", "b"] } else { ["b", "a"] };
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                let whole = client.multi_lock().mutexes(keys).unwrap();
                for _ in 0..TIMES {
                    let guard = whole.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
                TIMES
            })
        });
        let tasks: Vec<_> = tasks.collect();

        let mut done = 0;
        for task in tasks {
            let task = tokio::time::timeout(Duration::from_secs(60), task).await;
            done += task.expect("they wait for each other").unwrap();
        }

        assert_eq!(done, TASKS * TIMES);
        assert_eq!(store.keys(), 0);
    }
}

mod all_or_none {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_attempt_waits_for_nothing_and_keeps_nothing() {
        for held in KEYS {
            let scene = Scene::new();
            let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();

            let asked_at = scene.clock.now();
            assert!(three(&scene).try_lock().await.unwrap().is_none());
            assert_eq!(scene.clock.now(), asked_at);

            assert_eq!(closed(&scene).await, [held], "at once");
            assert_eq!(scene.left().await, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_attempt_does_not_wait_for_callers_of_this_process() {
        for held in KEYS {
            let scene = Scene::new();
            let held = scene.client.mutex(held).unwrap().lock().await.unwrap();

            let asked_at = scene.clock.now();
            assert!(three(&scene).try_lock().await.unwrap().is_none());
            assert!(three(&scene).try_lock_for(Duration::ZERO).await.unwrap().is_none());
            assert_eq!(scene.clock.now(), asked_at);

            held.release().await.unwrap();
            assert!(three(&scene).try_lock_for(Duration::ZERO).await.unwrap().is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_fails_is_the_error_and_nothing_is_kept() {
        for (n, failing) in KEYS.into_iter().enumerate() {
            for (fault, kind) in [
                (Fault::Fail(ErrorKind::Denied), ErrorKind::Denied),
                (Fault::Fail(ErrorKind::Unavailable), ErrorKind::Unavailable),
                (Fault::Fail(ErrorKind::Refused), ErrorKind::Refused),
                (Fault::LoseReply, ErrorKind::Indeterminate),
                (Fault::SwallowReply, ErrorKind::Indeterminate),
                (Fault::SwallowRequest, ErrorKind::Indeterminate),
            ] {
                let scene = Scene::new();
                scene.faults.inject_on(&key(failing), Operation::Acquire, fault, 1);

                let error = three(&scene).try_lock().await.unwrap_err();

                assert_eq!(error.kind(), kind, "{fault:?} on {failing}");
                assert_eq!(error.key(), Some(&key(failing)));
                assert_eq!(error.operation(), Some(Operation::Acquire));
                assert_eq!(scene.faults.calls(Operation::Acquire), n + 1);
                assert_eq!(scene.left().await, 0, "{fault:?} on {failing}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_another_kind_is_the_error_and_nothing_is_kept() {
        for other in KEYS {
            let scene = Scene::new();
            let _held = scene.other.semaphore(other, 2).unwrap().acquire(1).await.unwrap();

            let error = three(&scene).lock().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(&key(other))));
            assert_eq!(scene.left().await, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_back_in_time_is_no_error() {
        for failing in KEYS {
            let scene = Scene::new();
            scene.faults.inject_on(&key(failing), Operation::Acquire, Fault::LoseReply, 2);

            let guard = three(&scene).lock().await.unwrap();

            assert_eq!(guard.guards().len(), 3);
            guard.release().await.unwrap();
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_may_be_dropped_at_any_point() {
        let mut polls = 0;
        loop {
            let scene = Scene::new();
            scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 100);
            let held = scene.other.mutex("b").unwrap().lock().await.unwrap();
            let release = async {
                tokio::time::sleep(ms(50)).await;
                held.release().await.unwrap();
            };

            let whole = three(&scene);
            let (locked, ()) = tokio::join!(dropped_after(polls, whole.lock()), release);

            let done = locked.is_some();
            drop(locked.map(Result::unwrap));
            assert_eq!(scene.left().await, 0, "dropped after {polls} polls");
            assert!(whole.try_lock().await.unwrap().is_some());
            if done {
                break;
            }
            polls += 1;
        }
        assert!(polls > 5, "{polls}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_gives_back_may_be_dropped_at_any_point() {
        for polls in 0.. {
            let scene = Scene::new();
            scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(10)), 3);
            scene.faults.inject(Operation::Release, Fault::DelayRequest(ms(10)), 2);
            let _held = scene.other.mutex("c").unwrap().lock().await.unwrap();

            let tried = dropped_after(polls, three(&scene).try_lock()).await;

            assert_eq!(scene.left().await, 1, "dropped after {polls} polls");
            assert_eq!(closed(&scene).await, ["c"]);
            if let Some(tried) = tried {
                assert!(tried.unwrap().is_none());
                assert!(polls > 4, "{polls}");
                break;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_is_not_kept_closed() {
        let scene = Scene::with_options(options().min_hold(ms(20_000)));
        let held = scene.other.mutex("c").unwrap().lock().await.unwrap();

        assert!(three(&scene).try_lock().await.unwrap().is_none());
        assert!(dropped_after(1, three(&scene).lock()).await.is_none());
        assert_eq!(scene.left().await, 1);

        held.release().await.unwrap();
        three(&scene).lock().await.unwrap().release().await.unwrap();
        assert_eq!(closed(&scene).await, KEYS, "what was held as a whole is");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_ends_the_waiting() {
        let scene = Scene::new();
        let _held = scene.other.mutex("c").unwrap().lock().await.unwrap();
        let whole = three(&scene);
        let waiting = tokio::spawn(async move { whole.lock().await.unwrap_err().kind() });
        tokio::time::sleep(ms(100)).await;

        scene.client.shutdown(TTL).await.unwrap();

        assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
        assert_eq!(closed(&scene).await, ["c"]);
    }
}

mod wait {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_is_over_names_the_part_that_was_held() {
        for held in KEYS {
            let scene = Scene::with_options(options().wait(ms(2_000)));
            let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();

            let asked_at = scene.clock.now();
            let error = three(&scene).lock().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key(held))));
            assert!(error.to_string().contains("not obtained within 2.0s: held by"), "{error}");
            assert_eq!(scene.clock.now(), asked_at + ms(2_000));
            assert_eq!(scene.left().await, 1);
            assert_eq!(closed(&scene).await, [held]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_one_for_all_parts() {
        let scene = Scene::new();
        let first = scene.other.mutex("a").unwrap().lock().await.unwrap();
        let second = scene.other.mutex("b").unwrap().lock().await.unwrap();
        let _third = scene.other.mutex("c").unwrap().lock().await.unwrap();
        let release = async {
            tokio::time::sleep(ms(1_000)).await;
            first.release().await.unwrap();
            tokio::time::sleep(ms(900)).await;
            second.release().await.unwrap();
        };

        let asked_at = scene.clock.now();
        let whole = three(&scene);
        let (locked, ()) = tokio::join!(whole.try_lock_for(ms(2_000)), release);

        assert!(locked.unwrap().is_none());
        assert_eq!(scene.clock.now(), asked_at + ms(2_000));
        assert_eq!(scene.left().await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn may_end_at_an_instant() {
        let scene = Scene::new();
        let held = scene.client.mutex("c").unwrap().lock().await.unwrap();
        let whole = three(&scene);

        // The standard library's clock goes on while tokio's is paused: little enough to be told apart.
        let asked_at = scene.clock.now();
        let soon = std::time::Instant::now() + ms(60_000);
        assert!(whole.try_lock_until(soon).await.unwrap().is_none());
        let waited = scene.clock.now().since(asked_at);
        assert!(waited > ms(30_000) && waited <= ms(60_000), "{waited:?}");

        held.release().await.unwrap();
        assert!(whole.try_lock_until(std::time::Instant::now()).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn is_spent_on_a_silent_store_too_and_then_the_silence_is_the_error() {
        for silent in KEYS {
            let scene = Scene::new();
            scene.faults.inject_on(&key(silent), Operation::Acquire, Fault::SwallowRequest, 1);

            let asked_at = scene.clock.now();
            let error = three(&scene).try_lock_for(ms(2_000)).await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Indeterminate);
            assert_eq!(error.key(), Some(&key(silent)));
            assert_eq!(scene.clock.now(), asked_at + ms(2_000));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_late_first_part_has_used_up_is_not_begun_again_by_the_second() {
        let clock = Jumping::default();
        let store = MemoryBackend::with_clock(clock.clone());
        let backend = Stalling { inner: store.clone(), clock: clock.clone() };
        let client = LockClient::builder(backend).clock(clock).options(options()).build().unwrap();
        let whole = client.multi_lock().mutexes(["a", "silent"]).unwrap();

        // The process is stalled over the end of the wait, between the first grant and the second request.
        assert!(whole.try_lock_for(ms(2_000)).await.unwrap().is_none());

        tokio::time::sleep(ms(10)).await;
        assert_eq!(store.keys(), 0);
    }

    /// This process stalls for three seconds before it sees a reply.
    #[derive(Debug)]
    struct Stalling {
        inner: MemoryBackend,
        clock: Jumping,
    }

    #[async_trait]
    impl LockBackend for Stalling {
        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            if claim.key().as_str() == "silent" {
                panic!("there is no time left for it");
            }
            let attempt = self.inner.try_acquire(claim).await;
            self.clock.jump(ms(3_000));
            attempt
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.inner.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.inner.release(lease).await
        }
    }
}

mod loss {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_part_ends_the_waiting_for_the_others() {
        for (lost, held) in [("a", "b"), ("a", "c"), ("b", "c")] {
            let scene = Scene::new();
            let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();
            let whole = three(&scene);
            let lose = async {
                tokio::time::sleep(ms(1_000)).await;
                scene.client.backend().steal(&key(lost), TTL).await.unwrap();
            };

            let asked_at = scene.clock.now();
            let (locked, ()) = tokio::join!(whole.lock(), lose);

            let error = locked.unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
            assert_eq!(error.operation(), Some(Operation::Acquire));
            assert!(error.loss().is_some());
            assert!(scene.clock.now().since(asked_at) <= ms(1_010));
            assert_eq!(scene.left().await, 2, "what others hold, and nothing else");
            assert_eq!(closed(&scene).await, [lost, held]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_part_that_expires_while_another_is_waited_for_is_an_error() {
        let scene = Scene::with_options(options().renewal(RenewalMode::Off));
        let keeper = scene.other.mutex("b").unwrap().lock().await.unwrap();

        let asked_at = scene.clock.now();
        let error = three(&scene).lock().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
        assert_eq!(error.loss(), Some(LossReason::Expired));
        assert_eq!(scene.clock.now(), asked_at + TTL - DRIFT);
        drop(keeper);
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_part_as_the_last_one_is_granted_is_an_error() {
        let scene = Scene::with_options(options().renewal(RenewalMode::Off));
        let whole = scene.client.multi_lock().mutexes(["a", "b"]).unwrap();
        // Both were asked for by then, and the second is granted at the deadline of the first.
        let late = TTL - DRIFT - ms(1_000);
        scene.faults.inject_on(&key("a"), Operation::Acquire, Fault::DelayReply(ms(1_000)), 1);
        scene.faults.inject_on(&key("b"), Operation::Acquire, Fault::DelayReply(late), 1);

        let error = whole.lock().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
        assert_eq!(error.operation(), Some(Operation::Acquire));
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_any_part_is_that_of_the_whole() {
        for lost in KEYS {
            let scene = Scene::new();
            let guard = three(&scene).lock().await.unwrap();
            let told = tokio::spawn(guard.lost());
            assert!(guard.is_held());

            scene.client.backend().expire(&key(lost)).await.unwrap();

            assert_eq!(told.await.unwrap(), (key(lost), LossReason::Vanished));
            assert_eq!(guard.lost().await, (key(lost), LossReason::Vanished), "told again");
            assert!(!guard.is_held());
            assert_eq!(guard.remaining(), Duration::ZERO);
            let error = guard.ensure_held(Duration::ZERO).unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
            let held = guard.guards().iter().filter(|part| part.is_held()).count();
            assert_eq!(held, 2, "the others are kept until it is released");

            let error = guard.release().await.unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_any_part_ends_what_is_run() {
        for lost in KEYS {
            let scene = Scene::new();
            let whole = three(&scene);

            let error = whole
                .run(async |_guard| {
                    scene.client.backend().expire(&key(lost)).await.unwrap();
                    std::future::pending::<()>().await;
                })
                .await
                .unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key(lost))));
            assert_eq!(error.operation(), Some(Operation::Run));
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_clock_that_jumps_ends_what_is_run_before_it_is_polled_again() {
        let clock = Jumping::default();
        let store = MemoryBackend::with_clock(clock.clock);
        let client =
            LockClient::builder(store).clock(clock.clone()).options(options()).build().unwrap();
        let guard = client.multi_lock().mutexes(KEYS).unwrap().lock().await.unwrap();

        let mut work = pin!(guard.run(std::future::pending::<()>()));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut cx).is_pending());
        clock.jump(TTL);

        assert!(work.as_mut().poll(&mut cx).is_ready(), "it waits for timers");
        assert!(!guard.is_held());
    }
}

mod guard {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ends_with_its_earliest_part() {
        let scene = Scene::with_options(options().renewal(RenewalMode::Off));
        scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(1_000)), 3);

        let asked_at = scene.clock.now();
        let guard = three(&scene).lock().await.unwrap();

        assert_eq!(guard.deadline(), asked_at + TTL - DRIFT);
        assert_eq!(guard.remaining(), TTL - DRIFT - ms(3_000));
        guard.ensure_held(guard.remaining()).unwrap();
        let error = guard.ensure_held(guard.remaining() + ms(1)).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
        assert_eq!(guard.lost().await, (key("a"), LossReason::Expired));
        assert_eq!(scene.clock.now(), asked_at + TTL - DRIFT);
    }

    #[tokio::test(start_paused = true)]
    async fn is_renewed_in_all_its_parts() {
        let scene = Scene::new();
        let guard = three(&scene).lock().await.unwrap();

        tokio::time::sleep(TTL * 3).await;

        assert!(guard.is_held());
        assert_eq!(closed(&scene).await, KEYS);
    }

    #[tokio::test(start_paused = true)]
    async fn releases_all_parts_whichever_fails_and_tells_the_first_error() {
        for failing in KEYS {
            let scene = Scene::new();
            let guard = three(&scene).lock().await.unwrap();
            let fault = Fault::Fail(ErrorKind::Denied);
            scene.faults.inject_on(&key(failing), Operation::Release, fault, 1);

            let error = guard.release().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::Denied, Some(&key(failing))));
            assert_eq!(scene.left().await, 0, "the background releases what was refused once");
        }
        let scene = Scene::new();
        let guard = three(&scene).lock().await.unwrap();
        scene.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Denied), 3);
        assert_eq!(guard.release().await.unwrap_err().key(), Some(&key("c")));
    }

    #[tokio::test(start_paused = true)]
    async fn tells_of_a_loss_before_it_tells_of_a_release_that_failed() {
        let scene = Scene::new();
        let guard = three(&scene).lock().await.unwrap();
        // The store has lost it and we do not know: the release finds out.
        scene.faults.inject(Operation::Renew, Fault::SwallowRequest, 9);
        scene.client.backend().expire(&key("a")).await.unwrap();
        let fault = Fault::Fail(ErrorKind::Denied);
        scene.faults.inject_on(&key("c"), Operation::Release, fault, 1);

        let error = guard.release().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::LeaseLost, Some(&key("a"))));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_a_silent_store_once_and_not_for_each_part() {
        let scene = Scene::new();
        let guard = three(&scene).lock().await.unwrap();
        scene.faults.inject(Operation::Release, Fault::SwallowRequest, 3);

        let asked_at = scene.clock.now();
        let error = guard.release().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(scene.clock.now(), asked_at + ms(1_000));
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn may_be_dropped_while_it_is_released_at_any_point() {
        for polls in 0..6 {
            let scene = Scene::new();
            let guard = three(&scene).lock().await.unwrap();
            for (name, delay) in KEYS.into_iter().zip([30, 20, 10]) {
                let fault = Fault::DelayRequest(ms(delay));
                scene.faults.inject_on(&key(name), Operation::Release, fault, 1);
            }

            let released = dropped_after(polls, guard.release()).await;

            assert_eq!(released.is_some(), polls > 3, "{polls}");
            assert_eq!(scene.left().await, 0, "dropped after {polls} polls");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_there_while_work_is_run_and_gone_afterwards() {
        let scene = Scene::new();
        scene.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 999);

        let whole = three(&scene);
        let closed = whole.run(async |guard| {
            assert!(guard.is_held());
            closed(&scene).await
        });

        assert_eq!(closed.await.unwrap(), KEYS, "a release that fails takes nothing away");
        scene.faults.heal();
        assert_eq!(scene.left().await, 0);
    }

    /// Futures that users spawn must be `Send`, the closure form included.
    #[tokio::test]
    async fn may_be_awaited_for_in_a_task() {
        let client = LockClient::new(MemoryBackend::new()).erase();
        let whole = client.multi_lock().mutexes(KEYS).unwrap();

        let spawned = tokio::spawn(async move {
            let guard = whole.lock().await.unwrap();
            guard.run(async {}).await.unwrap();
            guard.release().await.unwrap();
            whole.try_lock_for(ms(1)).await.unwrap().unwrap().release().await.unwrap();
            whole.run(async |guard| guard.guards().len()).await.unwrap()
        });

        assert_eq!(spawned.await.unwrap(), 3);
    }

    #[test]
    fn shows_its_keys() {
        const fn assert_send_sync<T: Send + Sync>() {}
        assert_send_sync::<MultiLock>();
        assert_send_sync::<MultiGuard>();
        let client = LockClient::new(MemoryBackend::new());
        let whole = client.multi_lock().mutexes(KEYS).unwrap();

        assert_eq!(format!("{whole:?}"), r#"MultiLock["a", "b", "c"]"#);
    }
}

/// Tokio's time, which may jump.
#[derive(Clone, Debug)]
struct Jumping {
    clock: TokioClock,
    jump_ms: Arc<AtomicU64>,
}

impl Default for Jumping {
    fn default() -> Self {
        Self { clock: TokioClock::new(), jump_ms: Arc::default() }
    }
}

impl Jumping {
    fn jump(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.jump_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        self.clock.now() + ms(self.jump_ms.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let this = self.clone();
        Box::pin(async move {
            while this.now() < deadline {
                tokio::time::sleep(ms(1)).await;
            }
        })
    }
}
