//! Tests of requests that acquire several mutexes together.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::backend::{
    AttemptAll, Claim, Lease, LockBackend, Mode, Renewal, StoreAdmin as _, Subject,
};
use leasehold_core::{ErrorKind, LockClient, LockKey, MultiGuard, TryLockError};
use leasehold_redis_support::{Call, Layout};
use leasehold_testbed::{Redis, RedisOptions};
use tokio::time::timeout;

use super::connect;
use super::steps::scripts_run;
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);
const KEYS: [&str; 3] = ["a", "b", "c"];

async fn backend(redis: &Redis) -> Backend {
    connect(&redis.url()).await.unwrap()
}

fn claims(keys: &[&str]) -> Vec<Claim> {
    let claim = |name: &&str| Claim::new(Lease::new(&LockKey::new(*name).unwrap(), LONG));
    keys.iter().map(claim).collect()
}

async fn kind_of_failure(backend: &Backend) -> (ErrorKind, String) {
    let error = backend.acquire_all(&claims(&KEYS)).await.unwrap_err();
    (error.kind(), error.key().unwrap().to_string())
}

/// Returns all keys in the server, except token counters and notification keys.
async fn names(redis: &Redis) -> Vec<String> {
    let keys = redis.command(&["KEYS", "*"]).await;
    let keys = keys.lines().filter(|line| line.starts_with("lock:"));
    keys.filter(|key| !["~fence", "~crowd", "~news:"].iter().any(|part| key.contains(part)))
        .map(ToOwned::to_owned)
        .collect()
}

async fn lock(client: &LockClient<Backend>, names: &[String]) -> MultiGuard {
    client.multi_lock().mutexes(names).unwrap().lock().await.unwrap()
}

#[tokio::test]
async fn a_multi_lock_that_is_free_is_one_request() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    for (count, expected) in [(2, 1), (10, 1), (64, 1), (65, 65)] {
        let keys: Vec<String> = (0..count).map(|n| format!("{n:02}")).collect();
        // The first request loads the scripts into the server.
        lock(&client, &keys).await.release().await.unwrap();
        let before = scripts_run(&redis).await;

        let guard = lock(&client, &keys).await;

        assert_eq!(scripts_run(&redis).await - before, expected, "{count} keys");
        assert_eq!(names(&redis).await.len(), count);
        guard.release().await.unwrap();
        assert_eq!(names(&redis).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_multi_lock_that_is_held_is_refused_by_one_request() {
    let redis = Redis::start().await;
    let (client, other) =
        (LockClient::new(backend(&redis).await), LockClient::new(backend(&redis).await));
    let _held = other.mutex("c").unwrap().lock().await.unwrap();
    let whole = client.multi_lock().mutexes(KEYS).unwrap();
    assert!(matches!(whole.try_lock().await, Err(TryLockError::Busy(_))));
    let before = scripts_run(&redis).await;

    assert!(matches!(whole.try_lock().await, Err(TryLockError::Busy(_))));

    assert_eq!(scripts_run(&redis).await - before, 1);
    assert_eq!(names(&redis).await, ["lock:c"]);
}

#[tokio::test]
async fn holders_are_told_at_once_that_they_are_asked_back() {
    let redis = Redis::start().await;
    let (backend, other) = (backend(&redis).await, backend(&redis).await);
    let claims = claims(&KEYS);
    let attempt = backend.acquire_all(&claims).await.unwrap();
    assert!(matches!(attempt, AttemptAll::Granted(_)), "{attempt:?}");

    for claim in &claims {
        let mut news = backend.watch(Subject::Lease(claim.lease()));
        other.request_revocation(claim.key(), None).await.unwrap();

        timeout(LONG, news.changed()).await.expect("there is news of it");
        assert_eq!(backend.renew(claim.lease()).await.unwrap(), Renewal::RevocationRequested);
    }
}

#[tokio::test]
async fn locks_of_several_kinds_are_taken_one_after_the_other() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    let whole = client.multi_lock().mutex("a").unwrap().read("b").unwrap();
    let whole = whole.permits("c", 2, 3).unwrap();

    let guard = whole.lock().await.unwrap();

    assert_eq!(guard.guards().len(), 3);
    guard.release().await.unwrap();
    let units = Lease::new(&LockKey::new("b").unwrap(), LONG).with_mode(Mode::READER);
    let mixed = [claims(&["a"]).remove(0), Claim::new(units)];
    let error = client.backend().acquire_all(&mixed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(names(&redis).await, Vec::<String>::new());
}

#[tokio::test]
async fn requests_together_write_the_same_as_single_ones() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let claims = claims(&KEYS);
    for claim in &claims {
        // An earlier holder received a revocation request and has released its lease.
        let before = Lease::new(claim.key(), LONG);
        backend.acquire(&Claim::new(before.clone())).await.unwrap();
        backend.request_revocation(claim.key(), None).await.unwrap();
        backend.release(&before).await.unwrap();
    }

    let granted = backend.acquire_all(&claims).await.unwrap();

    let AttemptAll::Granted(grants) = granted else { panic!("{granted:?}") };
    for (claim, grant) in claims.iter().zip(grants) {
        let name = format!("lock:{}", claim.key());
        let value = redis.command(&["GET", &name]).await;
        assert!(value.contains(&claim.id().secret()), "{value}");
        let left = redis.command(&["PTTL", &name]).await;
        let left: u64 = left.trim_start_matches(':').parse().unwrap();
        assert!(left > 50_000 && left <= 60_000, "{left}");
        let inspection = backend.inspect(claim.key()).await.unwrap();
        assert!(inspection.last_token() >= Some(grant.token()));
        assert_eq!(backend.renew(claim.lease()).await.unwrap(), Renewal::Renewed);
    }
    assert_eq!(names(&redis).await.len(), KEYS.len());
}

#[tokio::test]
async fn a_full_server_grants_none() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;

    assert_eq!(kind_of_failure(&backend).await.0, ErrorKind::Refused);
    assert_eq!(names(&redis).await, Vec::<String>::new());

    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let granted = backend.acquire_all(&claims(&KEYS)).await.unwrap();
    assert!(matches!(granted, AttemptAll::Granted(_)));
}

