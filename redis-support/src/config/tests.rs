use leasehold_settings::Server;

use super::*;
use crate::fake::Fake;

type Config = super::Config<Fake>;

fn refusal(url: &str) -> Error {
    Config::from_url(url).unwrap_err()
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp(Server { host: host.to_owned(), port })
}

#[test]
fn urls_say_everything() {
    let url = "redis://locker:S3%2BCR3T@db.example:7000/3?prefix=app:&timeout-ms=250&push=off&protocol=resp2\
               &wait-replicas=2&wait-replicas-ms=40";
    let config = Config::from_url(url).unwrap();

    assert_eq!(config.topology, Endpoints::Single(tcp("db.example", 7000)));
    assert_eq!(config.layout, Layout::new("app:").unwrap());
    assert_eq!(config.timeout, Duration::from_millis(250));
    assert!(!config.push);
    assert_eq!(config.protocol, Protocol::Resp2);
    assert_eq!(config.replicas, Replicas::AtLeast(2));
    assert_eq!(config.replicas_timeout, Duration::from_millis(40));
    let password = Some("S3+CR3T".to_owned());
    assert_eq!(config.access, Access { user: Some("locker".to_owned()), password, database: 3 });
    assert!(!format!("{config:?}").contains("CR3T"));
}

#[test]
fn a_missing_setting_has_a_default() {
    let config = Config::from_url("redis://host").unwrap();

    assert_eq!(config.topology, Endpoints::Single(tcp("host", 6379)));
    assert_eq!(config.access, Access::default());
    assert_eq!((config.timeout, config.push), (Config::DEFAULT_TIMEOUT, true));
    assert_eq!(config.replicas, Replicas::None);
}

#[test]
fn hosts_may_be_named_in_every_way() {
    for (host, expected) in [
        ("127.0.0.1", tcp("127.0.0.1", 6379)),
        ("127.0.0.1:21", tcp("127.0.0.1", 21)),
        ("[::1]", tcp("::1", 6379)),
        ("[::1]:7000", tcp("::1", 7000)),
        ("a.b-c.example:1", tcp("a.b-c.example", 1)),
    ] {
        let config = Config::from_url(&format!("redis://{host}")).unwrap();
        assert_eq!(config.topology, Endpoints::Single(expected), "{host}");
    }
}

#[test]
fn sentinels_are_many_and_watch_over_a_name() {
    let url =
        "redis-sentinel://u:S3CR3T@a,b:5000/my%20master/2?sentinel-user=s&sentinel-pass=S3CR3T";
    let config = Config::from_url(url).unwrap();

    let sentinels = vec![tcp("a", 26379), tcp("b", 5000)];
    assert_eq!(config.topology, Endpoints::Sentinel { sentinels, master: "my master".to_owned() });
    assert_eq!(config.access.database, 2);
    assert_eq!(config.sentinel_access.user.as_deref(), Some("s"));
    assert_eq!(config.sentinel_access.password.as_deref(), Some("S3CR3T"));
    assert!(!format!("{config:?}").contains("S3CR3T"));
}

#[test]
fn clusters_have_many_seeds() {
    let config =
        Config::from_url("valkey-cluster://a:1,[::1]:2,c/?wait-replicas=majority").unwrap();

    let seeds = vec![tcp("a", 1), tcp("::1", 2), tcp("c", 6379)];
    assert_eq!(config.topology, Endpoints::Cluster { seeds });
    assert_eq!(config.topology.to_string(), "a:1,[::1]:2,c:6379");
    assert_eq!(config.replicas, Replicas::Majority);
}

#[test]
fn tls_is_in_the_scheme() {
    for scheme in ["rediss", "valkeys", "rediss-sentinel", "rediss-cluster"] {
        let path = if scheme.ends_with("sentinel") { "/master" } else { "" };
        let config = Config::from_url(&format!("{scheme}://:S3CR3T@host{path}")).unwrap();
        assert!(config.driver.encrypted, "{scheme}");
    }
}

#[test]
fn sockets_are_addresses_too() {
    let config = Config::from_url("unix:///run/my%20redis.sock?db=2&user=u&pass=S3CR3T").unwrap();

    assert_eq!(config.topology, Endpoints::Single(Address::Unix("/run/my redis.sock".into())));
    assert_eq!((config.access.database, config.access.user.as_deref()), (2, Some("u")));
}

