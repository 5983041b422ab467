//! Callers that acquire and release at the same time, and whose changes share transactions.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Release, StoreAdmin, Tenure};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_etcd::EtcdBackend;
use leasehold_etcd::etcd_client::{Client, GetOptions};
use leasehold_testbed::{Etcd, EtcdOptions, FaultProxy, NetworkFault, until};

const LONG: Duration = Duration::from_secs(60);

/// More than send transactions of their own.
const MANY: usize = 40;

async fn start() -> (Etcd, EtcdBackend) {
    let etcd = Etcd::start().await;
    let backend = connect(&etcd.url()).await;
    (etcd, backend)
}

/// The same with a network between the two.
async fn start_behind_a_proxy() -> (Etcd, FaultProxy, EtcdBackend) {
    let etcd = Etcd::start().await;
    let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
    let backend = connect(&format!("etcd://{}", proxy.address())).await;
    (etcd, proxy, backend)
}

async fn connect(url: &str) -> EtcdBackend {
    let backend = EtcdBackend::connect(url).await.unwrap();
    // The session begins before the others hurry.
    backend.acquire(&claim("warm-up")).await.unwrap();
    backend
}

fn claim(name: &str) -> Claim {
    Claim::new(Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept))
}

fn claims() -> Vec<Claim> {
    (0..MANY).map(|n| claim(&format!("job/{n}"))).collect()
}

async fn acquire_all(backend: &EtcdBackend, claims: &[Claim]) -> Vec<Result<Attempt, Error>> {
    join_all(claims.iter().map(|claim| backend.acquire(claim))).await
}

async fn release_all(backend: &EtcdBackend, claims: &[Claim]) -> Vec<Result<Release, Error>> {
    join_all(claims.iter().map(|claim| backend.release(claim.lease()))).await
}

fn is_granted(attempt: &Result<Attempt, Error>) -> bool {
    matches!(attempt, Ok(Attempt::Granted(_)))
}

/// The keys of all holders and waiters whose locks' names begin so.
async fn entries(etcd: &Etcd, prefix: &str) -> usize {
    let store = Client::connect(etcd.endpoints(), None).await.unwrap();
    let all = GetOptions::new().with_prefix().with_count_only();
    let found = store.kv_client().get(format!("lock/{prefix}"), Some(all)).await.unwrap();
    usize::try_from(found.count()).unwrap()
}

async fn transactions(etcd: &Etcd) -> f64 {
    etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Txn",grpc_code="OK"}"#).await
}

#[tokio::test]
async fn many_callers_share_few_transactions() {
    let (etcd, backend) = start().await;
    let claims = claims();
    let before = transactions(&etcd).await;

    assert!(acquire_all(&backend, &claims).await.iter().all(is_granted));
    assert_eq!(entries(&etcd, "job/").await, MANY);
    let released = release_all(&backend, &claims).await;

    assert!(released.into_iter().all(|released| released.unwrap() == Release::Released));
    assert_eq!(entries(&etcd, "job/").await, 0);
    let number = transactions(&etcd).await - before;
    assert!(number <= 16.0, "{number} transactions for {MANY} locks");
}

#[tokio::test]
async fn tokens_grow_from_batch_to_batch() {
    let (_etcd, backend) = start().await;
    let mut last = vec![0; MANY];

    for _ in 0..5 {
        let claims = claims();
        for (last, attempt) in last.iter_mut().zip(acquire_all(&backend, &claims).await) {
            let Ok(Attempt::Granted(grant)) = attempt else { panic!("{attempt:?}") };
            assert!(*last < grant.token());
            *last = grant.token();
        }
        release_all(&backend, &claims).await;
    }
}

#[tokio::test]
async fn a_refused_caller_changes_nothing_for_the_others() {
    let (etcd, backend) = start().await;
    let other = EtcdBackend::connect(&etcd.url()).await.unwrap();
    let (claims, held) = (claims(), claim("job/20"));
    other.acquire(&held).await.unwrap();

    let attempts = acquire_all(&backend, &claims).await;

    for (n, attempt) in attempts.iter().enumerate() {
        match attempt {
            Ok(Attempt::Held(contention)) if n == 20 => assert!(contention.holder().is_some()),
            attempt => assert!(n != 20 && is_granted(attempt), "{n}: {attempt:?}"),
        }
    }
    assert_eq!(entries(&etcd, "job/").await, MANY);
    // A lease that is over is told so, and the others are released.
    other.force_release(claims[30].key(), None).await.unwrap();
    let released = release_all(&backend, &claims).await;
    let released: Vec<_> = released.into_iter().map(Result::unwrap).collect();
    for (n, released) in released.into_iter().enumerate() {
        let expected = if [20, 30].contains(&n) { Release::NotHeld } else { Release::Released };
        assert_eq!(released, expected, "{n}");
    }
    assert_eq!(entries(&etcd, "job/").await, 1);
}

