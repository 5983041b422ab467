//! What several callers ask for at the same time is done by one script, as far as nothing is in the way.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    Attempt, Claim, Error, ErrorKind, Lease, LockBackend, LockKey, Patience, Release, Renewal,
};
use leasehold_redis_support::{Call, Layout};
use leasehold_testbed::{Redis, RedisOptions};

use super::rights::DOCUMENTED;
use super::steps::scripts_run;
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);

/// Enough that most of them leave together.
const MANY: usize = 40;

async fn backend(redis: &Redis) -> Backend {
    Backend::connect(&redis.url()).await.unwrap()
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), LONG)
}

fn claims(names: impl IntoIterator<Item = String>) -> Vec<Claim> {
    names.into_iter().map(|name| Claim::new(lease(&name))).collect()
}

fn numbered() -> Vec<Claim> {
    claims((0..MANY).map(|n| format!("job/{n}")))
}

async fn acquire(backend: &Backend, claims: &[Claim]) -> Vec<Result<Attempt, Error>> {
    join_all(claims.iter().map(|claim| backend.try_acquire(claim))).await
}

async fn release(backend: &Backend, claims: &[Claim]) -> Vec<Release> {
    let released = join_all(claims.iter().map(|claim| backend.release(claim.lease()))).await;
    released.into_iter().map(Result::unwrap).collect()
}

fn token(attempt: &Result<Attempt, Error>) -> u64 {
    match attempt {
        Ok(Attempt::Granted(grant)) => grant.token(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn take_few_requests() {
    let redis = Redis::start().await;
    let (backend, claims) = (backend(&redis).await, numbered());
    // The first lock of each hash slot is asked for by itself.
    acquire(&backend, &claims).await;
    release(&backend, &claims).await;
    let scripts = scripts_run(&redis).await;
    let leases: Vec<Lease> = claims.iter().map(|claim| claim.lease().clone()).collect();

    acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
    for renewal in backend.renew_all(&leases).await {
        assert_eq!(renewal.unwrap(), Renewal::Renewed);
    }
    assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);

    let scripts = scripts_run(&redis).await - scripts;
    assert!(scripts <= 12, "{scripts} for {MANY} locks");
    assert_eq!(redis.command(&["KEYS", "lock:job/*"]).await, "*0");
}

#[tokio::test]
async fn leave_those_alone_that_are_in_the_way_of_others() {
    let redis = Redis::start().await;
    let (backend, other) = (backend(&redis).await, backend(&redis).await);
    let held = Claim::new(lease("job/5"));
    other.try_acquire(&held).await.unwrap();
    let waits = Claim::new(lease("job/6")).with_patience(Patience::Queues(LONG));
    let before = Claim::new(lease("job/6"));
    other.try_acquire(&before).await.unwrap();
    other.try_acquire(&waits).await.unwrap();
    other.release(before.lease()).await.unwrap();
    redis.command(&["LPUSH", "lock:job/7", "a"]).await;
    let mut claims = numbered();
    // The same lock again, by somebody else, and the same claim again.
    claims.push(Claim::new(lease("job/8")));
    claims.push(claims[9].clone());

    let attempts = acquire(&backend, &claims).await;

    for (n, attempt) in attempts.iter().enumerate() {
        match n {
            5 | 6 => assert!(matches!(attempt, Ok(Attempt::Held(_))), "{n}: {attempt:?}"),
            7 => assert_eq!(attempt.as_ref().unwrap_err().kind(), ErrorKind::WrongType),
            8 | 40 => {}
            _ => assert!(token(attempt) > 0, "{n}"),
        }
    }
    let of_two = [&attempts[8], &attempts[40]];
    let granted = of_two.iter().filter(|attempt| matches!(attempt, Ok(Attempt::Granted(_))));
    assert_eq!(granted.count(), 1, "{of_two:?}");

    let released = release(&backend, &claims).await;
    for (n, released) in released.into_iter().enumerate() {
        match n {
            5..=7 => assert_eq!(released, Release::NotHeld, "{n}"),
            8 | 9 | 40 | 41 => {}
            _ => assert_eq!(released, Release::Released, "{n}"),
        }
    }
    assert_eq!(redis.command(&["EXISTS", "lock:job/8", "lock:job/9"]).await, ":0");
    assert_eq!(other.release(held.lease()).await.unwrap(), Release::Released);
    assert_eq!(redis.command(&["LLEN", "lock:job/7"]).await, ":1");
    assert!(matches!(other.try_acquire(&waits).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
async fn have_tokens_of_their_own_also_where_locks_have_one_fence() {
    let redis = Redis::start().await;
    let backend = backend(&redis).await;
    let fence = |name: &str| {
        let call = Call::acquire(&Layout::default(), &Claim::new(lease(name)), None);
        call.keys().nth(1).unwrap().to_owned()
    };
    let first = fence("job");
    // One in 16,384 names has the same.
    let names = (0..).map(|n| format!("job/{n}")).filter(|name| fence(name) == first).take(8);
    let claims: Vec<Claim> =
        claims(names).into_iter().map(|claim| claim.with_spare_tokens(100)).collect();
    // From here on, the fence is ahead of the clock.
    redis.command(&["SET", &first, "8000000000000000"]).await;

    let mut tokens: Vec<u64> = acquire(&backend, &claims).await.iter().map(token).collect();

    tokens.sort_unstable();
    assert_eq!(tokens, (1..=8).map(|n| 8_000_000_000_000_000 + n).collect::<Vec<u64>>());
    assert!(redis.command(&["GET", &first]).await.ends_with("\n8000000000000008"));
}

#[tokio::test]
async fn fail_each_for_itself() {
    let redis = Redis::start().await;
    let (backend, claims) = (backend(&redis).await, numbered());
    let fence = |claim: &Claim| {
        let call = Call::acquire(&Layout::default(), claim, None);
        call.keys().nth(1).unwrap().to_owned()
    };
    redis.command(&["SET", &fence(&claims[10]), "no number"]).await;
    redis.command(&["LPUSH", &fence(&claims[11]), "no number"]).await;

    for (n, attempt) in acquire(&backend, &claims).await.iter().enumerate() {
        match n {
            10 | 11 => assert_eq!(attempt.as_ref().unwrap_err().kind(), ErrorKind::WrongType),
            _ => assert!(token(attempt) > 0, "{n}"),
        }
    }
    assert_eq!(redis.command(&["EXISTS", "lock:job/10", "lock:job/11"]).await, ":0");
    release(&backend, &claims).await;

    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for attempt in acquire(&backend, &claims).await {
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Refused);
    }
}

#[tokio::test]
async fn that_may_not_be_done_by_one_script_are_done_one_by_one() {
    for needless in ["mget", "mset"] {
        let user = format!("user locker on nopass {DOCUMENTED} -{needless}");
        let redis = RedisOptions::new().acl(user).start().await;
        let url = format!("redis://locker:any@{}", redis.address());
        let (backend, claims) = (Backend::connect(&url).await.unwrap(), numbered());

        acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
        assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);

        let scripts = scripts_run(&redis).await;
        acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
        let scripts = scripts_run(&redis).await - scripts;
        assert!(scripts >= MANY as u64, "{scripts} for {MANY} locks, so -{needless} takes nothing");
    }
}
