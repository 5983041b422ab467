//! What a client does around its stages: runtimes that come and go, panics, shutdown, memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, ErrorKind, KeyWatch, Lease, LeaseState, LockBackend,
    LockClient, LockOptions, LossReason, MemoryBackend, Mutex, Operation, OwnerId, Release,
    Renewal,
};
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(30);

fn client() -> (LockClient<FaultBackend<MemoryBackend>>, Faults) {
    let clock = TokioClock::new();
    let backend = FaultBackend::new(MemoryBackend::with_clock(clock));
    let faults = backend.faults().clone();
    let options = LockOptions::new().ttl(TTL);
    (LockClient::builder(backend).clock(clock).options(options).build().unwrap(), faults)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_client_that_lets_no_caller_wait_is_refused() {
    let refused = LockClient::builder(MemoryBackend::new()).max_waiters(0).build().unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

const fn assert_send_sync_static<T: Send + Sync + 'static>(_: &T) {}

mod runtimes {
    use super::*;

    #[test]
    fn a_client_may_be_made_before_there_is_one() {
        let client = LockClient::new(MemoryBackend::new());

        let token = runtime()
            .block_on(async { client.mutex("k").unwrap().lock().await.unwrap().token().number() });

        assert_eq!(token, 1);
    }

    #[test]
    fn that_end_during_a_release_leave_it_to_the_next() {
        let (store, backend) = {
            let store = MemoryBackend::new();
            (store.clone(), FaultBackend::new(store))
        };
        let faults = backend.faults().clone();
        let client = LockClient::new(backend);
        runtime().block_on(async {
            let guard = client.mutex("k").unwrap().lock().await.unwrap();
            faults.inject(Operation::Release, Fault::SwallowRequest, 1);
            drop(guard);
            while faults.calls(Operation::Release) == 0 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(store.keys(), 1);

        runtime().block_on(async {
            drop(client.mutex("other").unwrap().lock().await.unwrap());
            client.shutdown(TTL).await.unwrap();
        });

        assert_eq!(store.keys(), 0);
    }

    #[test]
    fn a_client_outlives_them() {
        let short = LockOptions::new().ttl(Duration::from_secs(2));
        let client = LockClient::builder(MemoryBackend::new()).options(short).build().unwrap();
        for _ in 0..3 {
            runtime().block_on(async {
                let guard = client.mutex("k").unwrap().lock().await.unwrap();
                let first = guard.deadline();
                while guard.deadline() == first {
                    assert!(guard.is_held(), "nobody renews on the new runtime");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                guard.release().await.unwrap();
            });
        }
    }

    #[test]
    fn a_guard_whose_runtime_is_gone_is_honest_and_harmless() {
        let short = LockOptions::new().ttl(Duration::from_millis(100));
        let client = LockClient::builder(MemoryBackend::new()).options(short).build().unwrap();
        let guard = runtime().block_on(async { client.mutex("k").unwrap().lock().await.unwrap() });
        assert!(guard.is_held());

        std::thread::sleep(guard.remaining());

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        drop(guard);
        // The next runtime sees to what is left.
        let next = runtime().block_on(async { client.mutex("k").unwrap().lock().await.unwrap() });
        assert!(next.is_held());
    }

    #[tokio::test]
    async fn are_shared_by_a_task_that_locks_again_and_again_without_having_to_wait() {
        let mutex = LockClient::new(MemoryBackend::new()).mutex("k").unwrap();
        let other = tokio::spawn(async {});

        for _ in 0..1_000 {
            mutex.lock().await.unwrap().release().await.unwrap();
        }

        assert!(other.is_finished());
    }

    #[test]
    fn without_one_locking_is_a_clear_error() {
        let client = LockClient::new(MemoryBackend::new());
        let mutex = client.mutex("k").unwrap();
        let mut locking = Box::pin(mutex.try_lock());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());

        let std::task::Poll::Ready(Err(error)) = locking.as_mut().poll(&mut cx) else { panic!() };

        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("tokio runtime"), "{error}");
    }
}

mod panics {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_renewal_leave_the_watchdog_of_all_others_running() {
        let (client, faults) = client();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let other = client.mutex("other").unwrap().lock().await.unwrap();
        faults.inject(Operation::Renew, Fault::Panic, 2);

        tokio::time::sleep(TTL * 3).await;

        assert!(guard.is_held() && other.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_release_leave_the_reaper_running() {
        let (client, faults) = client();
        let (one, other) = (client.mutex("one").unwrap(), client.mutex("other").unwrap());
        let guards = (one.lock().await.unwrap(), other.lock().await.unwrap());
        faults.inject(Operation::Release, Fault::Panic, 1);

        drop(guards);
        tokio::time::sleep(Duration::from_millis(10)).await;

        let free = async |mutex: &Mutex| mutex.try_lock().await.unwrap().is_some();
        assert!(free(&one).await || free(&other).await, "both are left to their TTL");
    }
}

mod shutdown {
    use super::*;

    type Event = Box<dyn FnOnce() + Send>;
    type Shutdown = BoxFuture<'static, Result<(), Error>>;

    /// A store to which nothing is said after it was closed.
    struct Closing {
        inner: MemoryBackend,
        closed: AtomicBool,
        /// What happens while a call begins.
        meanwhile: Arc<StdMutex<Option<Shutdown>>>,
        /// An event between a grant and the reply.
        on_grant: Arc<StdMutex<Option<Event>>>,
    }

    impl fmt::Debug for Closing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Closing").field("closed", &self.closed).finish_non_exhaustive()
        }
    }

    impl Closing {
        fn new(inner: &MemoryBackend) -> Self {
            Self {
                inner: inner.clone(),
                closed: AtomicBool::new(false),
                meanwhile: Arc::default(),
                on_grant: Arc::default(),
            }
        }

        fn open(&self) -> Result<&MemoryBackend, Error> {
            let closed = self.closed.load(Ordering::SeqCst);
            if closed { Err(Error::new(ErrorKind::Closed, "closed")) } else { Ok(&self.inner) }
        }
    }

    #[async_trait]
    impl LockBackend for Closing {
        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            let attempt = self.open()?.try_acquire(claim).await;
            if let Some(on_grant) = self.on_grant.lock().unwrap().take() {
                on_grant();
            }
            attempt
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.open()?.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.open()?.release(lease).await
        }

        fn watch_claim(&self, claim: &Claim) -> KeyWatch {
            if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
                meanwhile.now_or_never().expect("nothing was asked for yet").unwrap();
            }
            self.inner.watch_claim(claim)
        }

        async fn close(&self) {
            self.closed.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_calls_that_wait_here_and_at_the_store() {
        let (client, _faults) = client();
        let _guard = client.mutex("k").unwrap().lock().await.unwrap();
        let store = client.backend();
        let foreign = leasehold_core::Lease::new(client.mutex("f").unwrap().key(), TTL * 9);
        store.try_acquire(&leasehold_core::Claim::new(foreign)).await.unwrap();
        let wait = |name: &str| {
            let mutex = client.mutex(name).unwrap();
            tokio::spawn(async move { mutex.lock().await.unwrap_err().kind() })
        };
        let (queued, waiting) = (wait("k"), wait("f"));
        tokio::time::sleep(Duration::from_millis(100)).await;

        client.shutdown(TTL).await.unwrap();

        assert_eq!(queued.await.unwrap(), ErrorKind::Closed);
        assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_calls_under_way_and_the_calls_that_wait_for_them() {
        let (client, faults) = client();
        faults.inject(Operation::Acquire, Fault::SwallowReply, 1);
        let owner = OwnerId::new();
        let lock = || {
            let mutex = client.reentrant_mutex("k").unwrap();
            tokio::spawn(owner.scope(async move { mutex.lock().await.unwrap_err().kind() }))
        };
        let (asking, entering) = (lock(), lock());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(faults.calls(Operation::Acquire), 1);

        client.shutdown(TTL).await.unwrap();

        assert_eq!(asking.await.unwrap(), ErrorKind::Closed);
        assert_eq!(entering.await.unwrap(), ErrorKind::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_late_grants_before_it_closes_the_backend() {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let backend = FaultBackend::new(Closing::new(&store));
        let faults = backend.faults().clone();
        faults.inject(Operation::Acquire, Fault::DelayReply(Duration::from_millis(50)), 1);
        let client = LockClient::builder(backend).clock(clock).build().unwrap();
        let mutex = client.mutex("k").unwrap();
        let asking = tokio::spawn(async move { mutex.lock().await.unwrap_err().kind() });
        tokio::time::sleep(Duration::from_millis(10)).await;

        client.shutdown(TTL).await.unwrap();

        assert_eq!(store.keys(), 0);
        assert_eq!(asking.await.unwrap(), ErrorKind::Closed);
        let more = Claim::new(Lease::new(&"k".try_into().unwrap(), TTL));
        let refused = client.backend().try_acquire(&more).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed, "the backend is open");
    }

    #[tokio::test(start_paused = true)]
    async fn covers_a_lease_that_is_handed_over_meanwhile() {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let backend = Closing::new(&store);
        let on_grant = Arc::clone(&backend.on_grant);
        let client = LockClient::builder(backend).clock(clock).build().unwrap();
        let mutex = client.mutex("k").unwrap();
        let next = mutex.clone();
        let waiting = Arc::new(StdMutex::new(async move { next.lock().await }.boxed()));
        let shutdown = Arc::new(StdMutex::new(async move { client.shutdown(TTL).await }.boxed()));
        let begun = (Arc::clone(&waiting), Arc::clone(&shutdown));
        *on_grant.lock().unwrap() = Some(Box::new(move || {
            assert!((&mut *begun.0.lock().unwrap()).now_or_never().is_none());
            assert!((&mut *begun.1.lock().unwrap()).now_or_never().is_none());
        }));

        let granted = mutex.lock().await.unwrap_err();
        Arc::into_inner(shutdown).unwrap().into_inner().unwrap().await.unwrap();

        assert_eq!(store.keys(), 0);
        assert_eq!(granted.kind(), ErrorKind::Closed);
        let waiting = Arc::into_inner(waiting).unwrap().into_inner().unwrap();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test]
    async fn that_is_over_before_a_call_that_has_begun_asks_for_anything_ends_it() {
        let backend = Closing::new(&MemoryBackend::new());
        let meanwhile = Arc::clone(&backend.meanwhile);
        let backend = FaultBackend::new(backend);
        let faults = backend.faults().clone();
        let client = LockClient::new(backend);
        let closing = client.clone();
        let shutdown = async move { closing.shutdown(TTL).await };
        *meanwhile.lock().unwrap() = Some(shutdown.boxed());

        let error = client.mutex("k").unwrap().lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(faults.calls(Operation::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn says_so_if_a_call_that_is_not_polled_may_be_granted_yet() {
        let (client, faults) = client();
        faults.inject(Operation::Acquire, Fault::SwallowReply, 1);
        let mutex = client.mutex("k").unwrap();
        let mut asking = Box::pin(mutex.lock());
        assert!((&mut asking).now_or_never().is_none());

        let error = client.shutdown(TTL / 30).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(asking.await.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_calls_that_come_after_it_before_anything_is_sent() {
        let (client, faults) = client();
        client.shutdown(TTL).await.unwrap();

        let error = client.mutex("k").unwrap().lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(faults.calls(Operation::Acquire), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn leaves_no_lease_behind_however_it_races_with_locking() {
        for _ in 0..200 {
            let store = MemoryBackend::new();
            let client = LockClient::new(store.clone());
            let locking: Vec<_> = (0..4)
                .map(|n| {
                    let mutex = client.mutex(format!("k{n}")).unwrap();
                    tokio::spawn(async move { mutex.lock().await })
                })
                .collect();
            tokio::task::yield_now().await;

            client.shutdown(Duration::from_secs(5)).await.unwrap();

            for locked in locking {
                match locked.await.unwrap() {
                    Ok(guard) => assert!(!guard.is_held()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
                }
            }
            assert_eq!(store.keys(), 0, "a lease is left");
        }
    }

    #[tokio::test]
    async fn of_a_client_that_never_locked_is_nothing_to_wait_for() {
        let (client, _faults) = client();

        client.shutdown(Duration::ZERO).await.unwrap();
    }
}

mod owners {
    use super::*;

    /// In real time: a paused clock does not end the wait of a task that has used up its budget.
    #[tokio::test]
    async fn enter_however_much_of_their_budget_is_left() {
        let client = LockClient::new(MemoryBackend::new());
        let (held, free) =
            (client.reentrant_mutex("k").unwrap(), client.reentrant_mutex("f").unwrap());
        let _guard = held.lock().await.unwrap();

        // Tokio lets a task do 128 things before it must yield.
        for spent in 0..=128 {
            for mutex in [&held, &free] {
                tokio::task::yield_now().await;
                for _ in 0..spent {
                    tokio::task::coop::consume_budget().await;
                }

                let entered = mutex.try_lock().await.unwrap();

                assert!(entered.is_some(), "{:?} after {spent} of the budget", mutex.key());
            }
        }
    }

    #[tokio::test]
    async fn do_not_enter_a_lock_that_they_hold_as_another_kind() {
        let store = MemoryBackend::new();
        let (client, other) = (LockClient::new(store.clone()), LockClient::new(store));
        let (readers, mutex) = (client.rw_lock("k").unwrap(), client.reentrant_mutex("k").unwrap());
        let beside = other.rw_lock("k").unwrap().read().await.unwrap();

        let reader = readers.clone().reentrant().read().await.unwrap();
        let refused = mutex.try_lock().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType);
        reader.release().await.unwrap();
        beside.release().await.unwrap();

        let _guard = mutex.lock().await.unwrap();
        let refused = readers.reentrant().write().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType);
    }
}

mod leases {
    use super::*;

    const SHORTEST: Duration = Duration::from_secs(1);

    /// A store that counts in seconds, and refuses less than one.
    #[derive(Clone, Debug)]
    struct Coarse(MemoryBackend);

    #[async_trait]
    impl LockBackend for Coarse {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities().with_ttl_range(SHORTEST, Capabilities::DEFAULT_MAX_TTL)
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            self.0.try_acquire(claim).await
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            if lease.ttl() < SHORTEST {
                return Err(Error::new(ErrorKind::Refused, "the TTL is too short"));
            }
            self.0.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.0.release(lease).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_capped_are_looked_after_when_there_is_news_and_otherwise_left_alone() {
        let (client, faults) = client();
        let capped = LockOptions::new().ttl(TTL).max_hold(TTL);
        let mutex = client.mutex("k").unwrap().with_options(capped).unwrap();
        let guard = mutex.lock().await.unwrap();
        tokio::time::sleep(TTL / 2).await;
        assert_eq!(faults.calls(Operation::Renew), 0);

        client.backend().expire(mutex.key()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Vanished));
        assert_eq!(faults.calls(Operation::Renew), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn that_keep_a_key_closed_do_so_for_the_shortest_ttl_at_least() {
        const MIN_HOLD: Duration = Duration::from_secs(5);
        let clock = TokioClock::new();
        let store = Coarse(MemoryBackend::with_clock(clock));
        let client = LockClient::builder(store.clone()).clock(clock);
        let client = client.options(LockOptions::new().min_hold(MIN_HOLD)).build().unwrap();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        tokio::time::sleep(MIN_HOLD - SHORTEST / 10).await;
        guard.release().await.unwrap();

        let closed = store.0.inspect(&"k".try_into().unwrap()).await.unwrap();
        assert_eq!(closed.holders()[0].remaining(), Some(SHORTEST));
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_released_end_every_wait_for_their_loss() {
        let client = LockClient::new(MemoryBackend::new());
        for is_dropped in [false, true] {
            let guard = client.mutex("k").unwrap().lock().await.unwrap();
            let lost = tokio::spawn(guard.lost());
            let asked = tokio::spawn(guard.revocation_requested());
            tokio::task::yield_now().await;

            if is_dropped {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }

            assert_eq!(lost.await.unwrap(), None);
            assert!(!asked.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_shared_end_the_waits_for_their_loss_with_the_last_guard() {
        let client = LockClient::new(MemoryBackend::new());
        let mutex = client.reentrant_mutex("k").unwrap();
        let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
        let lost = tokio::spawn(inner.lost());

        inner.release().await.unwrap();
        tokio::time::sleep(TTL).await;
        assert!(!lost.is_finished());

        outer.release().await.unwrap();
        assert_eq!(lost.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_lost_end_a_wait_for_a_request_with_the_guard() {
        let (client, _faults) = client();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let asked = tokio::spawn(guard.revocation_requested());
        client.backend().expire(guard.key()).await.unwrap();
        assert_eq!(guard.lost().await, Some(LossReason::Vanished));

        drop(guard);

        assert!(!asked.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_waited_for_keep_no_client_alive() {
        let backend = Arc::new(MemoryBackend::new());
        let client = LockClient::new(Arc::clone(&backend));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let (_lost, _asked) = (guard.lost(), guard.revocation_requested());

        guard.release().await.unwrap();
        drop(client);
        tokio::time::sleep(TTL).await;

        assert_eq!(Arc::strong_count(&backend), 1);
    }

    #[tokio::test]
    async fn of_a_hundred_thousand_names_leave_nothing_behind() {
        let store = MemoryBackend::new();
        let client = LockClient::new(store.clone());
        for n in 0..100_000 {
            let guard = client.mutex(format!("k{n}")).unwrap().try_lock().await.unwrap().unwrap();
            guard.release().await.unwrap();
        }

        assert_eq!(store.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn that_have_ended_are_cleared_from_memory_by_later_calls() {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        for n in 0..1_000 {
            let key = leasehold_core::LockKey::new(format!("k{n}")).unwrap();
            let claim = leasehold_core::Claim::new(leasehold_core::Lease::new(&key, TTL));
            store.try_acquire(&claim).await.unwrap();
        }
        assert_eq!(store.keys(), 1_000);
        tokio::time::sleep(TTL).await;

        let key = leasehold_core::LockKey::new("other").unwrap();
        let lease = leasehold_core::Lease::new(&key, TTL);
        for _ in 0..500 {
            assert_eq!(store.release(&lease).await.unwrap(), Release::NotHeld);
        }

        assert_eq!(store.keys(), 0);
    }

    #[tokio::test]
    async fn are_shared_by_clients_of_any_backend() {
        let store = MemoryBackend::new();
        let typed: LockClient<MemoryBackend> = LockClient::new(store.clone());
        let erased: LockClient = LockClient::new(store.clone()).erase();
        let shared: LockClient<Arc<dyn LockBackend>> =
            LockClient::new(Arc::new(store) as Arc<dyn LockBackend>);

        let guard = typed.mutex("k").unwrap().lock().await.unwrap();

        assert!(erased.mutex("k").unwrap().try_lock().await.unwrap().is_none());
        assert!(shared.mutex("k").unwrap().try_lock().await.unwrap().is_none());
        assert_eq!(typed.backend().keys(), 1);
        drop(guard);
    }
}

#[test]
fn types_that_users_hold_may_be_sent_and_shared() {
    let client = LockClient::new(MemoryBackend::new()).erase();
    assert_send_sync_static(&client);
    assert_send_sync_static(&client.mutex("k").unwrap());
    assert_send_sync_static(&client.reentrant_mutex("k").unwrap());
    assert_send_sync_static(&client.admin());
}

/// Futures that users spawn must be `Send`, the closure form included.
#[tokio::test]
async fn futures_that_users_await_may_be_spawned() {
    let client = LockClient::new(MemoryBackend::new());
    let (mutex, reentrant) = (client.mutex("k").unwrap(), client.reentrant_mutex("r").unwrap());

    let spawned = tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        guard.extend(TTL).await.unwrap();
        guard.run(async {}).await.unwrap();
        guard.release().await.unwrap();
        let from_mutex = mutex.run(async |guard| guard.token().number()).await.unwrap();
        from_mutex + reentrant.run(async |guard| guard.token().number()).await.unwrap()
    });

    assert!(spawned.await.unwrap() > 0);
}
