//! The end of a client.

use super::*;

/// A layer that refuses all requests after it was closed, and runs an event before the first watch.
#[derive(Debug)]
struct Closable {
    inner: FaultBackend<MemoryBackend>,
    is_closed: AtomicBool,
    before_watch: Event,
}

#[async_trait]
impl Layer for Closable {
    fn inner(&self) -> &dyn LockBackend {
        &self.inner
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        match self.is_closed.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Closed, "closed")),
            false => request.send(&self.inner).await,
        }
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.before_watch.happen();
        self.inner().watch(subject)
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}

/// Returns a client of a [`Closable`] store, the faults of its requests, the data of the store, and
/// the event before the first watch.
fn closable() -> (LockClient<Closable>, Faults, MemoryBackend, Event) {
    let clock = TokioClock::new();
    let store = MemoryBackend::with_clock(clock);
    let inner = FaultBackend::new(store.clone()).with_clock(clock);
    let (faults, before_watch) = (inner.faults().clone(), Event::default());
    let is_closed = AtomicBool::default();
    let backend = Closable { inner, is_closed, before_watch: before_watch.clone() };
    let client = LockClient::builder(backend).clock(clock).build().unwrap();
    (client, faults, store, before_watch)
}

type Action = Box<dyn FnOnce() + Send>;

/// An event that happens once.
#[derive(Clone, Default)]
struct Event(Arc<StdMutex<Option<Action>>>);

impl Event {
    fn set(&self, event: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(event));
    }

    fn happen(&self) {
        let event = self.0.lock().unwrap().take();
        if let Some(event) = event {
            event();
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Event")
    }
}

#[tokio::test(start_paused = true)]
async fn ends_calls_that_wait_here_and_at_the_store() {
    let client = Fixture::new().client;
    let _guard = client.mutex("k").unwrap().lock().await.unwrap();
    let store = client.backend();
    let foreign = leasehold_core::backend::Lease::new(client.mutex("f").unwrap().key(), TTL * 9);
    store.acquire(&leasehold_core::backend::Claim::new(foreign)).await.unwrap();
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
    let Fixture { client, faults, .. } = Fixture::new();
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
    let (client, faults, store, _) = closable();
    faults.inject(Operation::Acquire, Fault::DelayReply(Duration::from_millis(50)), 1);
    let mutex = client.mutex("k").unwrap();
    let asking = tokio::spawn(async move { mutex.lock().await.unwrap_err().kind() });
    tokio::time::sleep(Duration::from_millis(10)).await;

    client.shutdown(TTL).await.unwrap();

    assert_eq!(store.keys(), 0);
    assert_eq!(asking.await.unwrap(), ErrorKind::Closed);
    let more = Claim::new(Lease::new(&"k".try_into().unwrap(), TTL));
    let refused = client.backend().acquire(&more).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed, "the backend is open");
}

/// The reaper sends all releases except one, which a caller sends.
#[tokio::test(start_paused = true)]
async fn waits_for_the_releases_of_all_keys() {
    const KEYS: u64 = 50;

    let Fixture { client, faults, store, .. } = Fixture::new();
    let mut guards = Vec::new();
    for n in 1..=KEYS {
        let guard = client.mutex(format!("k{n}")).unwrap().lock().await.unwrap();
        faults.inject_on(guard.key(), Operation::Release, Fault::DelayRequest(ms(n)), 1);
        guards.push(guard);
    }
    let mut releasing = Box::pin(guards.pop().unwrap().release());
    assert!((&mut releasing).now_or_never().is_none());
    guards.truncate(guards.len() / 2);

    let shutdown = async {
        client.shutdown(TTL).await.unwrap();
        store.keys()
    };
    let (released, left) = tokio::join!(releasing, shutdown);

    released.unwrap();
    assert_eq!(left, 0);
    assert!(guards.iter().all(|guard| !guard.is_held()));
}

#[tokio::test(start_paused = true)]
async fn covers_a_lease_that_is_handed_over_meanwhile() {
    let (client, faults, store, _) = closable();
    let on_grant = Event::default();
    let event = on_grant.clone();
    faults.on_reply(move |request, reply| {
        if matches!(request, Request::Acquire(_)) {
            event.happen();
        }
        Ok(reply)
    });
    let mutex = client.mutex("k").unwrap();
    let next = mutex.clone();
    let waiting = Arc::new(StdMutex::new(async move { next.lock().await }.boxed()));
    let shutdown = Arc::new(StdMutex::new(async move { client.shutdown(TTL).await }.boxed()));
    let begun = (Arc::clone(&waiting), Arc::clone(&shutdown));
    on_grant.set(move || {
        assert!((&mut *begun.0.lock().unwrap()).now_or_never().is_none());
        assert!((&mut *begun.1.lock().unwrap()).now_or_never().is_none());
    });

    let granted = mutex.lock().await.unwrap_err();
    Arc::into_inner(shutdown).unwrap().into_inner().unwrap().await.unwrap();

    assert_eq!(store.keys(), 0);
    assert_eq!(granted.kind(), ErrorKind::Closed);
    let waiting = Arc::into_inner(waiting).unwrap().into_inner().unwrap();
    assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
}

struct OnLoss(Event);

impl Observer for OnLoss {
    fn on_lost(&self, _: &Lost<'_>) {
        self.0.happen();
    }
}

