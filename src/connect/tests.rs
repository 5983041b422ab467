use leasehold_core::TryLockError;

use super::*;

async fn refusal(url: &str) -> Error {
    backend(url).await.unwrap_err()
}

#[tokio::test]
async fn unknown_urls_are_refused_without_showing_them() {
    for url in ["", "S3CR3T", "ftp://S3CR3T@host", "http:S3CR3T"] {
        let error = refusal(url).await;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error:?}").contains("S3CR3T"));
    }
}

#[tokio::test]
async fn scheme_that_was_left_out_is_asked_for() {
    for (url, said) in [
        ("localhost:6379", "did you mean redis://localhost:6379?"),
        ("db.example:6379/3", "did you mean redis://db.example:6379?"),
        ("localhost", "use, for example, redis://host:port"),
        ("S3CR3T@db.example:6379", "use, for example, redis://host:port"),
        ("db.example:6379/0?pass=S3CR3T", "did you mean redis://db.example:6379?"),
    ] {
        let error = refusal(url).await.to_string();
        assert!(error.contains(said) && !error.contains("S3CR3T"), "{url}: {error}");
    }
}

#[tokio::test]
async fn stores_in_memory_of_one_name_are_one_store() {
    let mutex = async |url| connect(url).await.unwrap().mutex("k").unwrap();
    let _held = mutex("memory:one").await.lock().await.unwrap();

    assert!(matches!(mutex("memory:one").await.try_lock().await, Err(TryLockError::Busy(_))));
    assert!(mutex("memory:other").await.try_lock().await.is_ok());
    assert!(mutex("memory:").await.try_lock().await.is_ok());
}