#[tokio::test]
async fn something_else_under_one_of_the_keys_is_named_and_none_is_granted() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    redis.command(&["HSET", "lock:b", "field", "value"]).await;

    assert_eq!(kind_of_failure(&backend).await, (ErrorKind::WrongType, "b".to_owned()));

    assert_eq!(names(&redis).await, ["lock:b"]);
}

#[tokio::test]
async fn a_fence_that_is_no_number_grants_none() {
    for key in KEYS {
        let redis = Redis::start().await;
        let backend = backend(&redis).await;
        let claim = claims(&[key]).remove(0);
        backend.acquire(&claim).await.unwrap();
        backend.release(claim.lease()).await.unwrap();
        let fences = redis.command(&["KEYS", "*~fence*"]).await;
        let fence = fences.lines().find(|line| line.starts_with("lock:")).unwrap();
        redis.command(&["SET", fence, "x"]).await;

        assert_eq!(kind_of_failure(&backend).await.0, ErrorKind::WrongType);

        assert_eq!(names(&redis).await, Vec::<String>::new(), "{key}");
    }
}

#[tokio::test]
async fn rights_that_do_not_suffice_grant_none() {
    const RIGHTS: [&str; 5] = ["+get", "+set", "+del", "+exists", "+time"];
    for missing in RIGHTS {
        let rights: Vec<&str> = RIGHTS.into_iter().filter(|right| *right != missing).collect();
        let user = format!(
            "user locker on >secret resetkeys -@all ~lock:* +eval +evalsha +client|tracking {}",
            rights.join(" ")
        );
        let default = "user default on nopass ~* &* +@all";
        let redis = RedisOptions::new().acl(default).acl(user).start().await;
        let url = format!("redis://locker:secret@{}", redis.address());
        let backend = connect(&url).await.unwrap();

        assert_eq!(kind_of_failure(&backend).await.0, ErrorKind::Denied, "without {missing}");

        assert_eq!(names(&redis).await, Vec::<String>::new(), "without {missing}");
    }
}

#[tokio::test]
async fn a_part_that_is_deleted_is_lost_at_once() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    for key in KEYS {
        let guard = client.multi_lock().mutexes(KEYS).unwrap().lock().await.unwrap();

        redis.command(&["DEL", &format!("lock:{key}")]).await;

        let lost = tokio::time::timeout(Duration::from_secs(5), guard.lost()).await;
        assert_eq!(lost.expect("the server tells").expect("it is lost").0.as_str(), key);
        drop(guard.release().await);
    }
}

#[tokio::test]
async fn locks_that_share_a_fence_have_tokens_of_their_own() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let fence = |name: &str| {
        let call = Call::acquire_all(&Layout::default(), &claims(&[name])).unwrap();
        call.keys().nth(1).unwrap().to_owned()
    };
    let mut names_by_fence = HashMap::new();
    let mut all = (0..).map(|n| n.to_string());
    let (one, other) = all
        .find_map(|name| names_by_fence.insert(fence(&name), name.clone()).map(|one| (one, name)))
        .unwrap();

    let granted = backend.acquire_all(&claims(&[&one, &other])).await.unwrap();

    let AttemptAll::Granted(grants) = granted else { panic!("{granted:?}") };
    assert!(grants[1].token() > grants[0].token(), "{grants:?}");
    let inspection = backend.inspect(&LockKey::new(one).unwrap()).await.unwrap();
    assert_eq!(inspection.last_token(), Some(grants[1].token()));
}
