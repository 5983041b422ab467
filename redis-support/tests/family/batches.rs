//! Tests of the script that serves several concurrent calls if no other client is involved.

use std::time::Duration;

use futures_util::future::{join, join_all};
use leasehold_core::backend::{
    Attempt, Claim, Grant, Lease, LockBackend, Mode, Patience, Release, Renewal, StoreAdmin as _,
    Tenure,
};
use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, LossReason};
use leasehold_redis_support::{Call, Layout, Script};
use leasehold_testbed::{Redis, RedisOptions, until};
use tokio::time::timeout;

use super::connect;
use super::rights::DOCUMENTED;
use super::steps::{acquire, jobs, kept, lock, release, renew, scripts_run};
use crate::Backend;

const LONG: Duration = Duration::from_secs(60);

/// Enough calls that most of them share a batch.
const MANY: usize = 40;

/// The key of the token counter.
const FENCE: &str = "lock:~fence";

async fn backend(redis: &Redis) -> Backend {
    connect(&redis.url()).await.unwrap()
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
    let (backend, claims) = (backend(&redis).await, jobs(MANY));
    // The first requests load the scripts into the server.
    acquire(&backend, &claims).await;
    release(&backend, &claims).await;
    for crowds in [0, 1] {
        assert_eq!(redis.command(&["EXISTS", "lock:~crowd"]).await, format!(":{crowds}"));
        let scripts = scripts_run(&redis).await;

        acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
        assert_eq!(renew(&backend, &claims).await, [Renewal::Renewed; MANY]);
        assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);

        let scripts = scripts_run(&redis).await - scripts;
        assert!(scripts <= 12, "{scripts} for {MANY} locks");
        assert_eq!(redis.command(&["KEYS", "lock:job/*"]).await, "*0");
        // In the next round, the set of contended keys contains a different lock.
        let permit = kept("elsewhere").with_mode(Mode::Units { units: 1, limit: 2 });
        backend.acquire(&Claim::new(permit)).await.unwrap();
    }
}