#[tokio::test]
async fn options_are_those_of_all_locks_and_are_checked() {
    let ttl = |secs| LockOptions::new().ttl(std::time::Duration::from_secs(secs));
    let client: LockClient = connect_with("memory:", ttl(7)).await.unwrap();
    assert_eq!(client.options(), ttl(7));

    let refused = connect_with("memory:", ttl(0)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn a_lazy_client_does_no_io_and_checks_its_url() {
    let kind = |url| connect_lazily(url, LockOptions::new()).map_err(|error| error.kind());

    assert!(kind("memory:").is_ok());
    #[cfg(feature = "redis")]
    assert!(kind("redis://127.0.0.1:1").is_ok());
    #[cfg(feature = "redis")]
    assert!(kind("redlock+redis://a,b,c").is_ok());
    #[cfg(feature = "redis")]
    assert_eq!(kind("redlock+redis://a,b").unwrap_err(), ErrorKind::Invalid);
    #[cfg(feature = "etcd")]
    assert!(kind("etcd://127.0.0.1:1").is_ok());
    for url in ["", "ftp://host"] {
        assert_eq!(kind(url).unwrap_err(), ErrorKind::Invalid, "{url}");
    }
    #[cfg(feature = "postgres")]
    assert!(kind("postgres://127.0.0.1:1").is_ok());
    #[cfg(feature = "mysql")]
    assert!(kind("mysql://u@127.0.0.1:1/db").is_ok());
    #[cfg(feature = "sqlite")]
    assert!(kind("sqlite:/no/such/folder/locks.db").is_ok());
    assert_eq!(kind("zookeeper://host").unwrap_err(), ErrorKind::Unsupported);
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd_urls_reach_the_backend() {
    let unserved = format!("etcd://127.0.0.1:{}", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("etcd://u:S3CR3T@").await.kind(), ErrorKind::Invalid);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_urls_reach_the_backend() {
    let unserved = format!("postgresql://127.0.0.1:{}", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("postgres://u:S3CR3T@host:x").await.kind(), ErrorKind::Invalid);
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn mysql_urls_reach_the_backend() {
    let unserved = format!("mysql://u@127.0.0.1:{}/db", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("mariadb://u:S3CR3T@host").await.kind(), ErrorKind::Invalid);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_urls_reach_the_backend() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let reached = backend(&leasehold_testbed::patiently(&url)).await;
    assert_eq!(reached.unwrap().capabilities().name(), "sqlite");
    assert_eq!(refusal("sqlite::memory:").await.kind(), ErrorKind::Invalid);
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_urls_reach_the_backend() {
    let unserved = format!("zookeeper://127.0.0.1:{}", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("zookeeper://u:S3CR3T@").await.kind(), ErrorKind::Invalid);
}

#[cfg(any(feature = "redis", feature = "fred"))]
#[tokio::test]
async fn redlock_urls_reach_all_members() {
    let ports = [(); 3].map(|()| leasehold_testbed::free_port());
    let hosts = ports.map(|port| format!("127.0.0.1:{port}"));
    let error = refusal(&format!("redlock+redis://:S3CR3T@{}", hosts.join(","))).await;

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let shown = format!("{error} {error:?}");
    assert!(hosts.iter().all(|host| shown.contains(host.as_str())), "{shown}");
    assert!(!shown.contains("S3CR3T"), "{shown}");
    for url in ["redlock+redis://a,b", "redlock+redis://a,b,a:6379", "redlock+redis:a"] {
        assert_eq!(refusal(url).await.kind(), ErrorKind::Invalid, "{url}");
    }
}

#[cfg(all(feature = "redis", feature = "fred"))]
#[tokio::test]
async fn the_url_picks_the_client() {
    let unserved = format!("redis://127.0.0.1:{}?", leasehold_testbed::free_port());
    for (parameter, client) in [("", "redis"), ("client=redis", "redis"), ("client=fred", "fred")] {
        let error = refusal(&format!("{unserved}{parameter}")).await;
        assert_eq!((error.kind(), error.backend()), (ErrorKind::Unavailable, Some(client)));
    }
    assert_eq!(refusal("redis://:S3CR3T@host?client=ioredis").await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn disabled_store_is_refused_and_its_feature_named() {
    let any_redis = cfg!(any(feature = "redis", feature = "fred"));
    let stores = [
        (cfg!(feature = "etcd"), "etcd://u:S3CR3T@host", "\"etcd\""),
        (cfg!(feature = "etcd-tls"), "etcds://u:S3CR3T@host", "\"etcd-tls\""),
        (cfg!(feature = "fred"), "redis://:S3CR3T@host?client=fred", "\"fred\""),
        (cfg!(feature = "mysql"), "mysql://u:S3CR3T@host/db", "\"mysql\""),
        (cfg!(feature = "mysql"), "mariadb://u:S3CR3T@host/db", "\"mysql\""),
        (cfg!(feature = "postgres"), "postgres://u:S3CR3T@host", "\"postgres\""),
        (cfg!(feature = "postgres"), "postgresql://u:S3CR3T@host", "\"postgres\""),
        (any_redis, "redis://:S3CR3T@host", "\"redis\""),
        (any_redis, "rediss-sentinel://:S3CR3T@host", "\"redis\""),
        (any_redis, "redlock+redis://:S3CR3T@host", "\"redis\""),
        (any_redis, "valkeys-cluster://:S3CR3T@host", "\"redis\""),
        (cfg!(feature = "sqlite"), "sqlite:S3CR3T.db", "\"sqlite\""),
        (cfg!(feature = "zookeeper"), "zookeeper://u:S3CR3T@host", "\"zookeeper\""),
        (cfg!(feature = "zookeeper-tls"), "zookeepers://u:S3CR3T@host", "\"zookeeper-tls\""),
    ];
    for (_, url, feature) in stores.into_iter().filter(|(is_built_in, ..)| !is_built_in) {
        let error = refusal(url).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(feature) && !shown.contains("S3CR3T"), "{shown}");
    }

    let said = |store, feature| stores::not_built_in(store, feature).to_string();
    let etcd = "etcd support is disabled; enable the feature \"etcd\" of the crate leasehold, or \"etcd-tls\" for TLS";
    assert!(said("etcd", "etcd").ends_with(etcd));
    assert!(said("SQLite", "sqlite").ends_with("the feature \"sqlite\" of the crate leasehold"));
}
