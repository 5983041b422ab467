//! The keys in the store, and etcd's own tools beside us.

use std::time::Duration;

use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Mode, Patience, StoreAdmin, Tenure,
};
use leasehold_core::retry::Retry;
use leasehold_core::{
    Description, Error, ErrorKind, LockClient, LockGuard, LockKey, LockOptions, TryLockError,
};
use leasehold_etcd::EtcdBackend;
use leasehold_etcd::etcd_client::{Client, GetOptions, KeyValue, LockOptions as RpcOptions};
use leasehold_testbed::{Etcd, patiently, until};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

/// The limit for a hand-over. Without news, a client finds out much later.
const SOON: Duration = Duration::from_secs(5);

/// Longer than a hand-over takes.
const A_WHILE: Duration = Duration::from_millis(300);

/// A client that does not try again by itself, so that it is told or waits for long.
async fn client(etcd: &Etcd) -> LockClient<EtcdBackend> {
    let told = Retry::unlimited().every(LONG);
    let options = LockOptions::new().ttl(LONG).without_description().retry(told);
    let backend = EtcdBackend::connect(&patiently(&etcd.url())).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

async fn lock(client: &LockClient<EtcdBackend>, name: &str) -> LockGuard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Waits for a lock in the background.
fn waiting(client: &LockClient<EtcdBackend>, name: &str) -> JoinHandle<LockGuard> {
    let mutex = client.mutex(name).unwrap();
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

async fn store(etcd: &Etcd) -> Client {
    Client::connect(etcd.endpoints(), None).await.unwrap()
}

/// The keys under `prefix`, in the order of their creation.
async fn found(store: &Client, prefix: &str) -> Vec<KeyValue> {
    let range = GetOptions::new().with_prefix();
    let mut found = store.kv_client().get(prefix, Some(range)).await.unwrap().take_kvs();
    found.sort_by_key(KeyValue::create_revision);
    found
}

async fn until_there_are(store: &Client, prefix: &str, number: usize) {
    until(&format!("{number} keys under {prefix}"), async || {
        found(store, prefix).await.len() == number
    })
    .await;
}

mod etcdctl {
    use super::*;

    #[tokio::test]
    async fn keeps_us_out_until_it_ends() {
        let etcd = Etcd::start().await;
        let (client, store) = (client(&etcd).await, store(&etcd).await);
        let mut theirs = etcd.ctl_lock("lock/job");
        theirs.granted().await;
        assert!(matches!(
            client.mutex("job").unwrap().try_lock().await,
            Err(TryLockError::Busy(_))
        ));
        assert!(client.mutex("job").unwrap().is_locked().await.unwrap());
        let ours = waiting(&client, "job");
        until_there_are(&store, "lock/job/", 2).await;
        assert!(!ours.is_finished());

        theirs.end().await;

        let ours = timeout(SOON, ours).await.expect("we are told").unwrap();
        ours.release().await.unwrap();
    }

    #[tokio::test]
    async fn is_kept_out_until_our_release() {
        let etcd = Etcd::start().await;
        let (client, store) = (client(&etcd).await, store(&etcd).await);
        let ours = lock(&client, "job").await;
        let mut theirs = etcd.ctl_lock("lock/job");
        until_there_are(&store, "lock/job/", 2).await;
        assert!(timeout(A_WHILE, theirs.granted()).await.is_err(), "both hold it");

        ours.release().await.unwrap();

        timeout(SOON, theirs.granted()).await.expect("it is told");
        theirs.end().await;
    }

    #[tokio::test]
    async fn stands_in_one_line_with_us() {
        let etcd = Etcd::start().await;
        let (second, fourth, store) =
            (client(&etcd).await, client(&etcd).await, store(&etcd).await);
        let mut first = etcd.ctl_lock("lock/job");
        first.granted().await;
        let mut second = waiting(&second, "job");
        until_there_are(&store, "lock/job/", 2).await;
        let mut third = etcd.ctl_lock("lock/job");
        until_there_are(&store, "lock/job/", 3).await;
        let fourth = waiting(&fourth, "job");
        until_there_are(&store, "lock/job/", 4).await;

        first.end().await;
        let second = timeout(SOON, &mut second).await.expect("it is our turn").unwrap();
        assert!(timeout(A_WHILE, third.granted()).await.is_err(), "both hold it");
        second.release().await.unwrap();
        third.granted().await;
        assert!(!fourth.is_finished(), "both hold it");
        third.end().await;
        let fourth = timeout(SOON, fourth).await.expect("it is our turn").unwrap();

        fourth.release().await.unwrap();
        assert!(found(&store, "lock/").await.is_empty());
    }

    #[tokio::test]
    async fn that_gives_up_its_place_holds_up_no_other() {
        let etcd = Etcd::start().await;
        let (holder, waiter, store) =
            (client(&etcd).await, client(&etcd).await, store(&etcd).await);
        let guard = lock(&holder, "job").await;
        let theirs = etcd.ctl_lock("lock/job");
        until_there_are(&store, "lock/job/", 2).await;
        let ours = waiting(&waiter, "job");
        until_there_are(&store, "lock/job/", 3).await;
        // One that ends before it waits leaves its place behind. The holder watches its own key, the last two watch the keys
        // before them, and our waiter its own key too.
        until("all watch", async || {
            etcd.metric(0, "etcd_debugging_mvcc_watcher_total").await >= 4.0
        })
        .await;

        theirs.end().await;
        guard.release().await.unwrap();

        timeout(SOON, ours).await.expect("it is our turn").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn waits_for_all_holders_of_a_semaphore() {
        let etcd = Etcd::start().await;
        let (client, store) = (client(&etcd).await, store(&etcd).await);
        let semaphore = client.semaphore("job", 2).unwrap();
        let one = semaphore.acquire(1).await.unwrap();
        let other = semaphore.acquire(1).await.unwrap();
        let mut theirs = etcd.ctl_lock("lock/job");
        until_there_are(&store, "lock/job/", 3).await;

        one.release().await.unwrap();
        assert!(timeout(A_WHILE, theirs.granted()).await.is_err(), "a permit is still out");
        other.release().await.unwrap();
        timeout(SOON, theirs.granted()).await.expect("it is told");

        // The lease of another program does not show that the key is a semaphore.
        let error = Error::from(semaphore.try_acquire(1).await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        theirs.end().await;
        semaphore.acquire(2).await.unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn that_waits_is_passed_by_no_permit_and_no_reader() {
        for mode in [Mode::Units { units: 1, limit: 4 }, Mode::READER] {
            let etcd = Etcd::start().await;
            let (backend, store) =
                (EtcdBackend::connect(&etcd.url()).await.unwrap(), store(&etcd).await);
            let claim = || {
                let lease = Lease::new(&LockKey::new("job").unwrap(), LONG).with_mode(mode);
                Claim::new(lease.with_tenure(Tenure::Kept)).with_patience(Patience::Queues(LONG))
            };
            let (first, passes) = (claim(), claim());
            assert!(matches!(backend.acquire(&first).await.unwrap(), Attempt::Granted(_)));
            let mut theirs = etcd.ctl_lock("lock/job");
            until_there_are(&store, "lock/job/", 2).await;

            let attempt = backend.acquire(&passes).await.unwrap();
            assert!(matches!(attempt, Attempt::Held(_)), "it may hold beside the other program");
            backend.release(first.lease()).await.unwrap();
            timeout(SOON, theirs.granted()).await.expect("it is told");
            theirs.end().await;

            let attempt = backend.acquire(&passes).await.unwrap();
            assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
        }
    }
}

mod the_lock_rpc {
    use super::*;

    async fn acquire(store: &Client) -> (i64, Vec<u8>) {
        let lease = store.lease_client().grant(60, None).await.unwrap().id();
        let options = RpcOptions::new().with_lease(lease);
        let reply = store.lock_client().lock("lock/job", Some(options)).await.unwrap();
        (lease, reply.key().to_vec())
    }

    #[tokio::test]
    async fn keeps_us_out_until_unlock() {
        let etcd = Etcd::start().await;
        let (client, store) = (client(&etcd).await, store(&etcd).await);
        let (_, key) = acquire(&store).await;
        let ours = waiting(&client, "job");
        until_there_are(&store, "lock/job/", 2).await;
        assert!(!ours.is_finished());

        store.lock_client().unlock(key).await.unwrap();

        timeout(SOON, ours).await.expect("we are told").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn keeps_us_out_until_its_lease_ends() {
        let etcd = Etcd::start().await;
        let (client, store) = (client(&etcd).await, store(&etcd).await);
        let (lease, _) = acquire(&store).await;
        let ours = waiting(&client, "job");
        until_there_are(&store, "lock/job/", 2).await;

        store.lease_client().revoke(lease).await.unwrap();

        timeout(SOON, ours).await.expect("we are told").unwrap().release().await.unwrap();
    }

    #[tokio::test]
    async fn is_kept_out_until_our_release() {
        let etcd = Etcd::start().await;
        let (client, store) = (client(&etcd).await, store(&etcd).await);
        let ours = lock(&client, "job").await;
        let mut theirs = tokio::spawn({
            let store = store.clone();
            async move { acquire(&store).await }
        });
        until_there_are(&store, "lock/job/", 2).await;
        assert!(timeout(A_WHILE, &mut theirs).await.is_err(), "both hold it");

        ours.release().await.unwrap();

        timeout(SOON, theirs).await.expect("it is told").unwrap();
        assert!(matches!(
            client.mutex("job").unwrap().try_lock().await,
            Err(TryLockError::Busy(_))
        ));
    }
}

mod the_store {
    use super::*;

    /// Whether a text ends in a fingerprint and `rest`.
    fn says(kv: &KeyValue, state: &str, rest: &str) -> bool {
        let words: Vec<&str> = kv.value_str().unwrap().splitn(4, ' ').collect();
        let [first, tag, fingerprint, last] = words[..] else { return false };
        let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lengths = (tag.len(), fingerprint.len()) == (32, 8);
        first == state && lengths && hexadecimal(tag) && hexadecimal(fingerprint) && last == rest
    }

    #[tokio::test]
    async fn names_holders_and_waiters() {
        let etcd = Etcd::start().await;
        let (holder, waiter, store) =
            (client(&etcd).await, client(&etcd).await, store(&etcd).await);
        let description = Description::new("web-1/42 nightly").unwrap();
        let options = holder.options().description(description);
        let described = holder.mutex("job").unwrap().with_options(options).unwrap();
        let guard = described.lock().await.unwrap();
        let waiting = waiting(&waiter, "job");
        until_there_are(&store, "lock/job/", 2).await;
        let permits = holder.semaphore("permits", 5).unwrap().acquire(2).await.unwrap();

        let of_the_job = found(&store, "lock/job/").await;
        assert!(says(&of_the_job[0], "held", "whole web-1/42 nightly"), "{of_the_job:?}");
        assert!(says(&of_the_job[1], "queued", "whole"), "{of_the_job:?}");
        let of_the_permits = found(&store, "lock/permits/").await;
        assert!(says(&of_the_permits[0], "held", "2/5"), "{of_the_permits:?}");
        assert_eq!(found(&store, "").await.len(), 3, "something lies elsewhere");

        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        permits.release().await.unwrap();
        assert!(found(&store, "").await.is_empty());
    }

    #[tokio::test]
    async fn knows_the_token_of_a_grant_after_each_change_of_its_entry() {
        let etcd = Etcd::start().await;
        let (backend, store) =
            (EtcdBackend::connect(&etcd.url()).await.unwrap(), store(&etcd).await);
        let key = LockKey::new("job").unwrap();
        for mode in [Mode::Exclusive, Mode::Units { units: 2, limit: 3 }] {
            let lease = Lease::new(&key, LONG).with_mode(mode).with_tenure(Tenure::Kept);
            let Attempt::Granted(grant) =
                backend.acquire(&Claim::new(lease.clone())).await.unwrap()
            else {
                panic!("it is free");
            };
            let moved = lease.clone().with_ttl(LONG / 2);
            let described = moved.clone().with_description(Some(Description::new("b").unwrap()));
            let units = Mode::Units { units: 1, limit: 3 };
            let reduced = described.clone().with_mode(mode.capped_by(units));

            backend.request_revocation(&key, None).await.unwrap();
            for changed in [&lease, &moved, &described, &reduced] {
                backend.renew(changed).await.unwrap();
                let holder = backend.inspect(&key).await.unwrap().holders()[0].clone();
                assert_eq!(holder.token(), Some(grant.token()), "{holder:?}");
                assert_eq!(holder.description(), changed.description());
            }

            let before = found(&store, "lock/job/").await[0].mod_revision();
            backend.renew(&reduced).await.unwrap();
            assert_eq!(found(&store, "lock/job/").await[0].mod_revision(), before);
            backend.release(&reduced).await.unwrap();
        }
    }

    #[tokio::test]
    async fn has_all_under_the_prefix_that_was_given() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let url = format!("{}?prefix=app/", etcd.url());
        let client = LockClient::new(EtcdBackend::connect(&url).await.unwrap());

        let guard = lock(&client, "job").await;
        client.request_revocation("job").await.unwrap();

        let keys = found(&store, "").await;
        assert!(keys.iter().all(|kv| kv.key().starts_with(b"app/")), "{keys:?}");
        assert_eq!(found(&store, "app/job/").await.len(), 1);
        guard.release().await.unwrap();
    }

    #[tokio::test]
    async fn knows_no_secret() {
        let etcd = Etcd::start().await;
        let store = store(&etcd).await;
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let lease = |name: &str| Lease::new(&LockKey::new(name).unwrap(), LONG);
        let units = Mode::Units { units: 1, limit: 1 };
        let leases = [
            lease("job"),
            lease("job").with_tenure(Tenure::Kept),
            lease("kept").with_tenure(Tenure::Kept),
            lease("units").with_mode(units),
            lease("units").with_mode(units),
        ];
        for lease in &leases {
            let claim = Claim::new(lease.clone()).with_patience(Patience::Queues(LONG));
            backend.acquire(&claim).await.unwrap();
        }
        backend.request_revocation(leases[0].key(), None).await.unwrap();

        let all = found(&store, "").await;

        assert_eq!(all.len(), leases.len() + 1);
        for lease in &leases {
            let secret = lease.id().secret();
            for kv in &all {
                let shown = format!("{:?} {:?}", kv.key_str(), kv.value_str());
                assert!(!shown.contains(&secret[..8]), "{shown} shows {secret}");
            }
        }
    }
}

mod a_long_line {
    use super::*;

    /// The client crate takes replies of 4 MiB unless it is told otherwise.
    #[tokio::test]
    async fn is_read_whole() {
        let etcd = Etcd::start().await;
        let (client, mut store) = (client(&etcd).await, store(&etcd).await);
        for n in 0..4 {
            store.put(format!("lock/job/{n}"), vec![0; 1_400_000], None).await.unwrap();
        }

        assert!(matches!(
            client.mutex("job").unwrap().try_lock().await,
            Err(TryLockError::Busy(_))
        ));
        let inspection = client.backend().inspect(&LockKey::new("job").unwrap()).await.unwrap();
        assert_eq!(inspection.holders().len(), 1);
    }
}

mod names {
    use super::*;

    #[tokio::test]
    async fn that_go_on_after_a_slash_are_other_locks() {
        let etcd = Etcd::start().await;
        let client = client(&etcd).await;

        let below = lock(&client, "a/b").await;
        let above = lock(&client, "a").await;
        let below_again = client.mutex("a/b").unwrap().try_lock().await.unwrap_err();
        assert!(below_again.into_busy().is_ok());

        above.release().await.unwrap();
        assert!(below.is_held());
        assert!(!client.mutex("a").unwrap().is_locked().await.unwrap());
        below.release().await.unwrap();
    }

    #[tokio::test]
    async fn that_go_on_after_a_slash_have_lines_of_their_own() {
        let etcd = Etcd::start().await;
        let (holder, waiter, store) =
            (client(&etcd).await, client(&etcd).await, store(&etcd).await);
        let (above, below) = (lock(&holder, "a").await, lock(&holder, "a/b").await);
        let waits_above = waiting(&waiter, "a");
        let waits_below = waiting(&waiter, "a/b");
        until_there_are(&store, "lock/a/", 4).await;

        above.release().await.unwrap();
        let above = timeout(SOON, waits_above).await.expect("it is its turn").unwrap();
        assert!(!waits_below.is_finished());
        below.release().await.unwrap();
        let below = timeout(SOON, waits_below).await.expect("it is its turn").unwrap();

        assert!(above.is_held() && below.is_held());
        above.release().await.unwrap();
        below.release().await.unwrap();
    }

    #[tokio::test]
    async fn that_go_on_after_a_slash_may_be_busy_meanwhile() {
        let etcd = Etcd::start().await;
        let (client, other) = (client(&etcd).await, client(&etcd).await);
        let busy = tokio::spawn(async move {
            loop {
                lock(&other, "a/b").await.release().await.unwrap();
            }
        });

        let locks = async || {
            for _ in 0..20 {
                lock(&client, "a").await.release().await.unwrap();
            }
        };
        let bound = Duration::from_secs(5);
        measure(async || Stalls::watch().promptly("twenty locks", bound, locks()).await).await;

        assert!(!busy.is_finished());
        busy.abort();
    }
}