#[tokio::test]
async fn claims_for_one_lock_have_one_winner() {
    let (etcd, backend) = start().await;
    let mut claims = claims();
    claims.extend((0..5).map(|_| claim("job/20")));

    let attempts = acquire_all(&backend, &claims).await;

    let granted =
        |attempts: &[Result<Attempt, Error>]| attempts.iter().filter(|it| is_granted(it)).count();
    assert!(attempts.iter().all(Result::is_ok));
    assert_eq!(granted(&attempts), MANY);
    assert_eq!(granted(&attempts[MANY..]) + usize::from(is_granted(&attempts[20])), 1);
    assert_eq!(entries(&etcd, "job/").await, MANY);
}

#[tokio::test]
async fn a_caller_that_gives_up_before_the_batch_leaves_nothing() {
    let (etcd, backend) = start().await;
    let claims = claims();
    let mut attempts: Vec<_> = claims.iter().map(|claim| backend.acquire(claim)).collect();
    for attempt in &mut attempts {
        assert!(attempt.now_or_never().is_none());
    }

    drop(attempts.remove(20));

    assert!(join_all(attempts).await.iter().all(is_granted));
    assert_eq!(entries(&etcd, "job/20/").await, 0);
    assert_eq!(backend.release(claims[20].lease()).await.unwrap(), Release::NotHeld);
    assert!(is_granted(&backend.acquire(&claim("job/20")).await));
}

#[tokio::test]
async fn callers_that_give_up_under_way_are_cleaned_up_by_their_releases() {
    let (etcd, proxy, backend) = start_behind_a_proxy().await;
    let claims = claims();

    proxy.set_network_fault(NetworkFault::HoldReplies);
    tokio::select! {
        _ = acquire_all(&backend, &claims) => panic!("there are no replies"),
        () = until("all are granted", async || entries(&etcd, "job/").await == MANY) => {}
    }
    proxy.set_network_fault(NetworkFault::None);

    for released in release_all(&backend, &claims).await {
        assert_eq!(released.unwrap(), Release::Released);
    }
    assert_eq!(entries(&etcd, "job/").await, 0);
}

#[tokio::test]
async fn a_lost_reply_leaves_all_callers_of_the_batch_in_doubt() {
    let (etcd, proxy, backend) = start_behind_a_proxy().await;
    let claims = claims();

    proxy.set_network_fault(NetworkFault::HoldReplies);
    let lose_replies = async {
        until("all are granted", async || entries(&etcd, "job/").await == MANY).await;
        proxy.set_network_fault(NetworkFault::Reset);
    };
    let (attempts, ()) = tokio::join!(acquire_all(&backend, &claims), lose_replies);
    proxy.set_network_fault(NetworkFault::None);

    for attempt in attempts {
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Indeterminate);
    }
    // The same leases ask again, and are granted once.
    assert!(acquire_all(&backend, &claims).await.iter().all(is_granted));
    assert_eq!(entries(&etcd, "job/").await, MANY);
    for released in release_all(&backend, &claims).await {
        assert_eq!(released.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_session_that_an_operator_ends_costs_no_caller_its_lock() {
    let (etcd, backend) = start().await;
    let store = Client::connect(etcd.endpoints(), None).await.unwrap();
    let held = store.kv_client().get("lock/warm-up/first", None).await.unwrap();
    store.lease_client().revoke(held.kvs()[0].lease()).await.unwrap();

    assert!(acquire_all(&backend, &claims()).await.iter().all(is_granted));
}

#[tokio::test]
async fn a_caller_without_rights_is_denied_and_the_others_are_granted() {
    let etcd = EtcdOptions::new().user("half", "half", "lock/~").start().await;
    etcd.ctl(&["role", "grant-permission", "half", "--prefix=true", "readwrite", "lock/job/"])
        .await;
    etcd.ctl(&["role", "grant-permission", "half", "--prefix=true", "readwrite", "lock/warm-up/"])
        .await;
    let backend = connect(&format!("etcd://half:half@{}", etcd.endpoints().join(","))).await;
    let mut claims = claims();
    claims.insert(20, claim("secret"));

    let attempts = acquire_all(&backend, &claims).await;

    for (n, attempt) in attempts.iter().enumerate() {
        match attempt {
            Err(error) if n == 20 => assert_eq!(error.kind(), ErrorKind::Denied),
            attempt => assert!(n != 20 && is_granted(attempt), "{n}: {attempt:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_with_a_lower_limit_serves_each_caller_alone() {
    let etcd = EtcdOptions::new().args(["--max-txn-ops", "8"]).start().await;
    let backend = connect(&etcd.url()).await;
    let claims = claims();

    assert!(acquire_all(&backend, &claims).await.iter().all(is_granted));
    for released in release_all(&backend, &claims).await {
        assert_eq!(released.unwrap(), Release::Released);
    }
}
