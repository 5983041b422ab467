//! Several locks at once, on a store that grants several keys in one atomic step.

mod scene;

use async_trait::async_trait;
use leasehold_core::clock::Clock;
use leasehold_core::fault::Fault;
use leasehold_core::{
    Attempt, AttemptAll, Capabilities, Claim, Error, ErrorKind, Grant, Lease, LockBackend,
    LockClient, LockOptions, LossReason, MemoryBackend, MultiLock, Operation, Patience, Release,
    Renewal, Retry,
};

use self::scene::{DRIFT, Scene, TTL, dropped_after, key, ms};

const KEYS: [&str; 3] = ["a", "b", "c"];
const ALL: &str = "+a+b+c";

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL)
}

fn scene() -> Scene {
    scene_with(options())
}

fn scene_with(options: LockOptions) -> Scene {
    Scene::declaring(MemoryBackend::new().capabilities(), options)
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

/// A store that cannot do what it declares, as a decorator that was written before may be.
#[derive(Debug)]
struct Older(MemoryBackend);

#[async_trait]
impl LockBackend for Older {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
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

mod one_request {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn takes_all_that_is_free() {
        for added in [["a", "b", "c"], ["c", "b", "a"]] {
            let scene = scene();
            let whole = scene.client.multi_lock().mutexes(added).unwrap();

            let guard = whole.lock().await.unwrap();

            assert_eq!(scene.faults.calls(Operation::Acquire), 1);
            assert!(guard.guards().iter().map(|part| part.key().as_str()).eq(KEYS));
            assert_eq!(closed(&scene).await, KEYS);
            guard.release().await.unwrap();
            assert_eq!(scene.story(), [ALL, "-c", "-b", "-a"]);
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_made_however_one_asks() {
        let scene = scene();
        let whole = three(&scene);

        whole.try_lock().await.unwrap().unwrap().release().await.unwrap();
        whole.try_lock_for(ms(10)).await.unwrap().unwrap().release().await.unwrap();
        whole.run(async |guard| assert!(guard.is_held())).await.unwrap();

        assert_eq!(scene.faults.calls(Operation::Acquire), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn takes_locks_of_all_kinds_where_the_store_can() {
        let scene = scene();
        let whole = scene.client.multi_lock().write("a").unwrap().mutex("b").unwrap();
        let whole = whole.permits("c", 2, 3).unwrap().read("d").unwrap();

        let guard = whole.lock().await.unwrap();

        assert_eq!(scene.story(), ["+a+b+c+d"]);
        assert_eq!(guard.get("c").unwrap().units(), 2);
        // Where there is room beside us, others of this process have their turn.
        let semaphore = scene.client.semaphore("c", 3).unwrap();
        let permit = semaphore.try_acquire_for(1, ms(10)).await.unwrap();
        permit.unwrap().release().await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(scene.left().await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_made_for_one_part() {
        let scene = scene();

        let _guard = scene.client.multi_lock().mutex("a").unwrap().lock().await.unwrap();

        assert_eq!(scene.story(), ["+a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn becomes_one_for_each_part_where_the_store_cannot() {
        let scene = Scene::new();

        let _guard = three(&scene).lock().await.unwrap();

        assert_eq!(scene.story(), ["+a", "+b", "+c"]);
        assert_eq!(scene.faults.calls(Operation::Acquire), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn that_the_store_does_not_know_is_no_error() {
        let client = LockClient::new(Older(MemoryBackend::new()));
        let whole = client.multi_lock().mutexes(KEYS).unwrap();

        for guard in [Some(whole.lock().await.unwrap()), whole.try_lock().await.unwrap()] {
            let Some(guard) = guard else { continue };
            assert_eq!(guard.guards().len(), 3);
            guard.release().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn gives_tokens_that_grow() {
        let scene = scene();
        let mut last = [0; 3];
        for _ in 0..3 {
            let guard = three(&scene).lock().await.unwrap();
            for (part, last) in guard.guards().iter().zip(&mut last) {
                assert!(part.token().number() > *last);
                *last = part.token().number();
            }
            guard.release().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn gives_leases_as_single_requests_do() {
        let delay = ms(5_000);
        let scene = scene_with(options().lock_delay(delay).max_hold(TTL * 2));
        scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(1_000)), 1);

        let asked_at = scene.clock.now();
        let guard = three(&scene).lock().await.unwrap();

        for part in guard.guards() {
            assert_eq!(part.deadline(), asked_at + TTL - DRIFT, "counted from before the request");
            let inspection = scene.store.inspect(part.key()).await.unwrap();
            let remaining = inspection.holders()[0].remaining();
            assert_eq!(remaining, Some(TTL + delay - ms(1_000)));
        }
        tokio::time::sleep(TTL).await;
        assert!(guard.is_held(), "the watchdog renews them");
        assert_eq!(guard.lost().await, (key("a"), LossReason::MaxHold));
        assert_eq!(scene.clock.now(), asked_at + TTL * 2 - DRIFT);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_leases_whose_loss_is_noticed() {
        for lost in KEYS {
            let scene = scene();
            let guard = three(&scene).lock().await.unwrap();

            let asked_at = scene.clock.now();
            scene.client.backend().expire(&key(lost)).await.unwrap();

            assert_eq!(guard.lost().await, (key(lost), LossReason::Vanished));
            assert!(scene.clock.now().since(asked_at) < ms(100), "the store told");
        }
    }
}

mod fault {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_the_one_attempt_is_the_error_and_nothing_is_kept() {
        for (fault, kind) in [
            (Fault::Fail(ErrorKind::Denied), ErrorKind::Denied),
            (Fault::Fail(ErrorKind::Unavailable), ErrorKind::Unavailable),
            (Fault::Fail(ErrorKind::Refused), ErrorKind::Refused),
            (Fault::Late(ms(10_000)), ErrorKind::Indeterminate),
            (Fault::LoseReply, ErrorKind::Indeterminate),
            (Fault::DelayReply(TTL), ErrorKind::Indeterminate),
            (Fault::DelayRequest(TTL), ErrorKind::Indeterminate),
            (Fault::SwallowReply, ErrorKind::Indeterminate),
            (Fault::SwallowRequest, ErrorKind::Indeterminate),
        ] {
            let scene = scene();
            scene.faults.inject(Operation::Acquire, fault, 1);

            let error = three(&scene).try_lock().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (kind, Some(&key("a"))), "{fault:?}");
            assert_eq!(error.operation(), Some(Operation::Acquire));
            assert_eq!(scene.faults.calls(Operation::Acquire), 1);
            assert_eq!(scene.left().await, 0, "{fault:?}");
            assert!(three(&scene).try_lock().await.unwrap().is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_passes_is_waited_out_with_the_same_leases() {
        for fault in [
            Fault::DelayReply(ms(10)),
            Fault::DelayRequest(ms(10)),
            Fault::Fail(ErrorKind::Unavailable),
            Fault::LoseReply,
        ] {
            let scene = scene();
            scene.faults.inject(Operation::Acquire, fault, 2);

            let asked_at = scene.clock.now();
            let guard = three(&scene).lock().await.unwrap();

            assert!(scene.clock.now().since(asked_at) < ms(1_000), "{fault:?}");
            assert!(scene.story().iter().all(|grant| grant == ALL), "{fault:?}: in its own way");
            guard.release().await.unwrap();
            assert_eq!(scene.left().await, 0, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_lasts_is_waited_out_only_so_long() {
        let scene = scene_with(options().outage_wait(ms(3_000)));
        scene.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 999);

        let asked_at = scene.clock.now();
        let error = three(&scene).lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let waited = scene.clock.now().since(asked_at);
        assert!(waited >= ms(3_000) && waited < ms(6_000), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn by_which_the_wait_passes_is_the_error() {
        for fault in [Fault::Late(ms(500)), Fault::SwallowReply, Fault::SwallowRequest] {
            let scene = scene();
            scene.faults.inject(Operation::Acquire, fault, 1);

            let asked_at = scene.clock.now();
            let error = three(&scene).try_lock_for(ms(2_000)).await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{fault:?}");
            assert_eq!(scene.clock.now(), asked_at + ms(2_000));
            assert_eq!(scene.left().await, 0, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn may_be_a_part_that_is_granted_for_too_short_a_time() {
        let store = MemoryBackend::new();
        let client = LockClient::new(Odd(store.clone(), |grants| {
            grants[1] = grants[1].clone().with_ttl(ms(1));
        }));
        let whole = client.multi_lock().mutexes(KEYS).unwrap();

        let error = whole.try_lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert!(error.to_string().contains("too late"), "{error}");
        tokio::time::sleep(ms(100)).await;
        assert_eq!(store.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn may_be_that_grants_are_missing() {
        let store = MemoryBackend::new();
        let client = LockClient::new(Odd(store.clone(), |grants| grants.truncate(2)));
        let whole = client.multi_lock().mutexes(KEYS).unwrap();

        assert_eq!(whole.lock().await.unwrap_err().kind(), ErrorKind::Unexpected);

        tokio::time::sleep(ms(100)).await;
        assert_eq!(store.keys(), 0);
    }

    /// A store whose grants are changed on their way.
    #[derive(Debug)]
    struct Odd(MemoryBackend, fn(&mut Vec<Grant>));

    #[async_trait]
    impl LockBackend for Odd {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            self.0.try_acquire(claim).await
        }

        async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
            let mut attempt = self.0.try_acquire_all(claims).await?;
            if let AttemptAll::Granted(grants) = &mut attempt {
                (self.1)(grants);
            }
            Ok(attempt)
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.0.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.0.release(lease).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_another_kind_of_lock_names_its_key() {
        for other in KEYS {
            let scene = scene();
            let _held = scene.other.semaphore(other, 2).unwrap().acquire(1).await.unwrap();

            let error = three(&scene).lock().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(&key(other))));
            assert_eq!(scene.left().await, 1);
        }
    }
}

mod cancellation {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn at_any_point_leaves_nothing() {
        for fault in [Fault::DelayRequest(ms(10)), Fault::DelayReply(ms(10)), Fault::LoseReply] {
            for polls in 0.. {
                let scene = scene_with(options().min_hold(TTL / 2));
                scene.faults.inject(Operation::Acquire, fault, 1);
                let whole = three(&scene);

                let locked = dropped_after(polls, whole.lock()).await;

                match locked {
                    None => assert_eq!(scene.left().await, 0, "{fault:?}, {polls} polls"),
                    Some(guard) => {
                        assert!(polls > 1, "{fault:?}, {polls} polls");
                        drop(guard);
                        break;
                    }
                }
                scene.faults.heal();
                assert!(whole.try_lock().await.unwrap().is_some(), "{fault:?}, {polls} polls");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn at_any_point_of_a_contended_call_leaves_nothing() {
        for polls in 0.. {
            let scene = scene();
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
                assert!(polls > 5, "{polls}");
                break;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_shutdown_leaves_nothing() {
        for fault in [Fault::DelayReply(ms(1_000)), Fault::SwallowReply, Fault::SwallowRequest] {
            let scene = scene();
            scene.faults.inject(Operation::Acquire, fault, 1);
            let whole = three(&scene);
            let waiting = tokio::spawn(async move { whole.lock().await.unwrap_err().kind() });
            tokio::time::sleep(ms(100)).await;

            scene.client.shutdown(TTL).await.unwrap();

            assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
            assert_eq!(scene.store.keys(), 0, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_shutdown_ends_what_is_held() {
        let scene = scene();
        let guard = three(&scene).lock().await.unwrap();

        scene.client.shutdown(TTL).await.unwrap();

        assert_eq!(guard.lost().await.1, LossReason::Shutdown);
        assert_eq!(scene.store.keys(), 0);
        assert_eq!(three(&scene).lock().await.unwrap_err().kind(), ErrorKind::Closed);
    }
}

mod contention {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refuses_one_attempt_by_one_request() {
        for held in KEYS {
            let scene = scene();
            let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();

            assert!(three(&scene).try_lock().await.unwrap().is_none());

            assert_eq!(scene.faults.calls(Operation::Acquire), 1);
            assert_eq!(scene.faults.calls(Operation::Release), 0);
            assert_eq!(scene.store.keys(), 1);
            assert_eq!(scene.story(), [""; 0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_waited_out_part_by_part() {
        for held in KEYS {
            let scene = scene();
            let held = scene.other.mutex(held).unwrap().lock().await.unwrap();
            let release = async {
                tokio::time::sleep(ms(1_000)).await;
                held.release().await.unwrap();
            };

            let asked_at = scene.clock.now();
            let whole = three(&scene);
            let (locked, ()) = tokio::join!(whole.lock(), release);

            let guard = locked.unwrap();
            assert!(scene.clock.now().since(asked_at) < ms(1_010));
            assert_eq!(scene.story(), ["+a", "+b", "+c"]);
            guard.release().await.unwrap();
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_waited_out_for_one_wait_in_all() {
        for held in KEYS {
            let scene = scene_with(options().wait(ms(2_000)));
            let _held = scene.other.mutex(held).unwrap().lock().await.unwrap();
            scene.faults.inject(Operation::Acquire, Fault::DelayReply(ms(500)), 1);

            let asked_at = scene.clock.now();
            let error = three(&scene).lock().await.unwrap_err();

            assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key(held))));
            assert!(error.to_string().contains("not obtained within 2.0s: held by"), "{error}");
            assert_eq!(scene.clock.now(), asked_at + ms(2_000));
            assert_eq!(scene.left().await, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn with_attempts_that_are_counted_takes_one_for_all_and_then_those_for_each() {
        let scene = scene_with(options().retry(Retry::attempts(2).every(ms(10))));
        let _held = scene.other.mutex("b").unwrap().lock().await.unwrap();

        let error = three(&scene).lock().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key("b"))));
        assert_eq!(scene.faults.calls(Operation::Acquire), 1 + 1 + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn in_this_process_is_no_request_for_one_attempt() {
        for held in KEYS {
            let scene = scene();
            let held = scene.client.mutex(held).unwrap().lock().await.unwrap();

            let asked_at = scene.clock.now();
            assert!(three(&scene).try_lock().await.unwrap().is_none());
            assert_eq!(scene.clock.now(), asked_at);

            assert_eq!(scene.faults.calls(Operation::Acquire), 1, "that of the holder");
            held.release().await.unwrap();
            for free in KEYS {
                // No turn was kept.
                let guard = scene.client.mutex(free).unwrap().try_lock().await.unwrap();
                guard.unwrap().release().await.unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_this_process_is_waited_out_in_turn() {
        for held in KEYS {
            let scene = scene();
            let held = scene.client.mutex(held).unwrap().lock().await.unwrap();
            let release = async {
                tokio::time::sleep(ms(1_000)).await;
                held.release().await.unwrap();
            };

            let whole = three(&scene);
            let (locked, ()) = tokio::join!(whole.lock(), release);

            locked.unwrap().release().await.unwrap();
            assert!(!scene.story().contains(&ALL.to_owned()));
            assert_eq!(scene.left().await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn passes_nobody_who_queues_in_the_store() {
        let scene = scene();
        let queues = Patience::Queues(ms(5_000));
        let (holder, waiter) = (Lease::new(&key("b"), TTL), Lease::new(&key("b"), TTL));
        scene.store.try_acquire(&Claim::new(holder.clone())).await.unwrap();
        let waiting = Claim::new(waiter).with_patience(queues);
        scene.store.try_acquire(&waiting).await.unwrap();
        scene.store.release(&holder).await.unwrap();

        assert!(three(&scene).try_lock().await.unwrap().is_none());
        assert_eq!(scene.story(), [""; 0]);
        let asked_at = scene.clock.now();
        let guard = three(&scene).lock().await.unwrap();

        let waited = scene.clock.now().since(asked_at);
        assert!(waited >= ms(5_000) && waited < ms(5_100), "the place was kept: {waited:?}");
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn of_fair_callers_is_settled_in_the_store() {
        let scene = scene_with(options().fair(true));
        let first = three(&scene).lock().await.unwrap();
        assert_eq!(scene.story(), [ALL]);

        // Fair callers take no turns here, and the one attempt for all takes no place there.
        assert!(dropped_after(1, three(&scene).lock()).await.is_none());
        tokio::time::sleep(ms(100)).await;
        let whole = three(&scene);
        let second = tokio::spawn(async move { whole.lock().await.unwrap() });
        tokio::time::sleep(ms(100)).await;
        first.release().await.unwrap();

        second.await.unwrap().release().await.unwrap();
        assert_eq!(scene.left().await, 0);
    }
}