#[test]
fn an_odd_url_is_refused_without_showing_it() {
    for url in [
        "S3CR3T",
        "redis://:S3CR3T@",
        "redis://:S3CR3T@host:port",
        "redis://:S3CR3T@host/database",
        "redis://:S3CR3T@host/4294967296",
        "redis://:S3CR3T@host/-1",
        "redis://:S3CR3T@a,b",
        "redis://:S3CR3T@host?tiemout-ms=5",
        "redis://:pass?S3CR3T@host",
        "redis://:pass?S3CR3T=@host",
        "rediss://:pass?ca=S3CR3T@host",
        "redis://:S3CR3T@host?timeout-ms=soon",
        "redis://:S3CR3T@host?timeout-ms=0",
        "redis://:S3CR3T@host?push=maybe",
        "redis://:S3CR3T@host?protocol=resp4",
        "redis://:S3CR3T@host?prefix=a*",
        "redis://:S3CR3T@host?ca=/ca.pem",
        "redis://:S3CR3T@host?wait-replicas=some",
        "redis://:S3CR3T@host?wait-replicas=300",
        "redis://:S3CR3T@host?wait-replicas=1&wait-replicas-ms=0",
        "redis://:S3CR3T@host#insecure",
        "redis://:S3CR3T@0.0.0.0",
        "redis://:S3CR3T%ff@host",
        "redis-sentinel://:S3CR3T@host",
        "redis-sentinel://:S3CR3T@host/",
        "redis-sentinel://:S3CR3T@host/master/database",
        "redis-cluster://:S3CR3T@host/1",
        "redis-cluster://:S3CR3T@a,,b",
        "redis-elsewhere://:S3CR3T@host",
        "rediss://:S3CR3T@host?cert=/c.pem",
        "rediss://:S3CR3T@host?ca=/nowhere/ca.pem",
        "http://:S3CR3T@host",
        "redis://u:123/S3CR3T@host",
        "redis-sentinel://u:123/S3CR3T@host",
        "redis-sentinel://u:123@4/S3CR3T@host/master",
        "redis-cluster://u:123/S3CR3T@host",
        "unix://u:S3CR3T@/tmp/redis.sock",
        "unix://S3CR3T/redis.sock",
    ] {
        let error = refusal(url);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(!format!("{error} {error:?}").contains("S3CR3T"), "{error:?}");
    }
}

#[test]
fn a_url_without_a_host_is_refused_with_the_reason() {
    for url in [
        "redis://",
        "redis:///1",
        "redis://?timeout-ms=5",
        "redis://:6379",
        "redis://:S3CR3T@",
        "rediss://:S3CR3T@/1",
        "redis-sentinel:///master",
        "redis-sentinel://a,/master",
        "redis-cluster://a,,b",
    ] {
        let error = refusal(url).to_string();
        assert!(error.contains("the URL has no host"), "{url}: {error}");
    }
    for url in ["unix://", "unix://?pass=S3CR3T", "unix://u:S3CR3T@/run/redis.sock"] {
        let error = refusal(url).to_string();
        assert!(error.contains("the absolute path of a socket"), "{url}: {error}");
        assert!(error.contains("?user=NAME&pass=PASSWORD"), "{url}: {error}");
    }
}

#[test]
fn a_slash_in_a_password_is_refused_with_its_code() {
    for url in ["redis://:pa/ss@host", "redis-sentinel://u:1/2@a,b/master", "rediss://u:/@host"] {
        let error = refusal(url).to_string();
        assert!(error.contains("write %2F for a / in a password"), "{url}: {error}");
    }
    Config::from_url("redis://u:pa%2Fss@host/1").unwrap();
}

#[test]
fn databases_above_255_are_for_the_server_to_know() {
    let config = Config::from_url("redis://host/300").unwrap();

    assert_eq!(config.access.database, 300);
}

#[test]
fn a_single_server_knows_no_majority() {
    let error = refusal("redis://host?wait-replicas=majority");

    assert_eq!(error.kind(), ErrorKind::Unsupported);
    Config::from_url("redis-sentinel://host/master?wait-replicas=majority").unwrap();
}
