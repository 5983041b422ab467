//! Members that are down, hung or full, leaders that change, and what operators do to leases and keys.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{
    Attempt, Claim, Error, ErrorKind, Lease, LeaseState, LockBackend, LockClient, LockGuard,
    LockKey, LockOptions, LossReason, Release, Renewal, RenewalMode, Retry, Tenure,
};
use leasehold_etcd::etcd_client::{Client, GetOptions, KeyValue};
use leasehold_etcd::{EtcdBackend, EtcdConfig};
use leasehold_testbed::{Etcd, EtcdOptions, FaultProxy, Weather, free_port, until};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(60);

/// How long it may take to be told.
const SOON: Duration = Duration::from_millis(500);

async fn client(url: &str, ttl: Duration) -> LockClient<EtcdBackend> {
    let backend = EtcdBackend::connect(url).await.unwrap();
    LockClient::builder(backend).options(LockOptions::new().ttl(ttl)).build().unwrap()
}

async fn lock(client: &LockClient<EtcdBackend>, name: &str) -> LockGuard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Waits for a lock in the background, and does not try again by itself while it is held.
fn waiting(client: &LockClient<EtcdBackend>, name: &str) -> JoinHandle<LockGuard> {
    let told = client.options().retry(Retry::unlimited().every(LONG));
    let mutex = client.mutex(name).unwrap().with_options(told).unwrap();
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

async fn renewed(guard: &LockGuard) {
    let deadline = guard.deadline();
    until("it is renewed", async || guard.deadline() > deadline || !guard.is_held()).await;
    assert_eq!(guard.state(), LeaseState::Held);
}

/// Releases a lock. If that gets no answer, it goes on in the background.
async fn let_go(guard: LockGuard) {
    match guard.release().await {
        Err(error) if error.is_retryable() => {}
        released => released.unwrap(),
    }
}

async fn three_members() -> Etcd {
    EtcdOptions::new().members(3).start().await
}

/// The cluster's URL, with its members from the first on in that order.
fn url_from(etcd: &Etcd, first: usize) -> String {
    let mut endpoints = etcd.endpoints();
    endpoints.rotate_left(first);
    format!("etcd://{}", endpoints.join(","))
}

async fn store(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.unwrap()
}

/// All who hold and queue for a lock, in the order in which they came.
async fn entries(store: &Client, name: &str) -> Vec<KeyValue> {
    let range = GetOptions::new().with_prefix();
    let found = store.kv_client().get(format!("lock/{name}/"), Some(range)).await;
    let mut found = found.unwrap().take_kvs();
    found.sort_by_key(KeyValue::create_revision);
    found
}

async fn until_there_are(store: &Client, name: &str, number: usize) {
    until(&format!("{number} entries of {name}"), async || {
        entries(store, name).await.len() == number
    })
    .await;
}

/// What a lock protects: nothing here is safe without it.
#[derive(Default)]
struct Protected {
    somebody_is_inside: AtomicBool,
    count: AtomicUsize,
    tokens: Mutex<Vec<u64>>,
}

impl Protected {
    async fn increment(&self, guard: &LockGuard) {
        assert!(!self.somebody_is_inside.swap(true, Ordering::SeqCst), "two are inside");
        let count = self.count.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.count.store(count + 1, Ordering::SeqCst);
        self.tokens.lock().unwrap().push(guard.token().number());
        assert!(guard.is_held());
        self.somebody_is_inside.store(false, Ordering::SeqCst);
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn assert_tokens_in_order(&self) {
        let tokens = self.tokens.lock().unwrap();
        assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    }
}

mod a_leader {
    use super::*;

    #[tokio::test]
    async fn that_is_killed_costs_no_lock_no_update_and_no_waiter() {
        const CLIENTS: usize = 4;
        const ROUNDS_AFTERWARDS: usize = 5;
        let mut etcd = three_members().await;
        let ttl = Duration::from_secs(10);
        let holder = client(&url_from(&etcd, etcd.leader().await), ttl).await;
        let held = lock(&holder, "held").await;
        let protected = Arc::new(Protected::default());
        let killed = Arc::new(AtomicBool::new(false));
        let mut clients = tokio::task::JoinSet::new();
        for n in 0..CLIENTS {
            let client = client(&url_from(&etcd, n % 3), ttl).await;
            let (protected, killed) = (Arc::clone(&protected), Arc::clone(&killed));
            clients.spawn(async move {
                let mutex = client.mutex("counter").unwrap();
                let (mut rounds, mut afterwards) = (0, 0);
                while afterwards < ROUNDS_AFTERWARDS {
                    let was_killed = killed.load(Ordering::SeqCst);
                    let guard = mutex.lock().await.unwrap();
                    protected.increment(&guard).await;
                    let_go(guard).await;
                    rounds += 1;
                    afterwards += usize::from(was_killed);
                }
                rounds
            });
        }
        until("all take turns", async || protected.count() > 20).await;

        etcd.kill_member(etcd.leader().await);
        killed.store(true, Ordering::SeqCst);

        let rounds = timeout(Duration::from_secs(20), clients.join_all()).await;
        let rounds: usize = rounds.expect("all are served").into_iter().sum();
        assert_eq!(protected.count(), rounds);
        protected.assert_tokens_in_order();
        renewed(&held).await;
        held.release().await.unwrap();
    }

    #[tokio::test]
    async fn that_is_frozen_for_less_than_the_ttl_costs_no_lock() {
        let etcd = three_members().await;
        let ttl = Duration::from_secs(10);
        let leader = etcd.leader().await;
        let at_the_leader = client(&url_from(&etcd, leader), ttl).await;
        let at_a_follower = client(&url_from(&etcd, (leader + 1) % 3), ttl).await;
        let guards = [lock(&at_the_leader, "one").await, lock(&at_a_follower, "other").await];

        etcd.pause_member(leader);
        // Each is due for a renewal meanwhile.
        sleep(Duration::from_secs(5)).await;
        etcd.resume_member(leader);

        for guard in guards {
            renewed(&guard).await;
            guard.release().await.unwrap();
        }
    }

    #[tokio::test]
    async fn that_hands_over_costs_no_lock_and_tokens_go_on() {
        let etcd = three_members().await;
        let client = client(&etcd.url(), Duration::from_secs(4)).await;
        let held = lock(&client, "held").await;
        let mut last = held.token().number();

        for member in [0, 1, 2] {
            etcd.move_leader(member).await;
            let guard = lock(&client, "other").await;
            assert!(guard.token().number() > last);
            last = guard.token().number();
            guard.release().await.unwrap();
        }

        renewed(&held).await;
        held.release().await.unwrap();
    }
}

mod a_member {
    use super::*;

    /// Locks and releases so many times without waiting for anybody.
    async fn try_locks(client: &LockClient<EtcdBackend>, times: usize) -> Vec<Error> {
        let mutex = client.mutex("job").unwrap();
        let mut errors = Vec::new();
        for _ in 0..times {
            let released = match mutex.try_lock().await {
                Ok(guard) => guard.expect("it is free").release().await,
                Err(error) => Err(error),
            };
            errors.extend(released.err());
        }
        errors
    }

    /// A cluster with another leader than its first member, to which the client speaks.
    async fn beside_the_leader() -> (Etcd, LockClient<EtcdBackend>) {
        let etcd = three_members().await;
        etcd.move_leader(1).await;
        let client = client(&etcd.url(), LONG).await;
        assert!(try_locks(&client, 1).await.is_empty());
        (etcd, client)
    }

    #[tokio::test]
    async fn that_is_killed_is_missed_once_at_most() {
        let (mut etcd, client) = beside_the_leader().await;

        etcd.kill_member(0);

        let errors = try_locks(&client, 200).await;
        assert!(errors.len() <= 1, "{errors:?}");
    }

    #[tokio::test]
    async fn that_hangs_is_missed_once_and_waited_for_once() {
        let (etcd, client) = beside_the_leader().await;
        etcd.pause_member(0);

        let start = Instant::now();
        let missed = client.mutex("job").unwrap().try_lock().await.unwrap_err();
        assert!(missed.is_retryable(), "{missed}");
        assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());

        // What it was asked for is given up first, in the background.
        let_go(lock(&client, "job").await).await;
        let errors = try_locks(&client, 200).await;
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[tokio::test]
    async fn that_is_killed_is_not_missed_by_those_who_wait() {
        let (mut etcd, client) = beside_the_leader().await;

        etcd.kill_member(0);

        for _ in 0..20 {
            let_go(lock(&client, "job").await).await;
        }
    }

    #[tokio::test]
    async fn that_hangs_is_not_missed_by_those_who_wait() {
        let (etcd, client) = beside_the_leader().await;

        etcd.pause_member(0);

        for _ in 0..20 {
            let_go(lock(&client, "job").await).await;
        }
    }

    #[tokio::test]
    async fn that_hangs_keeps_no_waiter_from_being_served() {
        let (etcd, waiter) = beside_the_leader().await;
        let store = Client::connect([&etcd.endpoints()[1]], None).await.unwrap();
        let guard = lock(&client(&url_from(&etcd, 1), LONG).await, "job").await;
        let mutex = waiter.mutex("job").unwrap();
        let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until_there_are(&store, "job", 2).await;

        etcd.pause_member(0);
        let_go(guard).await;

        // It polls within a second, and then it takes another second to find that nobody answers.
        let granted = timeout(Duration::from_secs(5), waits).await;
        let_go(granted.expect("it is its turn").unwrap()).await;
    }

    #[tokio::test]
    async fn that_is_the_only_one_and_hangs_is_an_error_in_time_and_used_again_afterwards() {
        let etcd = Etcd::start().await;
        let client = client(&etcd.url(), LONG).await;
        assert!(try_locks(&client, 1).await.is_empty());
        etcd.pause();

        for _ in 0..2 {
            let start = Instant::now();
            let error = client.mutex("job").unwrap().try_lock().await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            assert!(start.elapsed() < Duration::from_secs(3), "it took {:?}", start.elapsed());
        }

        etcd.resume();
        lock(&client, "job").await.release().await.unwrap();
        let errors = try_locks(&client, 10).await;
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[tokio::test]
    async fn of_another_cluster_is_refused_and_never_used() {
        let (mut ours, foreign) = tokio::join!(Etcd::start(), Etcd::start());
        let urls = [ours.endpoints().remove(0), foreign.endpoints().remove(0)];
        let client = client(&format!("etcd://{}", urls.join(",")), LONG).await;
        let guard = lock(&client, "held").await;

        ours.kill();

        let error = client.mutex("job").unwrap().lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("different clusters"), "{error}");
        let range = GetOptions::new().with_all_keys();
        let found = store(&foreign).await.kv_client().get("", Some(range)).await.unwrap();
        assert!(found.kvs().is_empty(), "{found:?}");
        ours.restart().await;
        until("ours is used again", async || {
            let guard = client.mutex("job").unwrap().try_lock().await;
            guard.is_ok_and(|guard| guard.is_some())
        })
        .await;
        drop(guard);
    }
}

mod a_server {
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    async fn acquire(backend: &EtcdBackend, name: &str) -> Result<(), Error> {
        let lease = Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept);
        backend.try_acquire(&Claim::new(lease)).await.map(drop)
    }

    fn lazily(url: &str) -> EtcdBackend {
        EtcdBackend::connect_lazily(EtcdConfig::from_url(url).unwrap())
    }

    #[tokio::test]
    async fn that_is_down_is_an_error_at_once_and_every_time() {
        let url = format!("etcd://127.0.0.1:{}", free_port());
        let refused = EtcdBackend::connect(&url).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");

        let backend = lazily(&url);
        for _ in 0..20 {
            let start = Instant::now();
            let error = acquire(&backend, "job").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(start.elapsed() < Duration::from_millis(900), "it took {:?}", start.elapsed());
        }
    }

    #[tokio::test]
    async fn that_was_never_there_is_passed_over() {
        let etcd = Etcd::start().await;
        let url = format!("etcd://127.0.0.1:{},{}", free_port(), etcd.endpoints()[0]);

        let client = client(&url, LONG).await;

        lock(&client, "job").await.release().await.unwrap();
    }

    #[tokio::test]
    async fn that_swallows_connections_is_an_error_in_time_for_all_callers() {
        // A listener that never accepts: the kernel completes connections until its backlog is full.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = lazily(&format!("etcd://{}", silent.local_addr().unwrap()));

        let mut calls = JoinSet::new();
        for n in 0..50 {
            let backend = backend.clone();
            calls.spawn(async move { acquire(&backend, &n.to_string()).await.unwrap_err() });
        }

        // One who was just about to give up may try once more.
        let errors = timeout(Duration::from_millis(2_900), calls.join_all()).await;
        for error in errors.expect("nobody waits for all the others") {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }

    #[tokio::test]
    async fn that_is_no_etcd_is_an_error_in_time() {
        for greeting in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("etcd://{}", listener.local_addr().unwrap());
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    drop(
                        tokio::io::AsyncWriteExt::write_all(&mut stream, greeting.as_bytes()).await,
                    );
                }
            });

            let start = Instant::now();
            let error = EtcdBackend::connect(&url).await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Unavailable, "{greeting:?}: {error}");
            assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
        }
    }

    #[tokio::test]
    async fn is_spoken_to_no_more_once_the_backend_is_closed() {
        let etcd = Etcd::start().await;
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();

        backend.close().await;

        let error = acquire(&backend, "job").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

mod a_majority {
    use super::*;

    #[tokio::test]
    async fn that_is_away_for_a_while_is_waited_for() {
        let etcd = three_members().await;
        let client = client(&etcd.url(), LONG).await;
        lock(&client, "warm-up").await.release().await.unwrap();
        etcd.pause_member(1);
        etcd.pause_member(2);
        let mutex = client.mutex("job").unwrap();
        let error = mutex.try_lock().await.unwrap_err();
        assert!(error.is_retryable(), "{error}");

        let acquiring = waiting(&client, "job");
        sleep(Duration::from_secs(2)).await;
        assert!(!acquiring.is_finished());
        etcd.resume();

        let granted = timeout(Duration::from_secs(10), acquiring).await;
        let_go(granted.expect("it asks again").unwrap()).await;
    }

    #[tokio::test]
    async fn that_is_away_for_longer_than_the_ttl_ends_the_lock_for_good() {
        let etcd = three_members().await;
        let ttl = Duration::from_secs(3);
        let (holder, other) = (client(&etcd.url(), ttl).await, client(&etcd.url(), ttl).await);
        let guard = lock(&holder, "job").await;

        etcd.pause_member(0);
        etcd.pause_member(1);
        let left = guard.remaining();
        let lost = timeout(left + SOON, guard.lost()).await.expect("it is lost by its deadline");
        assert_eq!(lost, LossReason::Expired);
        etcd.resume();

        let next = timeout(Duration::from_secs(15), lock(&other, "job")).await;
        let next = next.expect("it is free again");
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        assert!(next.token() > guard.token());
        renewed(&next).await;
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert!(next.is_held());
        next.release().await.unwrap();
    }
}

mod an_operator {
    use leasehold_core::Operation;
    use leasehold_core::fault::{FaultBackend, News};

    use super::*;

    /// A cluster, one who holds a lock for long enough to be told what happens to it, and one who waits for it.
    async fn one_holds_and_one_waits() -> (Etcd, Client, LockGuard, JoinHandle<LockGuard>) {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let guard = lock(&client(&etcd.url(), LONG).await, "job").await;
        let waits = waiting(&client(&etcd.url(), LONG).await, "job");
        until_there_are(&store, "job", 2).await;
        // Who holds for less is not told.
        sleep(Duration::from_millis(100)).await;
        (etcd, store, guard, waits)
    }

    #[tokio::test]
    async fn who_revokes_the_lease_ends_the_lock_and_the_next_one_is_granted() {
        let (etcd, store, guard, waits) = one_holds_and_one_waits().await;
        let lease = format!("{:x}", entries(&store, "job").await[0].lease());

        etcd.ctl(&["lease", "revoke", &lease]).await;

        let lost = timeout(SOON, guard.lost()).await.expect("it is told");
        // The next one is there already, or not yet.
        assert!(matches!(lost, LossReason::Taken | LossReason::Vanished), "{lost:?}");
        let next = timeout(SOON, waits).await.expect("it is its turn").unwrap();
        assert!(next.token() > guard.token());
        next.release().await.unwrap();
    }

    #[tokio::test]
    async fn who_deletes_the_key_ends_the_lock_and_its_release_hurts_nobody() {
        let (_etcd, store, guard, waits) = one_holds_and_one_waits().await;
        let ours = entries(&store, "job").await.remove(0);

        store.kv_client().delete(ours.key(), None).await.unwrap();

        timeout(SOON, guard.lost()).await.expect("it is told");
        let next = timeout(SOON, waits).await.expect("it is its turn").unwrap();
        let before = entries(&store, "job").await;
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        let after = entries(&store, "job").await;
        assert_eq!(after.len(), 1);
        assert_eq!(after[0].mod_revision(), before[0].mod_revision());
        next.release().await.unwrap();
    }

    #[tokio::test]
    async fn who_gives_the_key_to_another_does_not_see_it_released() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let key = LockKey::new("job").unwrap();
        let (old, new) = (Lease::new(&key, LONG), Lease::new(&key, LONG));
        backend.try_acquire(&Claim::new(old.clone())).await.unwrap();
        let entry = entries(&store, "job").await.remove(0);
        store.kv_client().delete(entry.key(), None).await.unwrap();
        backend.try_acquire(&Claim::new(new.clone())).await.unwrap();

        assert_eq!(backend.release(&old).await.unwrap(), Release::NotHeld);
        assert_eq!(backend.renew(&old).await.unwrap(), Renewal::Taken);

        assert_eq!(backend.renew(&new).await.unwrap(), Renewal::Renewed);
        assert_eq!(backend.release(&new).await.unwrap(), Release::Released);
    }

    #[tokio::test]
    async fn who_deletes_the_key_is_noticed_by_the_next_renewal_without_any_news() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let deaf = FaultBackend::new(EtcdBackend::connect(&etcd.url()).await.unwrap());
        deaf.faults().set_news(News::Muted);
        let options = LockOptions::new().ttl(Duration::from_secs(3));
        let client = LockClient::builder(deaf).options(options).build().unwrap();
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let other = client.mutex("other").unwrap().lock().await.unwrap();
        let entry = entries(&store, "job").await.remove(0);

        store.kv_client().delete(entry.key(), None).await.unwrap();

        // A third of the TTL is a second.
        let lost = timeout(Duration::from_secs(1) + SOON, guard.lost()).await;
        assert_eq!(lost.expect("the next renewal finds out"), LossReason::Vanished);
        renewed(&other).await;
        assert_eq!(client.backend().faults().calls(Operation::Release), 0);
    }

    #[tokio::test]
    async fn who_deletes_a_place_in_line_delays_only_its_owner() {
        let (etcd, store, guard, waits) = one_holds_and_one_waits().await;
        let behind = waiting(&client(&etcd.url(), LONG).await, "job");
        until_there_are(&store, "job", 3).await;
        let [_, place, last] = &entries(&store, "job").await[..] else { unreachable!() };

        store.kv_client().delete(place.key(), None).await.unwrap();
        until_there_are(&store, "job", 3).await;
        let again = entries(&store, "job").await;
        assert_eq!(again[1].key(), last.key());
        assert!(again[2].create_revision() > last.create_revision());

        guard.release().await.unwrap();
        timeout(SOON, behind).await.expect("it is first now").unwrap().release().await.unwrap();
        timeout(SOON, waits).await.expect("it is next").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn who_revokes_a_waiters_lease_does_not_keep_it_from_being_served() {
        let (etcd, store, guard, waits) = one_holds_and_one_waits().await;
        let place = entries(&store, "job").await.remove(1);

        etcd.ctl(&["lease", "revoke", &format!("{:x}", place.lease())]).await;
        until("it takes another place", async || {
            let entries = entries(&store, "job").await;
            entries.len() == 2 && entries[1].create_revision() > place.create_revision()
        })
        .await;

        guard.release().await.unwrap();
        timeout(SOON, waits).await.expect("it is its turn").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn who_revokes_the_lease_of_permits_lets_the_next_ones_in() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let (holder, waiter) = (client(&etcd.url(), LONG).await, client(&etcd.url(), LONG).await);
        let semaphore = holder.semaphore("job", 2).unwrap();
        let _permits = [semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap()];
        let lease = entries(&store, "job").await[0].lease();
        let told = waiter.options().retry(Retry::unlimited().every(LONG)).fair(true);
        let mut waiting = Vec::new();
        for number in 3..=4 {
            let semaphore = waiter.semaphore("job", 2).unwrap().with_options(told.clone()).unwrap();
            waiting.push(tokio::spawn(async move { semaphore.acquire(1).await.unwrap() }));
            until_there_are(&store, "job", number).await;
        }

        store.lease_client().revoke(lease).await.unwrap();

        for waiting in waiting {
            let permit = timeout(SOON, waiting).await.expect("it is told").unwrap();
            assert!(permit.is_held());
        }
    }

    #[tokio::test]
    async fn who_compacts_keeps_no_waiter_from_being_told() {
        let (etcd, _store, guard, waits) = one_holds_and_one_waits().await;
        etcd.ctl(&["put", "x", "y"]).await;

        etcd.compact().await;
        guard.release().await.unwrap();

        timeout(SOON, waits).await.expect("it is told").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn who_compacts_keeps_no_holder_from_being_told() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let guard = lock(&client(&etcd.url(), LONG).await, "job").await;

        // What it holds is watched from its grant on, and not at once.
        let entry = entries(&store, "job").await.remove(0);
        for _ in 0..2 {
            let put = store.kv_client().put("x", "y", None).await.unwrap();
            let revision = put.header().unwrap().revision();
            store.kv_client().compact(revision, None).await.unwrap();
        }
        sleep(Duration::from_millis(150)).await;
        store.kv_client().delete(entry.key(), None).await.unwrap();

        timeout(SOON, guard.lost()).await.expect("it is told");
    }

    #[tokio::test]
    async fn who_compacts_before_a_connection_breaks_keeps_no_holder_from_being_told() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let client = client(&format!("etcd://{}", proxy.address()), LONG).await;
        let guards = [lock(&client, "job").await, lock(&client, "other").await];
        sleep(Duration::from_millis(150)).await;
        store.kv_client().put("x", "y", None).await.unwrap();
        etcd.compact().await;

        proxy.set_weather(Weather::Reset);
        sleep(Duration::from_millis(20)).await;
        proxy.set_weather(Weather::Fair);
        // Once the client is there again.
        let_go(lock(&client, "again").await).await;
        sleep(Duration::from_millis(300)).await;
        etcd.ctl(&["del", "--prefix", "lock/"]).await;

        for guard in guards {
            timeout(SOON, guard.lost()).await.expect("it is told");
        }
    }

    #[tokio::test]
    async fn who_deletes_a_key_makes_the_next_token_larger_all_the_same() {
        let etcd = Etcd::start().await;
        let client = client(&etcd.url(), LONG).await;
        let guard = lock(&client, "job").await;

        etcd.ctl(&["del", "--prefix", ""]).await;
        let mutex = client.mutex("job").unwrap();
        timeout(SOON, guard.lost()).await.expect("it is told");
        let next = mutex.lock().await.unwrap();

        assert!(next.token() > guard.token());
        next.release().await.unwrap();
    }
}

