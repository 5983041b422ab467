//! What leases of ours hang on: etcd's leases, few of which serve many.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use leasehold_core::clock::{self, Clock, Sleep};
use leasehold_core::{
    Attempt, Claim, Lease, LeaseState, LockBackend, LockClient, LockGuard, LockKey, LockOptions,
    Patience, Renewal, RenewalMode, Tenure,
};
use leasehold_etcd::etcd_client::{Client, GetOptions, KeyValue};
use leasehold_etcd::{EtcdBackend, EtcdConfig};
use leasehold_testbed::{Etcd, FaultProxy, Weather, until};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(3);

const LONG: Duration = Duration::from_secs(60);

async fn client(url: &str, options: LockOptions) -> LockClient<EtcdBackend> {
    let backend = EtcdBackend::connect(url).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Holds so many locks, taken not all at once: that would only try how fast the machine is.
async fn hold(client: &LockClient<EtcdBackend>, number: usize) -> Vec<LockGuard> {
    let mutexes = (0..number).map(|n| client.mutex(format!("job-{n}")).unwrap());
    let locking = mutexes.map(async |mutex| mutex.lock().await.unwrap());
    stream::iter(locking).buffer_unordered(50).collect().await
}

async fn store(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.unwrap()
}

/// The one who holds a lock.
async fn holder(store: &Client, name: &str) -> Option<KeyValue> {
    let range = GetOptions::new().with_prefix();
    store
        .kv_client()
        .get(format!("lock/{name}/"), Some(range))
        .await
        .unwrap()
        .kvs()
        .first()
        .cloned()
}

async fn keys(store: &Client) -> usize {
    let range = GetOptions::new().with_prefix();
    store.kv_client().get("lock/", Some(range)).await.unwrap().kvs().len()
}

async fn leases(store: &Client) -> Vec<i64> {
    let leases = store.lease_client().leases().await.unwrap();
    leases.leases().iter().map(|lease| lease.id()).collect()
}

/// A clock that goes as it is set.
#[derive(Clone, Debug, Default)]
struct SetClock(Arc<Mutex<Duration>>);

impl Clock for SetClock {
    fn now(&self) -> clock::Instant {
        clock::Instant::from_zero(*self.0.lock().unwrap())
    }

    fn sleep_until(&self, _deadline: clock::Instant) -> Sleep {
        unreachable!("the backend waits on real time only");
    }
}

#[tokio::test]
async fn sessions_age_on_the_clock_of_the_configuration() {
    let etcd = Etcd::start().await;
    let clock = SetClock::default();
    let config = EtcdConfig::from_url(&etcd.url()).unwrap().clock(clock.clone());
    let backend = EtcdBackend::connect_with(config).await.unwrap();
    let grant = async |name: &str| {
        let lease = Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept);
        let attempt = backend.try_acquire(&Claim::new(lease)).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
    };
    let store = store(&etcd).await;
    grant("first").await;
    grant("second").await;
    assert_eq!(leases(&store).await.len(), 1);

    *clock.0.lock().unwrap() += LONG * 2;
    grant("third").await;

    assert_eq!(leases(&store).await.len(), 2, "the first session is over on this clock");
}

mod a_client {
    use super::*;

