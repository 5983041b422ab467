//! Tests of the script that serves locks in many hash slots of a server.

use leasehold_core::Error;
use leasehold_core::backend::{
    Attempt, Mode, Patience, Release, Renewal, StoreAdmin as _, Subject,
};
use leasehold_redis_support::Script;

use super::super::steps::{acquire, jobs, kept, release, renew};
use super::*;

/// Enough claims that most of the claims for each server share a batch.
const MANY: usize = 90;

fn is_granted(attempt: &Result<Attempt, Error>) -> bool {
    matches!(attempt, Ok(Attempt::Granted(_)))
}

/// Returns the number of scripts that the servers have run, and the number of locks on the servers.
async fn scripts_and_locks(redis: &RedisCluster) -> (u64, usize) {
    let (mut scripts, mut locks) = (0, 0);
    for node in 0..redis.nodes() {
        scripts += redis.calls(node, &["eval", "evalsha"]).await;
        let keys = redis.command(node, &["KEYS", "lock:job/*"]).await;
        locks += keys.lines().filter(|line| line.starts_with("lock:")).count();
    }
    (scripts, locks)
}

#[tokio::test]
async fn take_few_requests() {
    let redis = three().await;
    let (backend, claims) = (connect(&redis.url()).await.unwrap(), jobs(MANY));
    // The first requests load the scripts into the servers.
    acquire(&backend, &claims).await;
    release(&backend, &claims).await;
    let (before, _) = scripts_and_locks(&redis).await;

    assert!(acquire(&backend, &claims).await.iter().all(is_granted));
    let (acquired, locks) = scripts_and_locks(&redis).await;
    assert_eq!(locks, MANY);
    assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);

    let (released, locks) = scripts_and_locks(&redis).await;
    assert_eq!(locks, 0);
    let scripts = [acquired - before, released - acquired];
    assert!(scripts.iter().all(|scripts| *scripts <= 12), "{scripts:?} for {MANY} locks");
}

