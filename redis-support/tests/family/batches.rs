//! What several callers ask for at the same time is done by one script, as far as nothing is in the way.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend, Patience, Release, Renewal, Tenure,
};
use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, LockKey, LossReason};
use leasehold_redis_support::{Call, Layout, Script};
use leasehold_testbed::{Redis, RedisOptions, until};
use tokio::time::timeout;

use super::connect;
use super::rights::DOCUMENTED;
use super::steps::{lock, scripts_run};
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);

/// Enough that most of them leave together.
const MANY: usize = 40;

async fn backend(redis: &Redis) -> Backend {
    connect(&redis.url()).await.unwrap()
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
        let (backend, claims) = (connect(&url).await.unwrap(), numbered());

        acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
        assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);

        let scripts = scripts_run(&redis).await;
        acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
        let scripts = scripts_run(&redis).await - scripts;
        assert!(scripts >= MANY as u64, "{scripts} for {MANY} locks, so -{needless} takes nothing");
    }
}

#[tokio::test]
async fn that_may_not_be_numbered_leave_no_lock_without_a_token() {
    let call = Call::acquire(&Layout::default(), &Claim::new(lease("job")), None);
    let fence = call.keys().nth(1).unwrap();
    for (script, keys, args, forbidden) in [
        (Script::AcquireMany, 5, 3, "mget"),
        (Script::AcquireMany, 5, 3, "mset"),
        (Script::AcquireMany, 5, 3, "time"),
        (Script::Acquire, call.keys().len(), call.args().len(), "time"),
    ] {
        let user = format!("user default on nopass ~* &* +@all -{forbidden}");
        let redis = RedisOptions::new().acl(user).start().await;
        redis.command(&["SET", fence, "1"]).await;
        let count = keys.to_string();
        let eval = ["EVAL", script.source(), &count].into_iter();
        let eval = eval.chain(call.keys().take(keys)).chain(call.args().take(args));

        let refused = redis.command(&eval.collect::<Vec<_>>()).await;

        assert!(refused.starts_with('-'), "{script:?} without {forbidden}: {refused}");
        let lock = redis.command(&["EXISTS", "lock:job"]).await;
        assert_eq!(lock, ":0", "{script:?} without {forbidden}");
    }
}

/// How many keys a server notes for somebody who acquires all of `claims`.
async fn noted(claims: &[Claim]) -> u64 {
    let redis = Redis::start().await;
    // The first lock of each hash slot is asked for by itself.
    let first = connect(&format!("{}?push=off", redis.url())).await.unwrap();
    acquire(&first, claims).await;
    release(&first, claims).await;
    let backend = backend(&redis).await;
    acquire(&backend, claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
    figure(&redis, "stats", "tracking_total_items:").await
}

/// What the server says after `label`, in a section of its figures; 0 if it does not know it.
async fn figure(redis: &Redis, section: &str, label: &str) -> u64 {
    let figures = redis.command(&["INFO", section]).await;
    let (_before, rest) = figures.split_once(label).unwrap_or_default();
    rest.chars()
        .map_while(|digit| digit.to_digit(10))
        .fold(0, |all, digit| 10 * all + u64::from(digit))
}

#[tokio::test]
async fn need_not_be_noted_where_they_are_renewed() {
    let once = numbered();
    let kept: Vec<Claim> = once
        .iter()
        .map(|claim| Claim::new(lease(claim.key().as_str()).with_tenure(Tenure::Kept)))
        .collect();

    let (of_kept, of_once) = (noted(&kept).await, noted(&once).await);

    assert!(2 * of_kept < of_once, "{of_kept} and {of_once} of {MANY}");
    assert!(of_once >= MANY as u64, "{of_once}");
}

#[tokio::test]
async fn hear_of_what_others_do_once_they_were_renewed() {
    let redis = Redis::start().await;
    let client = LockClient::new(backend(&redis).await);
    let names: Vec<String> = (0..MANY).map(|n| format!("job/{n}")).collect();
    for _ in 0..2 {
        let guards = join_all(names.iter().map(|name| lock(&client, name))).await;
        join_all(guards.into_iter().map(LockGuard::release)).await;
    }
    let forgone = figure(&redis, "commandstats", "client|caching:calls=").await;
    assert!(forgone > 0, "the second time, most of them leave together");
    let guards = join_all(names.iter().map(|name| lock(&client, name))).await;
    let granted: Vec<_> = guards.iter().map(LockGuard::deadline).collect();
    until("most of them are renewed", async || {
        let renewed = guards.iter().zip(&granted).filter(|(guard, was)| guard.deadline() > **was);
        2 * renewed.count() > MANY
    })
    .await;

    let keys: Vec<String> = names.iter().map(|name| format!("lock:{name}")).collect();
    let keys = keys.iter().map(String::as_str);
    redis.command(&["DEL"].into_iter().chain(keys).collect::<Vec<_>>()).await;

    // A third of the TTL is 10 s.
    let lost = join_all(guards.iter().map(LockGuard::lost));
    let reasons = timeout(Duration::from_secs(5), lost).await.expect("the server tells");
    assert!(reasons.iter().all(|reason| *reason == Some(LossReason::Vanished)), "{reasons:?}");
}

#[tokio::test]
async fn are_noted_by_a_server_that_does_not_let_itself_be_told_otherwise() {
    let rights = DOCUMENTED.replace(" +client|caching", "");
    let user = format!("user locker on nopass {rights}");
    let redis = RedisOptions::new().acl(user).start().await;
    let url = format!("redis://locker:any@{}", redis.address());
    let client = LockClient::new(connect(&url).await.unwrap());
    let names: Vec<String> = (0..MANY).map(|n| format!("job/{n}")).collect();
    let mut refused = Vec::new();
    for _ in 0..3 {
        let guards = join_all(names.iter().map(|name| lock(&client, name))).await;
        for released in join_all(guards.into_iter().map(LockGuard::release)).await {
            released.unwrap();
        }
        let stats = redis.command(&["INFO", "commandstats"]).await;
        let caching = stats.lines().find(|line| line.contains("client|caching"));
        refused.push(caching.map(str::to_owned));
    }

    assert!(refused[0].is_some(), "without that right it is refused");
    assert_eq!(refused[1], refused[2], "and not asked for any more");
}