/// The watchdog finds two leases that are due. It ends the first lease, and has not started to
/// renew the second lease yet.
#[tokio::test(start_paused = true)]
async fn covers_a_lease_whose_renewal_is_about_to_start() {
    let on_loss = Event::default();
    let Fixture { client, other, .. } =
        Fixture::building(MemoryBackend::new().capabilities(), |builder| {
            builder.observer(OnLoss(on_loss.clone())).options(options())
        });
    let unrenewed = options().ttl(TTL / 3).renewal(RenewalMode::Off);
    let expires = client.mutex("expires").unwrap().with_options(unrenewed).unwrap();
    let expires = expires.lock().await.unwrap();
    let renewed = client.mutex("renewed").unwrap().lock().await.unwrap();
    pass(ms(100)).await;
    let closing = client.clone();
    on_loss.set(move || drop(closing.shutdown(TTL).now_or_never()));

    tokio::time::advance(TTL / 2).await;
    pass(ms(1)).await;

    assert_eq!(expires.state(), LeaseState::Lost(LossReason::Expired));
    assert_eq!(renewed.state(), LeaseState::Lost(LossReason::Shutdown));
    assert!(other.mutex("renewed").unwrap().try_lock().await.is_ok());
}

#[tokio::test]
async fn that_is_over_before_a_call_that_has_begun_asks_for_anything_ends_it() {
    let (client, faults, _, before_watch) = closable();
    let closing = client.clone();
    // The call starts its watch before it sends its claim.
    before_watch.set(move || closing.shutdown(TTL).now_or_never().unwrap().unwrap());

    let error = client.mutex("k").unwrap().lock().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(faults.calls(Operation::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn that_is_over_before_a_call_that_waits_asks_again_ends_it() {
    let Fixture { client, faults, other, .. } = Fixture::new();
    faults.set_notifications(Notifications::Scripted);
    // The store keeps no queue entry, so there is nothing to release.
    faults.on_reply(|_request, reply| {
        Ok(match reply {
            Reply::Attempt(Attempt::Held(_)) => {
                Reply::Attempt(Attempt::Held(Contention::default()))
            }
            reply => reply,
        })
    });
    let held = other.mutex("k").unwrap().lock().await.unwrap();
    let mutex = client.mutex("k").unwrap();
    let mut waiting = mutex.lock().boxed();
    assert!((&mut waiting).now_or_never().is_none());
    // The call is woken, and is not polled before the shutdown is over.
    faults.notify_falsely(held.key());

    client.shutdown(TTL).now_or_never().expect("no release is pending").unwrap();

    assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(faults.calls(Operation::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn says_so_if_a_call_that_is_not_polled_may_be_granted_yet() {
    let Fixture { client, faults, .. } = Fixture::new();
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
    let Fixture { client, faults, .. } = Fixture::new();
    client.shutdown(TTL).await.unwrap();

    let error = client.mutex("k").unwrap().lock().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(faults.calls(Operation::Acquire), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaves_no_lease_behind_however_it_races_with_locking() {
    for round in 0..200 {
        let store = MemoryBackend::new();
        let client = LockClient::new(store.clone());
        let locking: Vec<_> = (0..4)
            .map(|n| {
                let mutex = client.mutex(format!("k{n}")).unwrap();
                tokio::spawn(async move { mutex.lock().await })
            })
            .collect();
        // The shutdown starts at a different point of the calls in each round.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }

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
    let client = Fixture::new().client;

    client.shutdown(Duration::ZERO).await.unwrap();
}

mod drain {
    use leasehold_core::clock::Clock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_for_guards_and_renews_their_leases_until_then() {
        let Fixture { client, clock, .. } = Fixture::new();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let asked_at = clock.now();

        let (drained, ()) = tokio::join!(client.drain(TTL * 9), async {
            clock.sleep_until(asked_at + TTL * 3).await;
            assert!(guard.is_held());
            guard.release().await.unwrap();
        });

        drained.unwrap();
        assert_eq!(clock.now(), asked_at + TTL * 3);
        assert!(!client.mutex("k").unwrap().is_locked().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn ends_calls_that_wait_and_refuses_new_ones() {
        let client = Fixture::new().client;
        let mutex = client.mutex("k").unwrap();
        let guard = mutex.lock().await.unwrap();
        let waits = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.lock().await.map(drop) }
        });
        tokio::task::yield_now().await;

        let (drained, refusals) = tokio::join!(client.drain(TTL * 9), async {
            let waited = waits.await.unwrap().unwrap_err();
            let entered = client.mutex("other").unwrap().lock().await.unwrap_err();
            let pinged = client.ping(TTL).await.unwrap_err();
            drop(guard);
            [waited, entered, pinged].map(|error| error.kind())
        });

        drained.unwrap();
        assert_eq!(refusals, [ErrorKind::Closed; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_at_its_limit_and_leaves_the_lease_in_force() {
        let Fixture { client, clock, .. } = Fixture::new();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let asked_at = clock.now();

        let error = client.drain(TTL * 2).await.unwrap_err();

        assert_eq!((error.kind(), clock.now()), (ErrorKind::Timeout, asked_at + TTL * 2));
        assert!(guard.is_held());
        client.shutdown(TTL).await.unwrap();
        assert_eq!(guard.lost().await, Some(LossReason::Shutdown));
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_wait_for_a_guard_that_lost_its_lease() {
        let Fixture { client, .. } = Fixture::new();
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        client.admin().force_release("k", "a test").await.unwrap();
        assert_eq!(guard.lost().await, Some(LossReason::Vanished));

        client.drain(Duration::ZERO).await.unwrap();
    }
}
