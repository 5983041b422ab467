//! Tests of a server as a member of a quorum. The server has a vote only while it is certain to have
//! kept all data that it has confirmed.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, Grant, JoinRequest, Lease, LockBackend, Member as _, MemberStatus, Mode,
    QuorumConfiguration, Renewal, StoreAdmin as _, StoreId, Vote,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_testbed::{Redis, RedisOptions, until};

use super::connect;
use super::rights::{DOCUMENTED, OF_DURABLE_MEMBERS, OF_MEMBERS};
use crate::{Backend, Config};

const TTL: Duration = Duration::from_secs(60);

fn configuration() -> QuorumConfiguration {
    QuorumConfiguration::new(["a", "b", "c"], TTL)
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL)
}

fn vote(lease: &Lease) -> Vote {
    Vote::new(Claim::new(lease.clone()), configuration())
}

fn granted(attempt: Attempt) -> Grant {
    match attempt {
        Attempt::Granted(grant) => grant,
        Attempt::Held(contention) => panic!("held: {contention:?}"),
    }
}

/// Sends a vote for a key that no other claim needs.
async fn send_vote(backend: &Backend) -> Result<Grant, Error> {
    backend.vote(&vote(&lease("vote"))).await.map(granted)
}

async fn assert_has_no_vote(backend: &Backend) {
    let error = send_vote(backend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

async fn status(backend: &Backend) -> MemberStatus {
    backend.status(StoreId::new()).await.unwrap()
}

async fn join(backend: &Backend) -> MemberStatus {
    let id = status(backend).await.store();
    let status = backend.join(&JoinRequest::new(id, configuration())).await.unwrap();
    assert_eq!((status.store(), status.configuration()), (id, Some(&configuration())));
    status
}

/// Kills the server and starts it again, so that clients open new connections.
async fn start_again(redis: &mut Redis, backend: &Backend) {
    redis.restart().await;
    // The first call on the closed connection fails.
    drop(backend.inspect(&LockKey::new("vote").unwrap()).await);
}

#[tokio::test]
async fn a_member_with_an_old_snapshot_has_no_vote() {
    let mut redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = join(&backend).await;
    redis.command(&["SAVE"]).await;
    send_vote(&backend).await.unwrap();

    start_again(&mut redis, &backend).await;

    assert_has_no_vote(&backend).await;
    let after = status(&backend).await;
    assert_ne!(after.store(), before.store());
    assert_eq!(after.configuration(), None);
    assert!(after.age() < before.age() + TTL);
    assert_has_no_vote(&backend).await;
}

#[tokio::test]
async fn a_durable_member_keeps_its_vote_after_a_restart() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = join(&backend).await;
    let held = lease("held");
    let token = granted(backend.vote(&vote(&held)).await.unwrap()).token();

    start_again(&mut redis, &backend).await;

    // No client has requested the membership status of the new process yet.
    assert_has_no_vote(&backend).await;
    let after = status(&backend).await;
    assert_eq!((after.store(), after.configuration()), (before.store(), Some(&configuration())));
    assert!(after.min_token() >= token);
    assert!(send_vote(&backend).await.unwrap().token() > token);
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
}

#[tokio::test]
async fn the_minimum_token_is_the_last_token_of_a_grant() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    join(&backend).await;
    // The server needs the time of a previous grant to reserve spare tokens.
    send_vote(&backend).await.unwrap();

    let claim = Claim::new(lease("spare")).with_spare_tokens(100);
    let grant = granted(backend.vote(&Vote::new(claim, configuration())).await.unwrap());

    assert!(grant.spare_tokens() > 0);
    let last = grant.token() + u64::from(grant.spare_tokens());
    assert_eq!(status(&backend).await.min_token(), last);
}

#[tokio::test]
async fn a_member_that_was_durable_only_at_the_end_has_no_vote() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let backend = connect(&redis.url()).await.unwrap();
    redis.command(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    let before = join(&backend).await;
    redis.command(&["CONFIG", "SET", "appendfsync", "always"]).await;
    assert_eq!(status(&backend).await.store(), before.store());

    start_again(&mut redis, &backend).await;

    let after = status(&backend).await;
    assert_ne!(after.store(), before.store());
    assert_eq!(after.configuration(), None);
}

#[tokio::test]
async fn a_member_that_is_no_longer_durable_has_no_vote() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = join(&backend).await;

    start_again(&mut redis, &backend).await;
    redis.command(&["CONFIG", "SET", "appendfsync", "everysec"]).await;

    let after = status(&backend).await;
    assert_ne!(after.store(), before.store());
    assert_eq!(after.configuration(), None);
}

#[tokio::test]
async fn a_flushed_member_has_no_vote() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = join(&backend).await;
    send_vote(&backend).await.unwrap();

    redis.command(&["FLUSHALL"]).await;

    assert_has_no_vote(&backend).await;
    // A join request with the lost identity does not restore this identity.
    let late = JoinRequest::new(before.store(), configuration()).with_min_token(1 << 52);
    let after = backend.join(&late).await.unwrap();
    assert_ne!(after.store(), before.store());
    assert_eq!((after.configuration(), after.min_token()), (None, 0));
    assert_has_no_vote(&backend).await;
}

#[tokio::test]
async fn a_member_without_its_minimum_token_has_no_vote() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = join(&backend).await;

    redis.command(&["DEL", "lock:~floor"]).await;

    assert_has_no_vote(&backend).await;
    assert_eq!(redis.command(&["GET", "lock:vote"]).await, "$-1");
    assert_ne!(status(&backend).await.store(), before.store());
}

