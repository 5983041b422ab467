//! A server as a member of a quorum: it has a vote only while it has surely kept all that it answered.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Charter, Claim, Enlistment, Feature, Grant, Lease, LockBackend, Renewal, Share,
    Standing, StoreId,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_testbed::{Redis, RedisOptions, until};

use super::connect;
use super::rights::{DOCUMENTED, OF_DURABLE_MEMBERS, OF_MEMBERS};
use crate::{Backend, Config};

const TTL: Duration = Duration::from_secs(60);

fn charter() -> Charter {
    Charter::new(["a", "b", "c"], TTL)
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL)
}

fn claim(lease: &Lease) -> Claim {
    Claim::new(lease.clone()).with_charter(charter())
}

async fn attempt(backend: &Backend, claim: &Claim) -> Result<Grant, Error> {
    match backend.try_acquire(claim).await? {
        Attempt::Granted(grant) => Ok(grant),
        Attempt::Held(contention) => panic!("held: {contention:?}"),
    }
}

/// A grant of a key of its own.
async fn vote(backend: &Backend) -> Result<Grant, Error> {
    attempt(backend, &claim(&lease("vote"))).await.inspect(|grant| assert!(grant.token() > 0))
}

async fn assert_has_no_vote(backend: &Backend) {
    let error = vote(backend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

async fn standing(backend: &Backend) -> Standing {
    backend.standing(StoreId::new()).await.unwrap()
}

async fn enlist(backend: &Backend) -> Standing {
    let id = standing(backend).await.store();
    let enlisted = backend.enlist(&Enlistment::new(id, charter())).await.unwrap();
    assert_eq!((enlisted.store(), enlisted.charter()), (id, Some(&charter())));
    enlisted
}

/// Kills the server, and starts it again. Clients come over new connections then.
async fn start_again(redis: &mut Redis, backend: &Backend) {
    redis.restart().await;
    // The call that finds that the connection has ended fails.
    drop(backend.inspect(&LockKey::new("vote").unwrap()).await);
}

#[tokio::test]
async fn an_older_picture_of_a_member_has_no_vote() {
    let mut redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = enlist(&backend).await;
    redis.command(&["SAVE"]).await;
    vote(&backend).await.unwrap();

    start_again(&mut redis, &backend).await;

    assert_has_no_vote(&backend).await;
    let after = standing(&backend).await;
    assert_ne!(after.store(), before.store());
    assert_eq!(after.charter(), None);
    assert!(after.age() < before.age() + TTL);
    assert_has_no_vote(&backend).await;
}

#[tokio::test]
async fn a_durable_member_keeps_its_vote_over_a_restart() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = enlist(&backend).await;
    let held = lease("held");
    let token = attempt(&backend, &claim(&held)).await.unwrap().token();

    start_again(&mut redis, &backend).await;

    // No client has asked the new process for its standing yet.
    assert_has_no_vote(&backend).await;
    let after = standing(&backend).await;
    assert_eq!((after.store(), after.charter()), (before.store(), Some(&charter())));
    assert!(after.floor() >= token);
    assert!(vote(&backend).await.unwrap().token() > token);
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
}

#[tokio::test]
async fn the_floor_is_the_last_token_of_a_grant() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    enlist(&backend).await;
    // From now on, the time since the last grant is known.
    vote(&backend).await.unwrap();

    let grant = attempt(&backend, &claim(&lease("spare")).with_spare_tokens(100)).await.unwrap();

    assert!(grant.spare_tokens() > 0);
    let last = grant.token() + u64::from(grant.spare_tokens());
    assert_eq!(standing(&backend).await.floor(), last);
}

#[tokio::test]
async fn a_member_that_was_durable_only_at_the_end_has_no_vote() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let backend = connect(&redis.url()).await.unwrap();
    redis.command(&["CONFIG", "SET", "appendfsync", "everysec"]).await;
    let before = enlist(&backend).await;
    redis.command(&["CONFIG", "SET", "appendfsync", "always"]).await;
    assert_eq!(standing(&backend).await.store(), before.store());

    start_again(&mut redis, &backend).await;

    let after = standing(&backend).await;
    assert_ne!(after.store(), before.store());
    assert_eq!(after.charter(), None);
}

#[tokio::test]
async fn a_member_that_is_durable_no_more_has_no_vote() {
    let mut redis = RedisOptions::new().append_only().start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = enlist(&backend).await;

    start_again(&mut redis, &backend).await;
    redis.command(&["CONFIG", "SET", "appendfsync", "everysec"]).await;

    let after = standing(&backend).await;
    assert_ne!(after.store(), before.store());
    assert_eq!(after.charter(), None);
}

#[tokio::test]
async fn a_flush_takes_the_vote_at_once() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = enlist(&backend).await;
    vote(&backend).await.unwrap();

    redis.command(&["FLUSHALL"]).await;

    assert_has_no_vote(&backend).await;
    // The identity that was lost does not come back by an enlistment that was for it.
    let late = Enlistment::new(before.store(), charter()).with_floor(1 << 52);
    let after = backend.enlist(&late).await.unwrap();
    assert_ne!(after.store(), before.store());
    assert_eq!((after.charter(), after.floor()), (None, 0));
    assert_has_no_vote(&backend).await;
}

#[tokio::test]
async fn a_member_without_its_floor_has_no_vote() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let before = enlist(&backend).await;

    redis.command(&["DEL", "lock:~floor"]).await;

    assert_has_no_vote(&backend).await;
    assert_eq!(redis.command(&["GET", "lock:vote"]).await, "$-1");
    assert_ne!(standing(&backend).await.store(), before.store());
}

