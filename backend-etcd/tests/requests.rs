//! How often the cluster is asked.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Mode, Patience, Release, Renewal, StoreAdmin, Tenure,
};
use leasehold_etcd::EtcdBackend;
use leasehold_etcd::etcd_client::{Client, GetOptions};
use leasehold_testbed::Etcd;

const LONG: Duration = Duration::from_secs(60);

async fn start() -> (Etcd, EtcdBackend) {
    let etcd = Etcd::start().await;
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
    (etcd, backend)
}

fn lease() -> Lease {
    Lease::new(&LockKey::new("job").unwrap(), LONG).with_tenure(Tenure::Kept)
}

async fn is_granted(backend: &EtcdBackend, claim: &Claim) -> bool {
    matches!(backend.acquire(claim).await.unwrap(), Attempt::Granted(_))
}

/// The lease of a holder, and the claim of a waiter.
async fn held_and_waiting(backend: &EtcdBackend) -> (Lease, Claim) {
    let (held, waiting) = (lease(), Claim::new(lease()).with_patience(Patience::Queues(LONG)));
    assert!(is_granted(backend, &Claim::new(held.clone())).await);
    assert!(!is_granted(backend, &waiting).await);
    (held, waiting)
}

/// How many transactions it takes.
async fn transactions<T>(etcd: &Etcd, work: impl Future<Output = T>) -> (f64, T) {
    let count = async || {
        etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Txn",grpc_code="OK"}"#).await
    };
    let before = count().await;
    let output = work.await;
    (count().await - before, output)
}

async fn is_released_by_one(etcd: &Etcd, backend: &EtcdBackend, lease: &Lease) {
    let (number, released) = transactions(etcd, backend.release(lease)).await;

    assert_eq!((number, released.unwrap()), (1.0, Release::Released));
    let store = Client::connect(etcd.endpoints(), None).await.unwrap();
    let all = GetOptions::new().with_prefix().with_keys_only();
    let left = store.kv_client().get("lock/", Some(all)).await.unwrap();
    assert_eq!(left.kvs().len(), 0);
}

mod one_transaction {
    use super::*;

    #[tokio::test]
    async fn takes_a_lock_that_is_free_and_one_gives_it_back() {
        let (etcd, backend) = start().await;
        for lease in [lease(), lease().with_mode(Mode::Units { units: 1, limit: 2 })] {
            let claim = Claim::new(lease.clone());
            let granted = transactions(&etcd, is_granted(&backend, &claim)).await;
            assert_eq!(granted, (1.0, true));
            is_released_by_one(&etcd, &backend, &lease).await;
        }
    }

    #[tokio::test]
    async fn gives_back_a_lock_without_renewal() {
        let (etcd, backend) = start().await;
        let lease = lease().with_tenure(Tenure::Fixed);
        assert!(is_granted(&backend, &Claim::new(lease.clone())).await);

        is_released_by_one(&etcd, &backend, &lease).await;
    }

    #[tokio::test]
    async fn gives_back_leases_renewed_granted_again_and_asked_for() {
        let (etcd, backend) = start().await;
        for lease in [lease(), lease().with_tenure(Tenure::Fixed)] {
            let claim = Claim::new(lease.clone());
            assert!(is_granted(&backend, &claim).await);
            assert!(is_granted(&backend, &claim).await);
            let moved = lease.clone().with_ttl(LONG / 2);
            assert_eq!(backend.renew(&moved).await.unwrap(), Renewal::Renewed);
            backend.request_revocation(lease.key(), None).await.unwrap();

            let (number, released) = transactions(&etcd, backend.release(&moved)).await;
            assert_eq!((number, released.unwrap()), (1.0, Release::Released));
        }
    }

    #[tokio::test]
    async fn gives_back_an_awaited_lease() {
        let (etcd, backend) = start().await;
        let (first, waiting) = held_and_waiting(&backend).await;
        assert_eq!(backend.release(&first).await.unwrap(), Release::Released);
        assert!(is_granted(&backend, &waiting).await);

        is_released_by_one(&etcd, &backend, waiting.lease()).await;
    }
}

#[tokio::test]
async fn a_place_is_no_lock_that_could_be_released() {
    let (_etcd, backend) = start().await;
    let (first, waiting) = held_and_waiting(&backend).await;

    assert_eq!(backend.release(waiting.lease()).await.unwrap(), Release::NotHeld);

    assert_eq!(backend.release(&first).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_lease_granted_to_two_clients_is_released_by_either() {
    let (etcd, one) = start().await;
    let other = EtcdBackend::connect(&etcd.url()).await.unwrap();
    for (releases, late) in [(&one, &other), (&other, &one)] {
        let lease = lease();
        let claim = Claim::new(lease.clone());
        assert!(is_granted(&one, &claim).await);
        assert!(is_granted(&other, &claim).await);

        assert_eq!(releases.release(&lease).await.unwrap(), Release::Released);
        assert_eq!(late.release(&lease).await.unwrap(), Release::NotHeld);
    }
}

/// A deleted key stays in etcd's index until it is compacted, and each look at a lock passes all of them.
#[tokio::test]
async fn locks_that_are_free_leave_one_key_however_many_clients_take_them() {
    let etcd = Etcd::start().await;
    let store = Client::connect(etcd.endpoints(), None).await.unwrap();
    let mut keys = Vec::new();
    for tenure in [Tenure::Kept, Tenure::Fixed, Tenure::Kept] {
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let lease = lease().with_tenure(tenure);
        // A lease without renewal looks at the lock first.
        assert!(is_granted(&backend, &Claim::new(lease.clone())).await);
        let all = GetOptions::new().with_prefix().with_keys_only();
        let found = store.kv_client().get("lock/", Some(all)).await.unwrap();
        keys.extend(found.kvs().iter().map(|kv| kv.key_str().unwrap().to_owned()));
        assert_eq!(backend.renew(&lease).await.unwrap(), Renewal::Renewed);
        is_released_by_one(&etcd, &backend, &lease).await;
    }

    assert_eq!(keys, ["lock/job/first"; 3]);
}

/// An abandoned entry may come late, against all odds, and lie where that of a later claim of the same client would.
#[tokio::test]
async fn a_claim_on_a_taken_key_is_refused_at_once_and_leaves_no_lease() {
    let (etcd, backend) = start().await;
    let mut store = Client::connect(etcd.endpoints(), None).await.unwrap();
    let other = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let (first, given_up) = (lease(), Claim::new(lease()).with_patience(Patience::Queues(LONG)));
    assert!(is_granted(&other, &Claim::new(first.clone())).await);
    assert!(!is_granted(&backend, &given_up).await);
    let all = GetOptions::new().with_prefix();
    let entries = store.get("lock/", Some(all)).await.unwrap().take_kvs();
    let entry = entries.iter().max_by_key(|entry| entry.create_revision()).unwrap();
    backend.release(given_up.lease()).await.unwrap();
    other.release(&first).await.unwrap();
    store.put(entry.key(), entry.value(), None).await.unwrap();
    let before = store.leases().await.unwrap().leases().len();

    let waiting = lease().with_tenure(Tenure::Fixed);
    let waiting = Claim::new(waiting).with_patience(Patience::Queues(LONG));
    let (number, granted) = transactions(&etcd, is_granted(&backend, &waiting)).await;

    assert_eq!((number, granted), (1.0, false));
    assert_eq!(store.leases().await.unwrap().leases().len(), before);
    store.delete(entry.key(), None).await.unwrap();
    assert!(is_granted(&backend, &waiting).await);
}