#[tokio::test]
async fn leave_those_alone_that_are_in_the_way_of_others() {
    let redis = three().await;
    let connected = async || connect(&redis.url()).await.unwrap();
    let (backend, other, mut claims) = (connected().await, connected().await, jobs(MANY));
    let held = Claim::new(kept("job/5"));
    other.acquire(&held).await.unwrap();
    let (before, waits) = (Claim::new(kept("job/6")), Claim::new(kept("job/6")));
    let waits = waits.with_patience(Patience::Queues(LONG));
    other.acquire(&before).await.unwrap();
    other.acquire(&waits).await.unwrap();
    other.release(before.lease()).await.unwrap();
    let node = redis.owner_of("lock:job/7").await;
    redis.command(node, &["LPUSH", "lock:job/7", "a"]).await;
    let units = kept("job/8").with_mode(Mode::Units { units: 1, limit: 2 });
    other.acquire(&Claim::new(units)).await.unwrap();
    // The batch contains the same claim twice.
    claims.push(claims[9].clone());

    let attempts = acquire(&backend, &claims).await;

    for (n, attempt) in attempts.iter().enumerate() {
        match n {
            5 | 6 => assert!(matches!(attempt, Ok(Attempt::Held(_))), "{n}: {attempt:?}"),
            7 | 8 => assert_eq!(attempt.as_ref().unwrap_err().kind(), ErrorKind::WrongType),
            _ => assert!(is_granted(attempt), "{n}: {attempt:?}"),
        }
    }
    for (n, released) in release(&backend, &claims[..MANY]).await.into_iter().enumerate() {
        let expected = if (5..=8).contains(&n) { Release::NotHeld } else { Release::Released };
        assert_eq!(released, expected, "{n}");
    }
    assert!(is_granted(&other.acquire(&waits).await));
    assert_eq!(other.release(held.lease()).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn hear_from_a_renewal_on_of_changes_by_others() {
    let redis = three().await;
    let connected = async || connect(&redis.url()).await.unwrap();
    let (backend, other, claims) = (connected().await, connected().await, jobs(MANY));
    acquire(&backend, &claims).await;
    other.request_revocation(claims[3].key(), None).await.unwrap();
    other.force_release(claims[4].key(), None).await.unwrap();
    let node = redis.owner_of("lock:job/5").await;
    redis.command(node, &["SET", "lock:job/5", "another"]).await;

    for (n, renewal) in renew(&backend, &claims).await.into_iter().enumerate() {
        let expected = match n {
            3 => Renewal::RevocationRequested,
            4 => Renewal::Vanished,
            5 => Renewal::Taken,
            _ => Renewal::Renewed,
        };
        assert_eq!(renewal, expected, "{n}");
    }
    let mut watch = backend.watch(Subject::Lease(claims[6].lease()));
    other.force_release(claims[6].key(), None).await.unwrap();
    timeout(LONG, watch.changed()).await.expect("it is told");
}

#[tokio::test]
async fn whose_slot_is_half_way_do_not_stop_the_others() {
    let redis = three().await;
    let (backend, claims) = (connect(&redis.url()).await.unwrap(), jobs(MANY));
    let (slot, from) = (redis.slot_of("lock:job/5").await, redis.owner_of("lock:job/5").await);
    let to = (from + 1) % 3;
    assert!(acquire(&backend, &claims).await.iter().all(is_granted));
    redis.begin_migration(slot, from, to).await;
    assert_eq!(renew(&backend, &claims).await, [Renewal::Renewed; MANY]);
    assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);

    // A new backend uses the shared script for all locks.
    let backend = connect(&redis.url()).await.unwrap();
    for (n, attempt) in acquire(&backend, &claims).await.iter().enumerate() {
        assert_eq!(is_granted(attempt), n != 5, "{n}: {attempt:?}");
    }

    redis.move_keys(slot, from, to).await;
    redis.end_migration(slot, from, to).await;
    let backend = connect(&redis.url()).await.unwrap();
    assert!(acquire(&backend, &claims).await.iter().all(is_granted));
    assert_eq!(redis.owner_of("lock:job/5").await, to);
    assert_eq!(release(&backend, &claims).await, [Release::Released; MANY]);
}

/// Returns the reply of the script on the server `node`: the outcomes of the releases and
/// acquisitions, followed by the spare tokens of the acquisitions.
async fn exchanged(redis: &RedisCluster, node: usize, words: &[&str]) -> Vec<i64> {
    let source = Script::ExchangeBySlot.source();
    let (counts, locks) = words.split_at(2);
    let names = ["lock:~crowd:{", "lock:~fence:{"];
    let words = [&["EVAL", source, "0"], counts, &names, locks].concat();
    let reply = redis.command(node, &words).await;
    let numbers = reply.lines().skip(1).map(|line| line.trim_start_matches(':').parse().unwrap());
    numbers.collect()
}

#[tokio::test]
async fn are_numbered_by_the_counter_of_their_slot() {
    let redis = three().await;
    let node = redis.owner_of("lock:{a}").await;
    let acquire = async || {
        redis.command(node, &["DEL", "lock:{a}"]).await;
        exchanged(&redis, node, &["0", "60000", "lock:{a}", "id", "a}"]).await
    };
    let fence = async |words: &[&str]| {
        let command = words[..1].iter().chain(&["lock:~fence:{a}"]).chain(&words[1..]);
        redis.command(node, &command.copied().collect::<Vec<_>>()).await
    };

    let [first, spare] = acquire().await[..].try_into().unwrap();
    assert!(first > 1_700_000_000_000_000 && spare == 0, "nothing is known of the last grant");
    let [second, spare] = acquire().await[..].try_into().unwrap();
    assert!(second > first && (0..65_536).contains(&spare));
    assert!(fence(&["GET"]).await.ends_with(&(second + spare).to_string()));

    // The counter is ahead of the clock, too large, or not a number. The script for a single lock
    // handles these cases.
    for unusable in ["8000000000000000", "9007199254740992", "no number"] {
        fence(&["SET", unusable]).await;
        assert_eq!(acquire().await, [0, 0], "{unusable}");
        assert!(fence(&["GET"]).await.ends_with(unusable));
        assert_eq!(redis.command(node, &["EXISTS", "lock:{a}"]).await, ":0");
    }
    fence(&["DEL"]).await;
    fence(&["LPUSH", "a"]).await;
    assert_eq!(acquire().await, [0, 0], "a list");
    assert_eq!(fence(&["LLEN"]).await, ":1");
}

#[tokio::test]
async fn are_left_as_they_are_by_a_server_that_does_not_have_them() {
    let redis = three().await;
    let node = redis.owner_of("lock:{a}").await;
    let words = ["1", "60000", "lock:{a}", "id", "a}", "lock:{a}", "id", "a}"];
    redis.command(node, &["SET", "lock:{a}", "id"]).await;

    assert_eq!(exchanged(&redis, (node + 1) % 3, &words).await, [-1, -1, 0, 0]);
    assert_eq!(redis.command(node, &["EXISTS", "lock:{a}", "lock:~fence:{a}"]).await, ":1");

    redis.command(node, &["ZADD", "lock:~crowd:{a}", "1", "lock:{a}"]).await;
    assert_eq!(exchanged(&redis, node, &words).await, [0, 0, 0, 0], "others may be involved");
    redis.command(node, &["DEL", "lock:~crowd:{a}"]).await;
    let [released, token, none, spare] =
        exchanged(&redis, node, &words).await[..].try_into().unwrap();
    assert_eq!((released, none, spare), (1, 0, 0));
    assert!(token > 1_700_000_000_000_000);
}