#[tokio::test]
async fn tokens_with_and_without_a_charter_are_in_one_order() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let floor = enlist(&backend).await.floor() + (1 << 52);
    let raised = Enlistment::new(standing(&backend).await.store(), charter()).with_floor(floor);
    let held = lease("held");
    let mut last = attempt(&backend, &Claim::new(held.clone())).await.unwrap().token();
    assert_eq!(backend.enlist(&raised).await.unwrap().floor(), floor);

    for claim in [claim(&held), Claim::new(held.clone()), claim(&held)] {
        let grant = attempt(&backend, &claim.with_spare_tokens(1_000)).await.unwrap();

        assert!(grant.token() > last, "{} after {last}", grant.token());
        last = grant.token() + u64::from(grant.spare_tokens());
        assert!(last > floor);
    }

    last += 1_000_000;
    assert_eq!(backend.renew(&held.clone().with_floor(last)).await.unwrap(), Renewal::Renewed);
    let without = attempt(&backend, &Claim::new(held)).await.unwrap().token();
    assert!(without > last, "{without} after the floor {last}");
    let of_another_key = attempt(&backend, &claim(&lease("other"))).await.unwrap();
    assert!(of_another_key.token() > last);
    assert!(standing(&backend).await.floor() >= of_another_key.token());
}

/// Makes each request that only members answer.
async fn all_operations(backend: &Backend) -> Result<(), Error> {
    let id = backend.standing(StoreId::new()).await?.store();
    backend.enlist(&Enlistment::new(id, charter())).await?;
    let token = vote(backend).await?.token();
    backend.renew(&lease("vote").with_floor(token)).await.map(drop)
}

async fn redis_with(rights: &str, default_user: &str) -> (Redis, Backend) {
    let user = format!("user locker on >secret {DOCUMENTED} {rights}");
    let redis = RedisOptions::new().append_only().acl(default_user).acl(user).start().await;
    let backend = connect(&format!("redis://locker:secret@{}", redis.address())).await.unwrap();
    (redis, backend)
}

#[tokio::test]
async fn a_member_takes_rights_of_its_own() {
    for right in OF_MEMBERS.split(' ') {
        let (_redis, backend) =
            redis_with(&OF_MEMBERS.replace(right, ""), "user default off").await;
        let error = all_operations(&backend).await.expect_err(right);
        assert_eq!(error.kind(), ErrorKind::Denied, "without {right}: {error}");
    }
}

#[tokio::test]
async fn a_member_that_may_not_tell_its_settings_is_not_durable() {
    // As the default user, a server executes the scripts in its file.
    const OFF: &str = "user default off ~* &* +@all";
    let of_all = format!("{OF_MEMBERS} {OF_DURABLE_MEMBERS}");
    for (rights, default_user, keeps_its_vote) in [
        (&*of_all, OFF, true),
        (OF_MEMBERS, OFF, false),
        (&of_all.replace("+config|get", ""), OFF, false),
    ] {
        let (mut redis, backend) = redis_with(rights, default_user).await;
        all_operations(&backend).await.unwrap();
        let before = standing(&backend).await;

        start_again(&mut redis, &backend).await;

        let after = standing(&backend).await;
        assert_eq!(after.store() == before.store(), keeps_its_vote, "with {rights}");
    }
}

#[tokio::test]
async fn a_server_that_skips_scripts_in_its_file_is_not_durable() {
    let all = format!("{OF_MEMBERS} {OF_DURABLE_MEMBERS}");
    let default_user = "user default on nopass ~* &* +ping +bgrewriteaof +info";
    let (mut redis, backend) = redis_with(&all, default_user).await;
    let before = enlist(&backend).await;
    // The identity moves to the picture at the beginning of the file, and votes go behind that.
    redis.command(&["BGREWRITEAOF"]).await;
    until("the file is written anew", async || {
        let state = redis.command(&["INFO", "persistence"]).await;
        let is_over = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
        is_over.iter().all(|it| state.contains(it))
            && !state.contains("aof_last_rewrite_time_sec:-1")
    })
    .await;
    let token = vote(&backend).await.unwrap().token();

    start_again(&mut redis, &backend).await;

    let after = standing(&backend).await;
    let version = redis.command(&["INFO", "server"]).await;
    let [redis_6, valkey_9] =
        ["redis_version:6.", "valkey_version:9."].map(|it| version.contains(it));
    // The backend trusts the file of Redis 6 only. Valkey 9.1 does not skip scripts either.
    assert_eq!(after.store() == before.store(), redis_6);
    assert_eq!(after.floor() >= token, redis_6 || valkey_9);
}

#[tokio::test]
async fn only_mutexes_of_a_single_server_are_granted_under_a_charter() {
    let lazily = |url: &str| Backend::connect_lazily(Config::from_url(url).unwrap());
    let single = lazily("redis://127.0.0.1:1");
    assert!(single.capabilities().supports(Feature::Membership));
    let units = lease("job").with_share(Share::Units { units: 1, limit: 2 });
    let unsupported = |error: Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");

    unsupported(single.try_acquire(&claim(&units)).await.unwrap_err());
    unsupported(single.try_acquire_all(&[claim(&lease("job"))]).await.unwrap_err());
    for url in ["redis-sentinel://127.0.0.1:1/name", "redis-cluster://127.0.0.1:1"] {
        let several = lazily(url);
        assert!(!several.capabilities().supports(Feature::Membership));
        unsupported(several.try_acquire(&claim(&lease("job"))).await.unwrap_err());
        unsupported(several.standing(StoreId::new()).await.unwrap_err());
    }
}