    async fn requests_to_keep_alive(etcd: &Etcd) -> f64 {
        etcd.metric(0, r#"grpc_server_msg_received_total{grpc_method="LeaseKeepAlive"}"#).await
    }

    /// A busy machine takes a while for a thousand locks.
    const AMPLE_TTL: Duration = Duration::from_secs(24);

    /// How many requests to keep a lease alive come in a TTL, while so many locks are held.
    async fn requests_for(number: usize) -> f64 {
        let etcd = Etcd::start().await;
        let client = client(&etcd.url(), LockOptions::new().ttl(AMPLE_TTL)).await;
        let guards = hold(&client, number).await;
        let before = requests_to_keep_alive(&etcd).await;

        sleep(AMPLE_TTL).await;

        let requests = requests_to_keep_alive(&etcd).await - before;
        assert!(guards.iter().all(LockGuard::is_held), "of {number}");
        assert_eq!(leases(&store(&etcd).await).await.len(), 1, "of {number}");
        requests
    }

    #[tokio::test]
    async fn keeps_a_thousand_locks_alive_with_the_requests_of_one() {
        let (one, thousand) = tokio::join!(requests_for(1), requests_for(1_000));

        assert!(one >= 2.0, "{one}");
        assert!(thousand <= one * 2.0, "{thousand} for a thousand locks, {one} for one");
    }

    #[tokio::test]
    async fn has_one_lease_for_each_ttl() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), LockOptions::new().ttl(TTL)).await;
        let longer = client.options().ttl(TTL * 2);

        let _short = hold(&client, 5).await;
        let mutex = client.mutex("long").unwrap().with_options(longer).unwrap();
        let _long = mutex.lock().await.unwrap();

        assert_eq!(leases(&store).await.len(), 2);
    }

    #[tokio::test]
    async fn believes_in_a_lock_no_longer_than_the_lease_it_hangs_on() {
        let etcd = Etcd::start().await;
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let ttl_of = async |name: &str| {
            let lease = Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept);
            match backend.try_acquire(&Claim::new(lease)).await.unwrap() {
                Attempt::Granted(grant) => grant.ttl(),
                Attempt::Held(contention) => panic!("{contention:?}"),
            }
        };
        ttl_of("first").await;
        let begun = Instant::now();

        // What is left of the client's lease is enough, so that it is not renewed for a lock more.
        sleep(Duration::from_secs(1)).await;
        let passed = begun.elapsed();
        let left = ttl_of("second").await.expect("less than was asked for");

        assert!(left <= LONG - passed, "{left:?} of {LONG:?}, {passed:?} later");
    }

    #[tokio::test]
    async fn that_goes_away_frees_everything() {
        let etcd = Etcd::start().await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let store = store(&etcd).await;
        let url = format!("etcd://{}", proxy.address());
        let client = client(&url, LockOptions::new().ttl(TTL)).await;
        let guards = hold(&client, 20).await;
        assert_eq!(keys(&store).await, 20);

        proxy.set_weather(Weather::BlackHole);
        let start = Instant::now();
        until("all is free", async || keys(&store).await == 0).await;

        // The server looks for leases that have ended twice a second.
        assert!(start.elapsed() < TTL + Duration::from_secs(2), "it took {:?}", start.elapsed());
        assert!(guards.iter().all(|guard| !guard.is_held()));
        assert_eq!(leases(&store).await, Vec::<i64>::new());
    }
}

mod a_client_that_is_shut_down {
    use super::*;

    #[tokio::test]
    async fn leaves_no_lease() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let (holder, client) = (
            self::client(&etcd.url(), LockOptions::new().ttl(LONG)).await,
            self::client(&etcd.url(), LockOptions::new().ttl(LONG)).await,
        );
        let _guard = holder.mutex("held").unwrap().lock().await.unwrap();
        let before = leases(&store).await;

        let fixed = client.options().renewal(RenewalMode::Off);
        for options in [client.options(), fixed] {
            let mutex = client.mutex("free").unwrap().with_options(options).unwrap();
            mutex.lock().await.unwrap().release().await.unwrap();
        }
        let held = client.mutex("held").unwrap();
        assert!(held.try_lock().await.unwrap().is_none());
        assert!(held.try_lock_for(Duration::from_millis(100)).await.unwrap().is_none());
        let _left = client.mutex("left").unwrap().lock().await.unwrap();
        assert!(leases(&store).await.len() > before.len());
        client.shutdown(LONG).await.unwrap();

        assert_eq!(leases(&store).await, before);
    }

    #[tokio::test]
    async fn leaves_to_their_ttl_the_leases_of_others_that_it_did_not_release() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let kept = Lease::new(&LockKey::new("kept").unwrap(), LONG).with_tenure(Tenure::Kept);
        backend.try_acquire(&Claim::new(kept)).await.unwrap();

        backend.close().await;

        assert_eq!(keys(&store).await, 1);
    }
}

#[tokio::test]
async fn requests_to_finish_have_one_lease_however_many_there_are() {
    let etcd = Etcd::start().await;
    let store = store(&etcd).await;
    let client = client(&etcd.url(), LockOptions::new().ttl(LONG)).await;
    let _guard = client.mutex("job").unwrap().lock().await.unwrap();

    for _ in 0..5 {
        client.request_revocation("job").await.unwrap();
    }

    assert_eq!(leases(&store).await.len(), 2);
}

mod without_renewal {
    use super::*;

    fn options(ttl: Duration) -> LockOptions {
        LockOptions::new().ttl(ttl).renewal(RenewalMode::Off)
    }