#[tokio::test]
async fn tokens_of_votes_and_of_other_claims_increase_together() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let min_token = join(&backend).await.min_token() + (1 << 52);
    let store = status(&backend).await.store();
    let request = JoinRequest::new(store, configuration()).with_min_token(min_token);
    let held = lease("held");
    let claim = Claim::new(held.clone());
    let mut last = granted(backend.acquire(&claim).await.unwrap()).token();
    assert_eq!(backend.join(&request).await.unwrap().min_token(), min_token);

    let claim = claim.with_spare_tokens(1_000);
    for is_vote in [true, false, true] {
        let attempt = if is_vote {
            backend.vote(&Vote::new(claim.clone(), configuration())).await
        } else {
            backend.acquire(&claim).await
        };
        let grant = granted(attempt.unwrap());

        assert!(grant.token() > last, "{} after {last}", grant.token());
        last = grant.token() + u64::from(grant.spare_tokens());
        assert!(last > min_token);
    }

    last += 1_000_000;
    assert_eq!(backend.raise(&held, last).await.unwrap(), Renewal::Renewed);
    let of_claim = granted(backend.acquire(&Claim::new(held)).await.unwrap()).token();
    assert!(of_claim > last, "{of_claim} after the minimum token {last}");
    let of_another_key = granted(backend.vote(&vote(&lease("other"))).await.unwrap()).token();
    assert!(of_another_key > last);
    assert!(status(&backend).await.min_token() >= of_another_key);
}

/// Sends one request of each type that only members support.
async fn all_operations(backend: &Backend) -> Result<(), Error> {
    let id = backend.status(StoreId::new()).await?.store();
    backend.join(&JoinRequest::new(id, configuration())).await?;
    let token = send_vote(backend).await?.token();
    backend.raise(&lease("vote"), token).await.map(drop)
}

async fn redis_with(rights: &str, default_user: &str) -> (Redis, Backend) {
    let user = format!("user locker on >secret {DOCUMENTED} {rights}");
    let redis = RedisOptions::new().append_only().acl(default_user).acl(user).start().await;
    let backend = connect(&format!("redis://locker:secret@{}", redis.address())).await.unwrap();
    (redis, backend)
}

#[tokio::test]
async fn a_member_requires_additional_permissions() {
    for right in OF_MEMBERS.split(' ') {
        let (_redis, backend) =
            redis_with(&OF_MEMBERS.replace(right, ""), "user default off").await;
        let error = all_operations(&backend).await.expect_err(right);
        assert_eq!(error.kind(), ErrorKind::Denied, "without {right}: {error}");
    }
}

#[tokio::test]
async fn a_member_that_cannot_read_its_settings_is_not_durable() {
    // A server runs the scripts in its append-only file as the default user.
    const OFF: &str = "user default off ~* &* +@all";
    let of_all = format!("{OF_MEMBERS} {OF_DURABLE_MEMBERS}");
    for (rights, default_user, keeps_its_vote) in [
        (&*of_all, OFF, true),
        (OF_MEMBERS, OFF, false),
        (&of_all.replace("+config|get", ""), OFF, false),
    ] {
        let (mut redis, backend) = redis_with(rights, default_user).await;
        all_operations(&backend).await.unwrap();
        let before = status(&backend).await;

        start_again(&mut redis, &backend).await;

        let after = status(&backend).await;
        assert_eq!(after.store() == before.store(), keeps_its_vote, "with {rights}");
    }
}

#[tokio::test]
async fn a_server_that_skips_scripts_in_its_append_only_file_is_not_durable() {
    let all = format!("{OF_MEMBERS} {OF_DURABLE_MEMBERS}");
    let default_user = "user default on nopass ~* &* +ping +bgrewriteaof +info";
    let (mut redis, backend) = redis_with(&all, default_user).await;
    let before = join(&backend).await;
    // After the rewrite, the identity is in the snapshot at the beginning of the file, and the vote
    // follows the snapshot.
    redis.command(&["BGREWRITEAOF"]).await;
    until("the file is rewritten", async || {
        let state = redis.command(&["INFO", "persistence"]).await;
        let is_over = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
        is_over.iter().all(|it| state.contains(it))
            && !state.contains("aof_last_rewrite_time_sec:-1")
    })
    .await;
    let token = send_vote(&backend).await.unwrap().token();

    start_again(&mut redis, &backend).await;

    let after = status(&backend).await;
    let version = redis.command(&["INFO", "server"]).await;
    let [redis_6, valkey_9] =
        ["redis_version:6.", "valkey_version:9."].map(|it| version.contains(it));
    // The backend relies only on the file of Redis 6, although Valkey 9.1 does not skip scripts
    // either.
    assert_eq!(after.store() == before.store(), redis_6);
    assert_eq!(after.min_token() >= token, redis_6 || valkey_9);
}

#[tokio::test]
async fn only_a_single_server_is_a_member_and_grants_only_mutexes() {
    let lazily = |url: &str| Backend::connect_lazily(Config::from_url(url).unwrap());
    let single = lazily("redis://127.0.0.1:1");
    assert!(single.member().is_some());
    let permit = lease("job").with_mode(Mode::Units { units: 1, limit: 2 });
    let unsupported = |error: Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");

    unsupported(single.vote(&vote(&permit)).await.unwrap_err());
    unsupported(single.raise(&permit, 1).await.unwrap_err());
    for url in ["redis-sentinel://127.0.0.1:1/name", "redis-cluster://127.0.0.1:1"] {
        let several = lazily(url);
        assert!(several.member().is_none());
        unsupported(several.vote(&vote(&lease("job"))).await.unwrap_err());
        unsupported(several.raise(&lease("job"), 1).await.unwrap_err());
        unsupported(several.status(StoreId::new()).await.unwrap_err());
    }
}