mod a_restart {
    use super::*;

    #[tokio::test]
    async fn keeps_locks_and_lets_tokens_go_on() {
        let mut etcd = Etcd::start().await;
        let client = client(&etcd.url(), Duration::from_secs(6)).await;
        let held = lock(&client, "held").await;
        let mut last = held.token().number();

        for _ in 0..3 {
            etcd.restart().await;
            let guard = lock(&client, "job").await;
            assert!(guard.token().number() > last);
            last = guard.token().number();
            drop(guard);
        }

        renewed(&held).await;
        held.release().await.unwrap();
    }
}

mod the_network {
    use super::*;

    async fn behind(etcd: &Etcd) -> (FaultProxy, LockClient<EtcdBackend>) {
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let url = format!("etcd://{}?timeout-ms=300", proxy.address());
        let client = client(&url, LONG).await;
        lock(&client, "warm-up").await.release().await.unwrap();
        (proxy, client)
    }

    async fn a_waiter_is_woken_after(weather: Weather) {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let guard = lock(&client(&etcd.url(), LONG).await, "job").await;
        let (proxy, waiter) = behind(&etcd).await;
        let mut waits = waiting(&waiter, "job");
        until_there_are(&store, "job", 2).await;

        proxy.set_weather(weather);
        guard.release().await.unwrap();
        assert!(timeout(Duration::from_millis(100), &mut waits).await.is_err());
        proxy.set_weather(Weather::Fair);

        let granted = timeout(Duration::from_secs(2), waits).await;
        granted.expect("it looks again").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn that_resets_connections_during_a_release_lets_no_waiter_sleep() {
        a_waiter_is_woken_after(Weather::Reset).await;
    }

    #[tokio::test]
    async fn that_swallows_the_news_of_a_release_lets_no_waiter_sleep() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let guard = lock(&client(&etcd.url(), LONG).await, "job").await;
        let (proxy, waiter) = behind(&etcd).await;
        // It polls, and finds that nobody answers: nobody tells.
        let mutex = waiter.mutex("job").unwrap();
        let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until_there_are(&store, "job", 2).await;

        proxy.set_weather(Weather::BlackHole);
        guard.release().await.unwrap();
        sleep(Duration::from_millis(400)).await;
        proxy.set_weather(Weather::Fair);

        let granted = timeout(Duration::from_secs(3), waits).await;
        granted.expect("it looks again").unwrap().release().await.unwrap();
    }