    #[tokio::test]
    async fn locks_have_a_lease_each_and_those_end() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), options(TTL)).await;

        let guards = hold(&client, 5).await;
        assert_eq!(leases(&store).await.len(), 5);
        for guard in guards {
            guard.release().await.unwrap();
        }

        // Some are kept to spare until they end by themselves.
        until("the leases are gone", async || leases(&store).await.is_empty()).await;
    }

    #[tokio::test]
    async fn one_lease_is_enough_for_one_lock_after_the_other() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), options(LONG)).await;

        for guard in 0..20 {
            let guard = client.mutex(format!("job-{guard}")).unwrap().lock().await.unwrap();
            assert!(guard.remaining() > LONG / 2);
            guard.release().await.unwrap();
        }

        assert_eq!(leases(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn hundreds_of_locks_leave_few_leases() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), options(LONG)).await;

        for guard in hold(&client, 100).await {
            guard.release().await.unwrap();
        }

        let left = leases(&store).await.len();
        assert!(left <= 10, "{left}");
    }

    #[tokio::test]
    async fn a_refused_attempt_leaves_no_lease() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), options(LONG)).await;
        let _guard = client.semaphore("job", 1).unwrap().acquire(1).await.unwrap();

        for _ in 0..10 {
            assert!(client.semaphore("job", 1).unwrap().try_acquire(1).await.unwrap().is_none());
        }

        assert_eq!(leases(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn an_attempt_that_was_overtaken_leaves_a_lease_to_use_again() {
        let etcd = Etcd::start().await;
        let mut store = store(&etcd).await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let backend = EtcdBackend::connect(&format!("etcd://{}", proxy.address())).await.unwrap();
        let claim = |name: &str| {
            let lease = Lease::new(&LockKey::new(name).unwrap(), LONG);
            Claim::new(lease).with_patience(Patience::Queues(LONG))
        };
        let looks =
            async || etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Txn"}"#).await;
        let (before, overtaken) = (looks().await, claim("job"));
        proxy.set_weather(Weather::Slow(Duration::from_millis(100)));
        let mut acquiring = pin!(backend.try_acquire(&overtaken));

        // It has seen that the lock is free, and does not go on before another has it.
        tokio::select! {
            attempt = &mut acquiring => panic!("{attempt:?}"),
            () = until("it looks", async || looks().await > before) => {}
        }
        store.put("lock/job/other", "", None).await.unwrap();
        assert!(matches!(acquiring.await.unwrap(), Attempt::Held(_)));
        proxy.set_weather(Weather::Fair);
        let left = leases(&store).await.len();

        assert!(matches!(backend.try_acquire(&claim("free")).await.unwrap(), Attempt::Granted(_)));

        assert_eq!(leases(&store).await.len(), left);
    }

    #[tokio::test]
    async fn waiters_that_give_up_leave_no_places_and_few_leases() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let holder = client(&etcd.url(), options(LONG)).await;
        let waiter = client(&etcd.url(), options(LONG)).await;
        let _guard = holder.mutex("job").unwrap().lock().await.unwrap();

        for _ in 0..5 {
            let mutex = waiter.mutex("job").unwrap();
            let waiting = tokio::spawn(async move { mutex.lock().await });
            until("it queues", async || keys(&store).await == 2).await;
            waiting.abort();
            until("its place is gone", async || keys(&store).await == 1).await;
        }

        let left = leases(&store).await.len();
        assert!(left <= 1 + 5, "{left}");
    }

    #[tokio::test]
    async fn an_extension_by_hand_moves_the_lock_to_one_new_lease() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), options(TTL)).await;
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let (token, before) = (guard.token().clone(), holder(&store, "job").await.unwrap());

        guard.extend(LONG).await.unwrap();

        let after = holder(&store, "job").await.unwrap();
        assert_ne!(after.lease(), before.lease());
        assert_eq!(after.create_revision(), before.create_revision());
        assert_eq!(*guard.token(), token);
        assert!(guard.remaining() > LONG / 2);
        until("the other ends", async || leases(&store).await == [after.lease()]).await;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

mod after_a_release_that_failed {
    use super::*;

    fn kept(name: &str) -> Lease {
        Lease::new(&LockKey::new(name).unwrap(), TTL).with_tenure(Tenure::Kept)
    }

