//! Tests of users, passwords, permissions and TLS.

use std::time::Duration;

use leasehold_core::backend::{
    Claim, Feature, Lease, LockBackend, Mode, Patience, StoreAdmin as _,
};
use leasehold_core::retry::Retry;
use leasehold_core::{Description, Error, ErrorKind, LockClient, LockKey, TryLockError};
use leasehold_testbed::{
    ClusterOptions, FaultProxy, NetworkFault, Redis, RedisOptions, RedisSentinel, SentinelOptions,
    until,
};

use super::rights::{DOCUMENTED, OF_CLUSTERS, OF_LISTS};
use super::{connect, connect_by_default};
use crate::Backend;

const SECRET: &str = "S3CR3T-CANARY";

/// More holders than a server stores in one allocation.
const HOLDERS: u32 = 600;

/// The commands that locks of all kinds use.
const COMMANDS: [&str; 22] = [
    "evalsha",
    "eval",
    "get",
    "set",
    "del",
    "exists",
    "pexpire",
    "pttl",
    "time",
    "unlink",
    "zadd",
    "zrem",
    "zcard",
    "zscore",
    "zrank",
    "zrange",
    "zrangebyscore",
    "hset",
    "hget",
    "hmget",
    "hdel",
    "hincrby",
];

async fn redis_with(rules: &str) -> Redis {
    let user = format!("user locker on >{SECRET} {rules}");
    RedisOptions::new().acl("user default off").acl(user).start().await
}

fn url(redis: &Redis, user: &str, password: &str) -> String {
    format!("redis://{user}:{password}@{}", redis.address())
}