    /// Acquires through `weather`, which takes the reply or the request away and then resets what is open.
    async fn is_granted_once_through(weather: Weather) {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let (proxy, client) = behind(&etcd).await;

        proxy.set_weather(weather);
        let acquiring = waiting(&client, "job");
        match weather {
            Weather::HoldReplies => until_there_are(&store, "job", 1).await,
            _ => sleep(Duration::from_millis(400)).await,
        }
        assert!(!acquiring.is_finished());
        proxy.set_weather(Weather::Reset);
        tokio::task::yield_now().await;
        proxy.set_weather(Weather::Fair);

        let granted = timeout(Duration::from_secs(5), acquiring).await;
        let guard = granted.expect("it asks again").unwrap();
        let entries = entries(&store, "job").await;
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert!(guard.token().number() >= u64::try_from(entries[0].create_revision()).unwrap());
        guard.release().await.unwrap();
        until_there_are(&store, "job", 0).await;
        lock(&client, "job").await.release().await.unwrap();
    }

    #[tokio::test]
    async fn that_loses_the_reply_of_a_grant_grants_once() {
        is_granted_once_through(Weather::HoldReplies).await;
    }

    #[tokio::test]
    async fn that_loses_the_request_of_a_grant_grants_once() {
        is_granted_once_through(Weather::BlackHole).await;
    }