#[tokio::test]
async fn leave_those_alone_that_are_in_the_way_of_others() {
    let redis = Redis::start().await;
    let (backend, other) = (backend(&redis).await, backend(&redis).await);
    let held = Claim::new(kept("job/5"));
    other.acquire(&held).await.unwrap();
    let waits = Claim::new(kept("job/6")).with_patience(Patience::Queues(LONG));
    let before = Claim::new(kept("job/6"));
    other.acquire(&before).await.unwrap();
    other.acquire(&waits).await.unwrap();
    other.release(before.lease()).await.unwrap();
    redis.command(&["LPUSH", "lock:job/7", "a"]).await;
    let units = kept("job/10").with_mode(Mode::Units { units: 1, limit: 2 });
    other.acquire(&Claim::new(units)).await.unwrap();
    let mut claims = jobs(MANY);
    // The batch contains a second claim for the same lock, and the same claim twice.
    claims.push(Claim::new(kept("job/8")));
    claims.push(claims[9].clone());

    let attempts = acquire(&backend, &claims).await;

    for (n, attempt) in attempts.iter().enumerate() {
        match n {
            5 | 6 => assert!(matches!(attempt, Ok(Attempt::Held(_))), "{n}: {attempt:?}"),
            7 | 10 => assert_eq!(attempt.as_ref().unwrap_err().kind(), ErrorKind::WrongType),
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
            5..=7 | 10 => assert_eq!(released, Release::NotHeld, "{n}"),
            8 | 9 | 40 | 41 => {}
            _ => assert_eq!(released, Release::Released, "{n}"),
        }
    }
    assert_eq!(redis.command(&["EXISTS", "lock:job/8", "lock:job/9"]).await, ":0");
    assert_eq!(other.release(held.lease()).await.unwrap(), Release::Released);
    assert_eq!(redis.command(&["LLEN", "lock:job/7"]).await, ":1");
    assert!(matches!(other.acquire(&waits).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
async fn have_tokens_of_their_own() {
    let redis = Redis::start().await;
    let (backend, claims) = (backend(&redis).await, jobs(MANY));
    // The token counter is now ahead of the clock.
    redis.command(&["SET", FENCE, "8000000000000000"]).await;

    let mut tokens: Vec<u64> = acquire(&backend, &claims).await.iter().map(token).collect();

    tokens.sort_unstable();
    assert_eq!(tokens, (1..=MANY as u64).map(|n| 8_000_000_000_000_000 + n).collect::<Vec<_>>());
    assert!(redis.command(&["GET", FENCE]).await.ends_with("\n8000000000000040"));
}

#[tokio::test]
async fn share_the_numbers_since_the_last_grant() {
    let redis = Redis::start().await;
    let now = clock_of(&redis).await;
    let last = now + 3_600_000_000;
    redis.command(&["SET", FENCE, &last.to_string()]).await;
    assert_eq!(exchanged(&redis).await, [last + 1, 1], "the clock allows no spare ones");

    redis.command(&["SET", FENCE, &(clock_of(&redis).await - 60_000).to_string()]).await;
    let [first, share] = exchanged(&redis).await;

    assert!(first > now - 60_000 && share >= 20_000, "{first}, {share} for each");
    let fence = redis.command(&["GET", FENCE]).await;
    assert!(fence.ends_with(&format!("\n{}", first + 3 * share - 1)), "{fence}");
}

/// Simulates a failover to a replica that does not have the last grants.
#[tokio::test]
async fn reach_no_further_back_than_one_lock_may() {
    let redis = Redis::start().await;
    let now = clock_of(&redis).await;
    redis.command(&["SET", FENCE, &(now - 60_000_000).to_string()]).await;

    let [first, share] = exchanged(&redis).await;

    assert!(first > now - 65_536, "{first} is {} tokens back", now - first);
    assert!(share >= 65_536 / 3, "{share} for each");
}

/// Returns the token that corresponds to the server's clock.
async fn clock_of(redis: &Redis) -> u64 {
    let time = "local t = redis.call('TIME') return string.format('%.0f', t[1] * 1000000 + t[2])";
    let reply = redis.command(&["EVAL", time, "0"]).await;
    reply.lines().last().unwrap().parse::<u64>().unwrap() * Grant::TOKENS_PER_MICROSECOND
}

/// Returns the first token of three new locks that one script acquires, and the number of tokens
/// per lock.
async fn exchanged(redis: &Redis) -> [u64; 2] {
    redis.command(&["DEL", "lock:a", "lock:b", "lock:c"]).await;
    let keys = [FENCE, "lock:~crowd", "lock:a", "lock:b", "lock:c"];
    let eval = ["EVAL", Script::Exchange.source(), "5"].into_iter().chain(keys);
    let eval = eval.chain(["0", "60000", "a's", "b's", "c's"]);

    let reply = redis.command(&eval.collect::<Vec<_>>()).await;

    let numbers = reply.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok());
    numbers.collect::<Vec<_>>().try_into().unwrap()
}

#[tokio::test]
async fn fail_together_where_the_server_fails() {
    let redis = Redis::start().await;
    let (backend, claims) = (backend(&redis).await, jobs(MANY));
    redis.command(&["SET", FENCE, "no number"]).await;
    for attempt in acquire(&backend, &claims).await {
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::WrongType);
    }
    assert_eq!(redis.command(&["KEYS", "lock:job/*"]).await, "*0");

    redis.command(&["DEL", FENCE]).await;
    acquire(&backend, &claims[..MANY / 2]).await.iter().for_each(|one| assert!(token(one) > 0));
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let (released, acquired) =
        join(release(&backend, &claims[..MANY / 2]), acquire(&backend, &claims[MANY / 2..])).await;
    assert_eq!(released, [Release::Released; MANY / 2], "that needs no memory");
    for attempt in acquired {
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Refused);
    }
}

#[tokio::test]
async fn that_may_not_be_done_by_one_script_are_done_one_by_one() {
    for needless in ["mget", "zmscore"] {
        let user = format!("user locker on nopass {DOCUMENTED} -{needless}");
        let redis = RedisOptions::new().acl(user).start().await;
        let url = format!("redis://locker:any@{}", redis.address());
        let (backend, claims) = (connect(&url).await.unwrap(), jobs(MANY));
        let units = kept("units").with_mode(Mode::Units { units: 1, limit: 2 });
        backend.acquire(&Claim::new(units)).await.unwrap();

        let scripts = scripts_run(&redis).await;
        acquire(&backend, &claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
        assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);
        let scripts = scripts_run(&redis).await - scripts;

        assert!(scripts >= MANY as u64, "{scripts} for {MANY} locks, so -{needless} takes nothing");
    }
}

#[tokio::test]
async fn that_may_not_be_numbered_leave_no_lock_without_a_token() {
    let call = Call::acquire(&Layout::default(), &Claim::new(kept("job")), None);
    let alone = call.keys().chain(call.args()).collect::<Vec<_>>();
    let many = [FENCE, "lock:~crowd", "lock:job", "0", "60000", "value"];
    for (script, keys, words, forbidden) in [
        (Script::Exchange, 3, &many[..], "get"),
        (Script::Exchange, 3, &many[..], "set"),
        (Script::Exchange, 3, &many[..], "time"),
        (Script::Acquire, call.keys().len(), &alone[..], "time"),
    ] {
        let user = format!("user default on nopass ~* &* +@all -{forbidden}");
        let redis = RedisOptions::new().acl(user).start().await;
        redis.command(&["SET", FENCE, "1"]).await;
        let count = keys.to_string();
        let eval = ["EVAL", script.source(), &count].into_iter().chain(words.iter().copied());

        let refused = redis.command(&eval.collect::<Vec<_>>()).await;

        assert!(refused.starts_with('-'), "{script:?} without {forbidden}: {refused}");
        let lock = redis.command(&["EXISTS", "lock:job"]).await;
        assert_eq!(lock, ":0", "{script:?} without {forbidden}");
    }
}