async fn all_operations(backend: &Backend) -> Result<(), Error> {
    let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(60));
    backend.acquire(&Claim::new(lease.clone())).await?;
    backend.renew(&lease).await?;
    backend.inspect(lease.key()).await?;
    backend.request_revocation(lease.key(), None).await?;
    backend.force_release(lease.key(), None).await?;
    backend.release(&lease).await?;

    let units = |ttl| {
        let lease = Lease::new(&LockKey::new("units").unwrap(), Duration::from_millis(ttl));
        lease.with_mode(Mode::Units { units: 1, limit: 1 })
    };
    let (held, waits, leaves) = (units(60_000), units(60_000), units(60_000));
    backend.acquire(&Claim::new(held.clone())).await?;
    for waiter in [&waits, &leaves] {
        let queued = Claim::new(waiter.clone());
        let queued = queued.with_patience(Patience::Queues(Duration::from_secs(60)));
        backend.acquire(&queued).await?;
    }
    backend.release(&leaves).await?;
    backend.acquire(&Claim::new(units(60_000))).await?;
    backend.inspect(held.key()).await?;
    backend.renew(&held.clone().with_description(Description::new("x").ok())).await?;
    backend.request_revocation(held.key(), None).await?;
    backend.release(&waits).await?;
    backend.release(&held).await?;
    backend.acquire(&Claim::new(held.clone())).await?;
    backend.force_release(held.key(), None).await?;

    let several = ["one", "other"].map(|name| {
        let lease = Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(60));
        Claim::new(lease).with_patience(Patience::Queues(Duration::from_secs(60)))
    });
    if backend.capabilities().supports(Feature::Together) {
        backend.acquire_all(&several).await?;
    }
    for claim in &several {
        backend.release(claim.lease()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_documented_rules_are_enough_and_no_more() {
    let redis = redis_with(DOCUMENTED).await;
    let backend = connect(&url(&redis, "locker", SECRET)).await.unwrap();

    all_operations(&backend).await.unwrap();
    assert!(backend.capabilities().supports(Feature::Push));

    for needless in COMMANDS {
        let redis = redis_with(&format!("{DOCUMENTED} -{needless}")).await;
        let backend = connect(&url(&redis, "locker", SECRET)).await.unwrap();
        let error = all_operations(&backend).await.expect_err(needless);
        assert_eq!(error.kind(), ErrorKind::Denied, "without {needless}: {error}");
    }
}

#[tokio::test]
async fn listing_keys_takes_a_right() {
    let redis = redis_with(&format!("{DOCUMENTED} {OF_LISTS}")).await;
    let backend = connect(&url(&redis, "locker", SECRET)).await.unwrap();
    let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(60));
    backend.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert_eq!(backend.list("", None).await.unwrap().keys(), [lease.key().clone()]);

    let redis = redis_with(DOCUMENTED).await;
    let backend = connect(&url(&redis, "locker", SECRET)).await.unwrap();
    assert_eq!(backend.list("", None).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn users_of_one_url_exclude_each_other_whatever_their_sessions_are_like() {
    let options = RedisOptions::new()
        .acl(format!("user one on >{SECRET} {DOCUMENTED} +select"))
        .acl(format!("user other on >{SECRET} {DOCUMENTED} +select -client -publish -mget"));
    let redis = options.start().await;
    let name = "job";
    for database in ["", "/0", "/1"] {
        let urls = ["one", "other", "default"].map(|user| {
            let password = if user == "default" { "" } else { SECRET };
            format!("{}{database}", url(&redis, user, password))
        });
        let sessions = ["", "?protocol=resp2", "?push=off"];
        for (holder, other) in [(0, 1), (1, 2), (2, 0)] {
            for session in sessions {
                let client = async |url: String| LockClient::new(connect(&url).await.unwrap());
                let holder = client(format!("{}{session}", urls[holder])).await;
                let guard = holder.mutex(name).unwrap().lock().await.unwrap();
                for session in sessions {
                    let other = client(format!("{}{session}", urls[other])).await;
                    let attempt = other.mutex(name).unwrap().try_lock().await.unwrap_err();
                    assert!(attempt.into_busy().is_ok(), "{database} {session}: both hold");
                }
                guard.release().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_list_names_locks_that_its_user_may_not_read() {
    let rules = format!("{DOCUMENTED} {OF_LISTS} resetkeys ~lock:ours*");
    let redis = RedisOptions::new().acl(format!("user locker on >{SECRET} {rules}")).start().await;
    redis.command(&["SET", "lock:theirs", "x"]).await;
    let backend = connect(&url(&redis, "locker", SECRET)).await.unwrap();

    let listed = backend.list("", None).await.unwrap();

    assert_eq!(listed.keys(), [LockKey::new("theirs").unwrap()]);
    assert_eq!(backend.inspect(&listed.keys()[0]).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn choosing_a_database_takes_a_right() {
    let redis = redis_with(&format!("{DOCUMENTED} +select")).await;
    let backend = connect(&format!("{}/1", url(&redis, "locker", SECRET))).await.unwrap();
    all_operations(&backend).await.unwrap();

    let redis = redis_with(DOCUMENTED).await;
    let error = connect(&format!("{}/1", url(&redis, "locker", SECRET))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("+select"), "{error}");
}

#[tokio::test]
async fn forced_release_frees_many_holders_in_the_background() {
    let redis = Redis::start().await;
    let backend = connect(&redis.url()).await.unwrap();
    let key = LockKey::new("units").unwrap();
    for _ in 0..HOLDERS {
        let lease = Lease::new(&key, Duration::from_secs(60));
        let lease = lease.with_mode(Mode::Units { units: 1, limit: HOLDERS });
        backend.acquire(&Claim::new(lease)).await.unwrap();
    }

    backend.force_release(&key, None).await.unwrap();

    until("the holders are freed", async || {
        let memory = redis.command(&["INFO", "memory"]).await;
        let freed = memory.lines().find_map(|line| line.strip_prefix("lazyfreed_objects:"));
        freed.expect("every server counts them").trim_end() != "0"
    })
    .await;
}

#[tokio::test]
async fn without_the_right_to_news_waiters_poll() {
    let redis = redis_with(&DOCUMENTED.replace("+client|tracking", "")).await;
    let connect = async || LockClient::new(connect(&url(&redis, "locker", SECRET)).await.unwrap());
    let (holder, client) = (connect().await, connect().await);
    assert!(!client.backend().capabilities().supports(Feature::Push));
    let guard = holder.mutex("job").unwrap().lock().await.unwrap();
    let poll = client.options().retry(Retry::unlimited().every(Duration::from_millis(20)));
    let mutex = client.mutex("job").unwrap().with_options(poll).unwrap();

    let waiting = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(10)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();

    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn wrong_credentials_and_rights_are_denied_at_once() {
    let redis = redis_with(DOCUMENTED).await;
    for (user, password) in [("locker", "wrong"), ("stranger", SECRET), ("", "")] {
        let url = match user {
            "" => redis.url(),
            user => url(&redis, user, password),
        };
        let error = connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{user}: {error}");
        assert!(!error.is_retryable());
    }

    // The user has permission only for keys with a different prefix.
    let redis = redis_with(&DOCUMENTED.replace("~lock:*", "~other:*")).await;
    let backend = connect(&url(&redis, "locker", SECRET)).await.unwrap();
    let error = all_operations(&backend).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn rights_that_are_taken_away_are_missed_and_those_given_back_used() {
    let redis = RedisOptions::new()
        .acl("user default on nopass ~* &* +@all")
        .acl(format!("user locker on >{SECRET} {DOCUMENTED}"))
        .start()
        .await;
    let client = LockClient::new(connect(&url(&redis, "locker", SECRET)).await.unwrap());
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    redis.command(&["ACL", "SETUSER", "locker", "-pexpire"]).await;

    let error = guard.extend(Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(guard.is_held(), "a refused renewal is no loss");

    redis.command(&["ACL", "SETUSER", "locker", "+pexpire"]).await;
    guard.extend(Duration::from_secs(60)).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn no_error_and_no_debug_output_shows_the_password() {
    let redis = redis_with(DOCUMENTED).await;
    let proxy = FaultProxy::start(redis.address()).await;
    let with_proxy = format!("redis://locker:{SECRET}@{}?timeout-ms=300", proxy.address());
    let backend = connect_by_default(&with_proxy).await;
    let client = LockClient::new(backend.clone());
    let mut shown = vec![format!("{backend:?} {client:?} {:?}", client.mutex("job").unwrap())];
    let mut show = |error: Error| {
        let source = std::error::Error::source(&error).map(|source| format!("{source} {source:?}"));
        shown.push(format!("{error} {error:?} {error:#?} {source:?}"));
    };

    for fault in [NetworkFault::BlackHole, NetworkFault::Reset] {
        proxy.set_network_fault(fault);
        for _ in 0..5 {
            show(all_operations(&backend).await.unwrap_err());
        }
    }
    for url in [
        url(&redis, "locker", &format!("{SECRET}x")),
        url(&redis, SECRET, "wrong"),
        format!("redis://:{SECRET}@127.0.0.1:1"),
        format!("redis://:{SECRET}@no.such.host.invalid"),
        format!("redis://:{SECRET}@{}/99", redis.address()),
        format!("redis://:{SECRET}@{}/x", redis.address()),
        format!("rediss://:{SECRET}@{}", redis.address()),
    ] {
        show(connect(&url).await.unwrap_err());
    }

    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
}

mod with_sentinel {
    use super::*;

    const OF_SENTINELS: &str = "resetkeys resetchannels -@all +sentinel|master +sentinel|myid \
        +sentinel|sentinels +subscribe &+switch-master";

    async fn redis_with(rules: &str, of_sentinels: &str) -> RedisSentinel {
        let user = format!("user locker on >{SECRET} {rules}");
        let redis = SentinelOptions::new()
            .nodes(RedisOptions::new().acl("user default off").acl(user))
            .start()
            .await;
        for sentinel in 0..3 {
            let password = format!(">{SECRET}");
            let mut command = vec!["ACL", "SETUSER", "watcher", "on", &password];
            command.extend(of_sentinels.split(' '));
            let reply = redis.sentinel_command(sentinel, &command).await;
            assert_eq!(reply, "+OK");
        }
        redis
    }

    fn url(redis: &RedisSentinel, parameters: &str) -> String {
        let url = redis.url().replace("://", &format!("://locker:{SECRET}@"));
        format!("{url}?sentinel-user=watcher&sentinel-pass={SECRET}{parameters}")
    }

    #[tokio::test]
    async fn the_documented_rules_are_enough() {
        let redis = redis_with(DOCUMENTED, OF_SENTINELS).await;
        let backend = connect(&url(&redis, "")).await.unwrap();

        all_operations(&backend).await.unwrap();
        assert!(backend.capabilities().supports(Feature::Push));
        let error = connect(&url(&redis, "").replace("watcher", "stranger")).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Denied);
    }

    #[tokio::test]
    async fn sentinels_say_nothing_to_users_without_the_right() {
        for needless in ["sentinel|master", "sentinel|myid", "subscribe"] {
            let rules = OF_SENTINELS.replace(&format!("+{needless} "), "");
            let redis = redis_with(DOCUMENTED, &rules).await;

            let error = connect(&url(&redis, "")).await.expect_err(needless);

            assert_eq!(error.kind(), ErrorKind::Denied, "without {needless}: {error}");
        }
    }

    #[tokio::test]
    async fn waiting_for_replicas_is_a_right_of_its_own() {
        for (right, granted) in [(" +wait", true), ("", false)] {
            let redis = redis_with(&format!("{DOCUMENTED}{right}"), OF_SENTINELS).await;
            let url = url(&redis, "&wait-replicas=majority&wait-replicas-ms=5000");
            let backend = connect(&url).await.unwrap();

            let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(60));
            let attempt = backend.acquire(&Claim::new(lease.clone())).await;

            match attempt {
                Ok(_) => assert!(granted),
                Err(error) => {
                    assert!(!granted, "{error}");
                    assert_eq!(error.kind(), ErrorKind::Denied);
                    let left = backend.inspect(lease.key()).await.unwrap();
                    assert!(left.holders().is_empty());
                }
            }
        }
    }
}

mod in_a_cluster {
    use super::*;

    async fn redis_with(rules: &str) -> leasehold_testbed::RedisCluster {
        let user = format!("user locker on >{SECRET} {DOCUMENTED} {rules}");
        ClusterOptions::new()
            .nodes(RedisOptions::new().acl("user default off").acl(user))
            .start()
            .await
    }

    fn url(redis: &leasehold_testbed::RedisCluster, parameters: &str) -> String {
        let url = redis.url().replace("://", &format!("://locker:{SECRET}@"));
        format!("{url}{parameters}")
    }

    #[tokio::test]
    async fn the_documented_rules_are_enough_and_users_without_the_map_are_denied() {
        let redis = redis_with(OF_CLUSTERS).await;
        let backend = connect(&url(&redis, "")).await.unwrap();
        all_operations(&backend).await.unwrap();
        assert!(backend.capabilities().supports(Feature::Push));

        for rules in ["+asking +cluster|nodes", "+asking +cluster|slots"] {
            let redis = redis_with(rules).await;
            let error = connect(&url(&redis, "")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        }
    }

    #[tokio::test]
    async fn to_ask_for_keys_on_their_way_is_a_right_of_its_own() {
        for (rules, expected) in [
            (OF_CLUSTERS, ErrorKind::Unavailable),
            ("+cluster|slots +cluster|nodes", ErrorKind::Denied),
        ] {
            let redis = redis_with(rules).await;
            let backend = connect(&url(&redis, "")).await.unwrap();
            let (slot, from) = (redis.slot_of("lock:job").await, redis.owner_of("lock:job").await);
            redis.begin_migration(slot, from, (from + 1) % 3).await;

            // The source of the migration does not have any of the keys, and the target does not
            // run a script before it has all of them.
            let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(60));
            let error = backend.acquire(&Claim::new(lease)).await.unwrap_err();

            assert_eq!(error.kind(), expected, "{error}");
        }
    }

    #[tokio::test]
    async fn a_majority_of_replicas_takes_one_right_more() {
        let redis = redis_with(&format!("{OF_CLUSTERS} +wait")).await;
        let url = url(&redis, "?wait-replicas=majority&wait-replicas-ms=5000");
        let backend = connect(&url).await.unwrap();

        all_operations(&backend).await.unwrap();
    }
}

mod tls {
    use leasehold_testbed::patiently;

    use super::*;

    fn trusting(redis: &Redis) -> String {
        format!("{}&ca={}", patiently(&redis.tls_url()), redis.certificates().authority().display())
    }

    async fn refusal(url: &str) -> Error {
        connect(url).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_server_with_a_trusted_certificate_is_used() {
        let redis = RedisOptions::new().tls().start().await;
        let backend = connect(&trusting(&redis)).await.unwrap();

        all_operations(&backend).await.unwrap();
        assert!(backend.capabilities().supports(Feature::Push));
    }

    #[tokio::test]
    async fn a_server_that_is_not_trusted_is_refused() {
        let (redis, other) = (RedisOptions::new().tls(), RedisOptions::new().tls());
        let (redis, other) = (redis.start().await, other.start().await);
        let authority = other.certificates().authority();

        let unknown_to_the_system = refusal(&patiently(&redis.tls_url())).await;
        let wrong_authority =
            refusal(&format!("{}&ca={}", patiently(&redis.tls_url()), authority.display())).await;
        let wrong_name = refusal(&trusting(&redis).replace("localhost", "127.0.0.1")).await;

        for error in [unknown_to_the_system, wrong_authority, wrong_name] {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_server_without_tls_is_not_spoken_to_in_the_clear() {
        let redis = Redis::start().await;

        let error = refusal(&format!("rediss://:{SECRET}@{}", redis.address())).await;

        assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_certificate_gets_ours() {
        let redis = RedisOptions::new().tls_with_client_certificates().start().await;
        let files = redis.certificates();
        let (cert, key) = (files.client_certificate(), files.client_key());

        let with = format!("{}&cert={}&key={}", trusting(&redis), cert.display(), key.display());
        let backend = connect(&with).await.unwrap();
        all_operations(&backend).await.unwrap();

        let without = refusal(&trusting(&redis)).await;
        assert!(
            matches!(without.kind(), ErrorKind::Denied | ErrorKind::Unavailable),
            "{without:?}"
        );
    }

    #[tokio::test]
    async fn is_spoken_with_sentinels_and_the_servers_that_they_name() {
        let redis = SentinelOptions::new().nodes(RedisOptions::new().tls()).start().await;
        let authority = redis.certificates().authority();
        let url = format!("{}&ca={}", patiently(&redis.url()), authority.display());
        let client = LockClient::new(connect(&url).await.unwrap());
        client.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();

        let error = refusal(&patiently(&redis.url())).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");

        redis.failover().await;
        let mutex = client.mutex("job").unwrap();
        until("it goes on", async || match mutex.try_lock().await {
            Ok(_guard) => true,
            Err(TryLockError::Busy(_)) => false,
            Err(TryLockError::Failed(error)) => !error.is_retryable(),
        })
        .await;
    }

    #[tokio::test]
    async fn is_spoken_with_all_servers_of_a_cluster() {
        let redis =
            ClusterOptions::new().replicas(0).nodes(RedisOptions::new().tls()).start().await;
        let authority = redis.certificates().authority();
        let one = format!("rediss-cluster://{}?ca={}", redis.node_address(0), authority.display());
        let client = LockClient::new(connect(&one).await.unwrap());

        for n in 0..8 {
            let name = format!("job-{n}");
            client.mutex(name).unwrap().lock().await.unwrap().release().await.unwrap();
        }
    }
}