    #[tokio::test]
    async fn that_delivers_requests_late_grants_once() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let (proxy, client) = behind(&etcd).await;

        proxy.set_weather(Weather::BlackHole);
        let acquiring = waiting(&client, "job");
        sleep(Duration::from_millis(700)).await;
        proxy.set_weather(Weather::Fair);

        let granted = timeout(Duration::from_secs(5), acquiring).await;
        let guard = granted.expect("it asks again").unwrap();
        assert_eq!(entries(&store, "job").await.len(), 1);
        guard.release().await.unwrap();
        until_there_are(&store, "job", 0).await;
        lock(&client, "job").await.release().await.unwrap();
    }
}

mod a_network_that_breaks_all_the_time {
    use super::*;

    /// What befalls each client in turn, and for how many milliseconds.
    const STORMS: [(Weather, u64); 8] = [
        (Weather::Reset, 10),
        (Weather::Fair, 60),
        (Weather::HoldReplies, 250),
        (Weather::Reset, 10),
        (Weather::Fair, 40),
        (Weather::BlackHole, 250),
        (Weather::Fair, 90),
        (Weather::HoldReplies, 20),
    ];

    #[tokio::test]
    async fn lets_nobody_in_beside_another_and_leaves_nothing() {
        const CLIENTS: usize = 4;
        const STORMY: Duration = Duration::from_secs(4);
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let protected = Arc::new(Protected::default());
        let over = Arc::new(AtomicBool::new(false));
        let mut clients = tokio::task::JoinSet::new();
        let mut storms = tokio::task::JoinSet::new();
        for n in 0..CLIENTS {
            let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
            let url = format!("etcd://{}?timeout-ms=200", proxy.address());
            let client = client(&url, Duration::from_secs(10)).await;
            let (protected, over) = (Arc::clone(&protected), Arc::clone(&over));
            clients.spawn(async move {
                let mutex = client.mutex("job").unwrap();
                while !over.load(Ordering::SeqCst) {
                    // One in four gives up now and then.
                    let patience = Duration::from_millis(if n == 0 { 300 } else { 20_000 });
                    let Ok(guard) = timeout(patience, mutex.lock()).await else { continue };
                    let guard = guard.unwrap();
                    protected.increment(&guard).await;
                    let_go(guard).await;
                }
                drop(client.shutdown(Duration::from_secs(5)).await);
            });
            storms.spawn(async move {
                let start = Instant::now();
                for (weather, millis) in STORMS.iter().cycle().skip(2 * n) {
                    if start.elapsed() > STORMY {
                        break;
                    }
                    proxy.set_weather(*weather);
                    sleep(Duration::from_millis(*millis)).await;
                }
                proxy.set_weather(Weather::Fair);
                proxy
            });
        }

        let proxies = storms.join_all().await;
        let before = protected.count();
        until("all get on again", async || protected.count() > before + 20).await;
        over.store(true, Ordering::SeqCst);
        timeout(Duration::from_secs(15), clients.join_all()).await.expect("all are served");

        protected.assert_tokens_in_order();
        assert!(before >= CLIENTS, "{before} in the storm");
        until_there_are(&store, "job", 0).await;
        drop(proxies);
    }
}