    #[tokio::test]
    async fn the_others_move_to_another_lease_and_the_old_one_ends() {
        let etcd = Etcd::start().await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let store = store(&etcd).await;
        let url = format!("etcd://{}", proxy.address());
        let backend = EtcdBackend::connect(&url).await.unwrap();
        let (left_behind, moves) = (kept("left-behind"), kept("moves"));
        for lease in [&left_behind, &moves] {
            backend.try_acquire(&Claim::new(lease.clone())).await.unwrap();
        }
        let before = holder(&store, "moves").await.unwrap();
        proxy.set_weather(Weather::Reset);
        backend.release(&left_behind).await.unwrap_err();
        proxy.set_weather(Weather::Fair);

        assert_eq!(backend.renew(&moves).await.unwrap(), Renewal::Renewed);

        let after = holder(&store, "moves").await.unwrap();
        assert_ne!(after.lease(), before.lease());
        assert_eq!(after.create_revision(), before.create_revision());
        let start = Instant::now();
        until("the old lease ends, and what hangs on it", async || {
            assert_eq!(backend.renew(&moves).await.unwrap(), Renewal::Renewed);
            !leases(&store).await.contains(&before.lease())
        })
        .await;
        assert!(start.elapsed() < TTL + Duration::from_secs(2), "it took {:?}", start.elapsed());
        assert!(holder(&store, "left-behind").await.is_none());
        assert_eq!(holder(&store, "moves").await.unwrap().lease(), after.lease());
    }

    #[tokio::test]
    async fn no_lock_of_the_client_is_lost() {
        let etcd = Etcd::start().await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let store = store(&etcd).await;
        let url = format!("etcd://{}", proxy.address());
        // Longer than a release that fails is tried for.
        let client = client(&url, LockOptions::new().ttl(Duration::from_secs(12))).await;
        let mut guards = hold(&client, 20).await;
        let before = holder(&store, "job-0").await.unwrap().lease();
        let tokens: Vec<_> = guards.iter().map(|guard| guard.token().clone()).collect();
        let released = guards.pop().unwrap();
        proxy.set_weather(Weather::Reset);
        assert!(released.release().await.unwrap_err().is_retryable());
        proxy.set_weather(Weather::Fair);

        until("the old lease ends", async || !leases(&store).await.contains(&before)).await;

        for (guard, token) in guards.iter().zip(&tokens) {
            assert_eq!(guard.state(), LeaseState::Held);
            assert_eq!(guard.token(), token);
        }
        assert_eq!(keys(&store).await, guards.len());
    }
}

mod clones {
    use super::*;

    const SHORT: Duration = Duration::from_secs(2);

    /// A cluster, with the runtime on which it is watched.
    fn start() -> (Runtime, Etcd, EtcdBackend) {
        let runtime = Runtime::new().unwrap();
        let etcd = runtime.block_on(Etcd::start());
        let backend = runtime.block_on(EtcdBackend::connect(&etcd.url())).unwrap();
        (runtime, etcd, backend)
    }

    fn client_of(backend: &EtcdBackend) -> LockClient<EtcdBackend> {
        let options = LockOptions::new().ttl(SHORT);
        LockClient::builder(backend.clone()).options(options).build().unwrap()
    }

    #[test]
    fn keep_no_lock_alive_that_another_has_left_behind() {
        let (long, etcd, backend) = start();
        let (stays, goes) = (client_of(&backend), client_of(&backend));
        let held = long.block_on(async { stays.mutex("held").unwrap().lock().await.unwrap() });
        let short = Runtime::new().unwrap();
        let guard = short.block_on(async { goes.mutex("left").unwrap().lock().await.unwrap() });

        // Nobody is left to renew or release it.
        drop(short);
        drop((guard, goes));

        long.block_on(async {
            let store = store(&etcd).await;
            until("it ends", async || holder(&store, "left").await.is_none()).await;
            assert!(held.is_held());
        });
    }

    #[test]
    fn keep_no_place_alive_that_another_has_left_behind() {
        let (long, etcd, backend) = start();
        let (stays, goes) = (client_of(&backend), client_of(&backend));
        let short = Runtime::new().unwrap();
        let [kept, left] = ["kept", "left"].map(|name| format!("lock/{name}/other"));
        let mut store = long.block_on(store(&etcd));
        for key in [kept, left] {
            long.block_on(store.put(key, "", None)).unwrap();
        }
        let wait = |client: &LockClient<EtcdBackend>, name: &str| {
            let mutex = client.mutex(name).unwrap();
            async move { mutex.lock().await.map(drop) }
        };
        let waits = long.spawn(wait(&stays, "kept"));
        short.spawn(wait(&goes, "left"));
        long.block_on(until("both wait", async || keys(&store).await == 4));

        // Nobody is left to keep its place or to leave it.
        drop(short);
        drop(goes);

        long.block_on(until("its place ends", async || keys(&store).await == 3));
        assert!(!waits.is_finished());
    }
}