#[tokio::test]
async fn hear_that_they_are_asked_back() {
    let redis = Redis::start().await;
    let (backend, other, claims) = (backend(&redis).await, backend(&redis).await, jobs(MANY));
    acquire(&backend, &claims).await;
    other.request_revocation(claims[3].key(), None).await.unwrap();
    other.force_release(claims[4].key(), None).await.unwrap();

    for (n, renewal) in renew(&backend, &claims).await.into_iter().enumerate() {
        let expected = match n {
            3 => Renewal::RevocationRequested,
            4 => Renewal::Vanished,
            _ => Renewal::Renewed,
        };
        assert_eq!(renewal, expected, "{n}");
    }
}

#[tokio::test]
async fn are_renewed_for_their_own_ttl_each() {
    let redis = Redis::start().await;
    let (backend, claims) = (backend(&redis).await, jobs(MANY));
    acquire(&backend, &claims).await;
    let ttl = |n: usize| LONG * if n.is_multiple_of(2) { 2 } else { 3 };
    let leases = claims.iter().enumerate();
    let leases: Vec<Lease> =
        leases.map(|(n, claim)| claim.lease().clone().with_ttl(ttl(n))).collect();

    for renewal in backend.renew_all(&leases).await {
        assert_eq!(renewal.unwrap(), Renewal::Renewed);
    }

    for (n, lease) in leases.iter().enumerate() {
        let left = redis.command(&["PTTL", &format!("lock:{}", lease.key())]).await;
        let left = Duration::from_millis(left.trim_start_matches(':').parse().unwrap());
        assert!(left <= ttl(n) && left > ttl(n) - LONG, "{n}: {left:?}");
    }
}

#[tokio::test]
async fn are_together_again_once_nothing_is_in_the_way() {
    let redis = Redis::start().await;
    let (backend, other) = (backend(&redis).await, backend(&redis).await);
    let (held, waits) = (Claim::new(kept("job/1")), Claim::new(kept("job/1")));
    other.acquire(&held).await.unwrap();
    other.acquire(&waits.clone().with_patience(Patience::Queues(LONG))).await.unwrap();
    assert_eq!(redis.command(&["ZCARD", "lock:~crowd"]).await, ":1");
    other.release(waits.lease()).await.unwrap();
    other.release(held.lease()).await.unwrap();

    acquire(&backend, &jobs(MANY)).await.iter().for_each(|attempt| assert!(token(attempt) > 0));

    assert_eq!(redis.command(&["EXISTS", "lock:~crowd"]).await, ":0");
}

/// Returns the number of keys that a server tracks for a client that acquires all `claims`.
async fn noted(claims: &[Claim]) -> u64 {
    let redis = Redis::start().await;
    // The first requests load the scripts into the server.
    let first = connect(&format!("{}?push=off", redis.url())).await.unwrap();
    acquire(&first, claims).await;
    release(&first, claims).await;
    let backend = backend(&redis).await;
    acquire(&backend, claims).await.iter().for_each(|attempt| assert!(token(attempt) > 0));
    figure(&redis, "stats", "tracking_total_items:").await
}

/// Returns the value of `label` in a section of the server's statistics, or 0 if there is no such
/// value.
async fn figure(redis: &Redis, section: &str, label: &str) -> u64 {
    let figures = redis.command(&["INFO", section]).await;
    let (_before, rest) = figures.split_once(label).unwrap_or_default();
    rest.chars()
        .map_while(|digit| digit.to_digit(10))
        .fold(0, |all, digit| 10 * all + u64::from(digit))
}

#[tokio::test]
async fn need_not_be_noted_where_they_are_renewed() {
    let kept = jobs(MANY);
    let once: Vec<Claim> = kept
        .iter()
        .map(|claim| Claim::new(claim.lease().clone().with_tenure(Tenure::Fixed)))
        .collect();

    let (of_kept, of_once) = (noted(&kept).await, noted(&once).await);

    assert!(2 * of_kept < of_once, "{of_kept} and {of_once} of {MANY}");
    assert!(of_once >= MANY as u64, "{of_once}");
}

#[tokio::test]
async fn hear_of_changes_by_others_once_renewed() {
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

    // The client renews a lease after a third of its TTL, which is 10 s.
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