mod an_acquisition_that_is_given_up {
    use super::*;

    fn claim(name: &str) -> Claim {
        Claim::new(Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept))
    }

    /// One server by two ways, the first of which comes first.
    async fn two_ways(etcd: &Etcd) -> (FaultProxy, FaultProxy, String) {
        let server = etcd.endpoints().remove(0);
        let (one, other) =
            (FaultProxy::start(server.clone()).await, FaultProxy::start(server).await);
        let url = format!("etcd://{},{}", one.address(), other.address());
        (one, other, url)
    }

    #[tokio::test]
    async fn leaves_nothing_when_its_request_arrives_after_the_release() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let (slow, _fast, url) = two_ways(&etcd).await;
        let backend = EtcdBackend::connect(&url).await.unwrap();
        let warm_up = claim("warm-up");
        backend.try_acquire(&warm_up).await.unwrap();
        backend.release(warm_up.lease()).await.unwrap();
        let claim = claim("job");

        slow.set_weather(Weather::BlackHole);
        let patience = Duration::from_millis(400);
        assert!(timeout(patience, backend.try_acquire(&claim)).await.is_err());
        assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::NotHeld);
        slow.set_weather(Weather::Fair);

        // The same request by another client, which knows nothing of the release.
        let late = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let attempt = late.try_acquire(&claim).await.unwrap();
        assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
        assert!(entries(&store, "job").await.is_empty());
        let client = client(&etcd.url(), LONG).await;
        for _ in 0..20 {
            lock(&client, "job").await.release().await.unwrap();
        }
        assert!(entries(&store, "job").await.is_empty());
    }

    #[tokio::test]
    async fn is_cleaned_up_in_the_background() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let (slow, _fast, url) = two_ways(&etcd).await;
        let client = client(&url, LONG).await;
        lock(&client, "warm-up").await.release().await.unwrap();

        // It arrives, and nobody learns of it.
        slow.set_weather(Weather::HoldReplies);
        let acquiring = waiting(&client, "job");
        until_there_are(&store, "job", 1).await;
        sleep(Duration::from_millis(400)).await;
        acquiring.abort();

        until_there_are(&store, "job", 0).await;
        slow.set_weather(Weather::Fair);
        lock(&client, "job").await.release().await.unwrap();
    }
}

