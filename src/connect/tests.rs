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
        ("localhost", "write redis://host:port"),
        ("S3CR3T@db.example:6379", "write redis://host:port"),
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

    assert!(mutex("memory:one").await.try_lock().await.unwrap().is_err());
    assert!(mutex("memory:other").await.try_lock().await.unwrap().is_ok());
    assert!(mutex("memory:").await.try_lock().await.unwrap().is_ok());
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

#[cfg(not(feature = "etcd"))]
#[tokio::test]
async fn without_its_feature_an_etcd_url_is_refused_and_names_it() {
    for url in ["etcd://u:S3CR3T@host", "etcds://u:S3CR3T@host"] {
        assert_names(&refusal(url).await, "`etcd`");
    }
}

#[cfg(all(feature = "etcd", not(feature = "etcd-tls")))]
#[tokio::test]
async fn without_its_feature_an_etcd_url_with_tls_is_refused_and_names_it() {
    assert_names(&refusal("etcds://u:S3CR3T@host").await, "`etcd-tls`");
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd_urls_reach_the_backend() {
    let unserved = format!("etcd://127.0.0.1:{}", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("etcd://u:S3CR3T@").await.kind(), ErrorKind::Invalid);
}

#[cfg(not(any(feature = "redis", feature = "fred")))]
#[tokio::test]
async fn without_its_feature_a_redis_url_is_refused_and_names_it() {
    for scheme in ["redis", "rediss", "redis-sentinel", "redlock+redis", "valkeys-cluster"] {
        assert_names(&refusal(&format!("{scheme}://:S3CR3T@host")).await, "`redis`");
    }
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn without_its_feature_a_postgres_url_is_refused_and_names_it() {
    for scheme in ["postgres", "postgresql"] {
        assert_names(&refusal(&format!("{scheme}://u:S3CR3T@host")).await, "`postgres`");
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_urls_reach_the_backend() {
    let unserved = format!("postgresql://127.0.0.1:{}", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("postgres://u:S3CR3T@host:x").await.kind(), ErrorKind::Invalid);
}

#[cfg(not(feature = "mysql"))]
#[tokio::test]
async fn without_its_feature_a_mysql_url_is_refused_and_names_it() {
    for scheme in ["mysql", "mariadb"] {
        assert_names(&refusal(&format!("{scheme}://u:S3CR3T@host/db")).await, "`mysql`");
    }
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn mysql_urls_reach_the_backend() {
    let unserved = format!("mysql://u@127.0.0.1:{}/db", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("mariadb://u:S3CR3T@host").await.kind(), ErrorKind::Invalid);
}

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn without_its_feature_a_sqlite_url_is_refused_and_names_it() {
    assert_names(&refusal("sqlite:S3CR3T.db").await, "`sqlite`");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_urls_reach_the_backend() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    assert_eq!(backend(&url).await.unwrap().capabilities().name(), "sqlite");
    assert_eq!(refusal("sqlite::memory:").await.kind(), ErrorKind::Invalid);
}

#[cfg(not(feature = "zookeeper"))]
#[tokio::test]
async fn without_its_feature_a_zookeeper_url_is_refused_and_names_it() {
    for scheme in ["zookeeper", "zookeepers"] {
        assert_names(&refusal(&format!("{scheme}://u:S3CR3T@host")).await, "`zookeeper`");
    }
}

#[cfg(all(feature = "zookeeper", not(feature = "zookeeper-tls")))]
#[tokio::test]
async fn without_its_feature_a_zookeeper_url_with_tls_is_refused_and_names_it() {
    assert_names(&refusal("zookeepers://u:S3CR3T@host").await, "`zookeeper-tls`");
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_urls_reach_the_backend() {
    let unserved = format!("zookeeper://127.0.0.1:{}", leasehold_testbed::free_port());
    assert_eq!(refusal(&unserved).await.kind(), ErrorKind::Unavailable);
    assert_eq!(refusal("zookeeper://u:S3CR3T@").await.kind(), ErrorKind::Invalid);
}

#[cfg(not(feature = "fred"))]
#[tokio::test]
async fn a_client_that_is_not_there_is_refused_and_named() {
    assert_names(&refusal("redis://:S3CR3T@host?client=fred").await, "`fred`");
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

#[cfg(not(all(
    feature = "etcd-tls",
    feature = "fred",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper-tls"
)))]
fn assert_names(error: &Error, feature: &str) {
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let shown = format!("{error} {error:?}");
    assert!(shown.contains(feature) && !shown.contains("S3CR3T"), "{shown}");
}