mod another_client {
    use super::*;

    #[tokio::test]
    async fn that_moves_a_lease_ends_none_on_which_others_hang() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let one = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let other = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let [moves, stays] = ["moves", "stays"]
            .map(|name| Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept));
        for lease in [&moves, &stays] {
            one.try_acquire(&Claim::new(lease.clone())).await.unwrap();
        }

        let moves = moves.with_tenure(Tenure::Fixed);
        assert_eq!(other.renew(&moves).await.unwrap(), Renewal::Renewed);

        assert_eq!(keys(&store).await, 2);
        assert_eq!(one.renew(&stays).await.unwrap(), Renewal::Renewed);
    }
}

mod marks_and_places {
    use super::*;

    fn kept(name: &str) -> Lease {
        Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept)
    }

    /// etcd's lease with which a key ends.
    async fn hangs_on(store: &Client, prefix: &str) -> i64 {
        let range = GetOptions::new().with_prefix();
        store.kv_client().get(prefix, Some(range)).await.unwrap().kvs()[0].lease()
    }

    async fn held(backend: &EtcdBackend, ttl: Duration) -> Lease {
        let held = Lease::new(&LockKey::new("held").unwrap(), ttl).with_tenure(Tenure::Kept);
        backend.try_acquire(&Claim::new(held.clone())).await.unwrap();
        held
    }

    #[tokio::test]
    async fn are_not_kept_alive_by_locks_of_the_same_ttl() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let url = format!("etcd://{}", proxy.address());
        let backend = EtcdBackend::connect(&url).await.unwrap();
        let minute = held(&backend, Duration::from_secs(60)).await;

        // A mark is made by who releases what may still come.
        let doubtful = kept("doubtful");
        proxy.set_weather(Weather::HoldReplies);
        backend.try_acquire(&Claim::new(doubtful.clone())).await.unwrap_err();
        proxy.disconnect().await;
        proxy.set_weather(Weather::Fair);
        until("it is released", async || backend.release(&doubtful).await.is_ok()).await;
        assert_eq!(backend.renew(&minute).await.unwrap(), Renewal::Renewed);
        assert_ne!(hangs_on(&store, "lock/~gone/").await, hangs_on(&store, "lock/held/").await);
        backend.release(&minute).await.unwrap();

        held(&backend, Duration::from_secs(10)).await;
        let waiting = kept("held");
        backend.try_acquire(&Claim::new(waiting).with_patience(Patience::Waits)).await.unwrap();
        let leases = leases_of(&store, "held").await;
        assert_eq!(leases.len(), 2);
        assert_ne!(leases[0], leases[1]);
    }

    /// etcd's leases of all who hold and queue for a lock, in the order in which they came.
    async fn leases_of(store: &Client, name: &str) -> Vec<i64> {
        let range = GetOptions::new().with_prefix();
        let found = store.kv_client().get(format!("lock/{name}/"), Some(range)).await;
        let mut found = found.unwrap().take_kvs();
        found.sort_by_key(KeyValue::create_revision);
        found.iter().map(KeyValue::lease).collect()
    }

    #[tokio::test]
    async fn do_without_a_session_that_an_operator_has_ended() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let url = format!("etcd://{}", proxy.address());
        let backend = EtcdBackend::connect(&url).await.unwrap();
        let held = held(&backend, LONG).await;
        let waiting = Claim::new(kept("held")).with_patience(Patience::Waits);
        for _ in 0..2 {
            let attempt = backend.try_acquire(&waiting).await.unwrap();
            assert!(matches!(attempt, Attempt::Held(contention) if contention.place().is_some()));
            let place = leases_of(&store, "held").await;
            store.lease_client().revoke(*place.last().unwrap()).await.unwrap();
        }

        for _ in 0..2 {
            let doubtful = kept("doubtful");
            proxy.set_weather(Weather::HoldReplies);
            backend.try_acquire(&Claim::new(doubtful.clone())).await.unwrap_err();
            proxy.disconnect().await;
            proxy.set_weather(Weather::Fair);
            until("the server answers", async || backend.inspect(held.key()).await.is_ok()).await;

            backend.release(&doubtful).await.unwrap();

            let mark = hangs_on(&store, "lock/~gone/").await;
            store.lease_client().revoke(mark).await.unwrap();
        }
    }
}