mod a_full_server {
    use super::*;

    /// Writes until the server takes no more, and raises the alarm.
    async fn fill(store: &Client) {
        let big = vec![0; 1_000_000];
        until("the server is full", async || {
            store.kv_client().put("big", big.clone(), None).await.is_err()
        })
        .await;
    }

    async fn with_little_space() -> Etcd {
        EtcdOptions::new().args(["--quota-backend-bytes", "4000000"]).start().await
    }

    #[tokio::test]
    async fn grants_nothing_and_still_renews_and_releases() {
        let etcd = with_little_space().await;
        let store = store(&etcd).await;
        let ttl = Duration::from_secs(3);
        let client = client(&etcd.url(), ttl).await;
        let (kept, released) = (lock(&client, "kept").await, lock(&client, "released").await);
        let permits = client.semaphore("permits", 2).unwrap().acquire(1).await.unwrap();
        fill(&store).await;

        let error = client.mutex("new").unwrap().lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("quota"), "{error}");
        released.release().await.unwrap();
        permits.release().await.unwrap();
        renewed(&kept).await;
        renewed(&kept).await;

        store.kv_client().delete("big", None).await.unwrap();
        etcd.compact().await;
        etcd.ctl(&["defrag"]).await;
        etcd.ctl(&["alarm", "disarm"]).await;
        lock(&client, "new").await.release().await.unwrap();
        kept.release().await.unwrap();
    }

    #[tokio::test]
    async fn grants_nothing_without_renewal_either_and_leaves_nothing() {
        let etcd = with_little_space().await;
        let store = store(&etcd).await;
        let client = client(&etcd.url(), LONG).await;
        let fixed = client.options().renewal(RenewalMode::Off);
        let mutex = client.mutex("job").unwrap().with_options(fixed).unwrap();
        fill(&store).await;

        let error = mutex.try_lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(entries(&store, "job").await.is_empty());
    }

    #[tokio::test]
    async fn releases_what_was_granted_without_a_reply() {
        let etcd = with_little_space().await;
        let store = store(&etcd).await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let url = format!("etcd://{}?timeout-ms=300", proxy.address());
        let client = client(&url, LONG).await;
        lock(&client, "warm-up").await.release().await.unwrap();
        let mut guards = Vec::new();
        for name in ["one", "other"] {
            proxy.set_weather(Weather::HoldReplies);
            let acquiring = waiting(&client, name);
            until_there_are(&store, name, 1).await;
            proxy.set_weather(Weather::Reset);
            tokio::task::yield_now().await;
            proxy.set_weather(Weather::Fair);
            guards.push(acquiring.await.unwrap());
        }
        let (before, after) = (guards.remove(0), guards.remove(0));

        before.release().await.unwrap();
        fill(&store).await;
        after.release().await.unwrap();

        assert!(entries(&store, "one").await.is_empty());
        assert!(entries(&store, "other").await.is_empty());
    }

    #[tokio::test]
    async fn keeps_the_locks_of_a_client_alive_after_a_release_that_failed() {
        let etcd = with_little_space().await;
        let store = store(&etcd).await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let url = format!("etcd://{}?timeout-ms=300", proxy.address());
        let client = client(&url, Duration::from_secs(4)).await;
        let (kept, released) = (lock(&client, "kept").await, lock(&client, "released").await);
        fill(&store).await;
        proxy.set_weather(Weather::Reset);
        released.release().await.unwrap_err();
        proxy.set_weather(Weather::Fair);

        renewed(&kept).await;
        renewed(&kept).await;
        kept.release().await.unwrap();
    }
}

mod a_ttl {
    use super::*;

    /// With the timing that etcd has by default, no lease is shorter than two seconds.
    async fn with_default_timing() -> Etcd {
        let (heartbeat, election) = (Duration::from_millis(100), Duration::from_secs(1));
        EtcdOptions::new().timing(heartbeat, election).start().await
    }

    #[tokio::test]
    async fn below_the_servers_is_believed_in_as_asked_for_and_waited_for_as_granted() {
        let etcd = with_default_timing().await;
        let client = client(&etcd.url(), Duration::from_secs(1)).await;
        let fixed = client.options().renewal(RenewalMode::Off);
        let mutex = client.mutex("job").unwrap().with_options(fixed).unwrap();
        let start = Instant::now();
        let guard = mutex.lock().await.unwrap();
        assert!(guard.remaining() <= Duration::from_secs(1), "{:?}", guard.remaining());

        assert_eq!(guard.lost().await, LossReason::Expired);
        let lost_after = start.elapsed();
        assert!(lost_after < Duration::from_millis(1_500), "{lost_after:?}");
        // Dropped, it would be released.
        std::mem::forget(guard);
        let next = lock(&self::client(&etcd.url(), LONG).await, "job").await;

        let waited = start.elapsed();
        let about_two_seconds = Duration::from_millis(1_900)..Duration::from_millis(3_500);
        assert!(about_two_seconds.contains(&waited), "{waited:?}");
        next.release().await.unwrap();
    }

    #[tokio::test]
    async fn below_the_servers_is_kept_alive_in_time() {
        let etcd = with_default_timing().await;
        let client = client(&etcd.url(), Duration::from_secs(1)).await;
        let guard = lock(&client, "job").await;

        for _ in 0..5 {
            renewed(&guard).await;
            assert!(guard.remaining() <= Duration::from_secs(1), "{:?}", guard.remaining());
        }
        guard.release().await.unwrap();
    }
}
