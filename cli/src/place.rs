//! The parts of a store's URL that the command itself needs.

use std::borrow::Cow;

use leasehold_settings::{Options, Server, StoreUrl, decode};

use crate::exit::Failure;

/// A store and the parts of its URL.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) user: Option<String>,
    path: String,
    /// The path of a Unix socket.
    pub(crate) socket: Option<String>,
    /// Whether the scheme requires TLS.
    pub(crate) is_encrypted: bool,
    hosts: Vec<Server>,
    options: Options,
}

/// The kind of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Store {
    Redis,
    RedisSentinel,
    RedisCluster,
    Redlock,
    Etcd,
    Postgres,
    Mysql,
    Sqlite,
    ZooKeeper,
}

/// The stores, their names, their features, and whether this build has these features.
const FEATURES: [(Store, &str, &str, bool); 9] = [
    (Store::Redis, "Redis", "redis", cfg!(any(feature = "redis", feature = "fred"))),
    (Store::RedisSentinel, "Redis", "redis", cfg!(any(feature = "redis", feature = "fred"))),
    (Store::RedisCluster, "Redis", "redis", cfg!(any(feature = "redis", feature = "fred"))),
    (Store::Redlock, "Redis", "redis", cfg!(any(feature = "redis", feature = "fred"))),
    (Store::Etcd, "etcd", "etcd", cfg!(feature = "etcd")),
    (Store::Postgres, "PostgreSQL", "postgres", cfg!(feature = "postgres")),
    (Store::Mysql, "MySQL", "mysql", cfg!(feature = "mysql")),
    (Store::Sqlite, "SQLite", "sqlite", cfg!(feature = "sqlite")),
    (Store::ZooKeeper, "ZooKeeper", "zookeeper", cfg!(feature = "zookeeper")),
];

/// The error of a feature that this build of the command does not have.
pub(crate) fn disabled(what: &str, feature: &str) -> Failure {
    let features = features_with(feature);
    Failure::usage(format!(
        "this build of leasehold has no {what}; reinstall it with: cargo install --locked --path cli --features {features}"
    ))
}

/// The features of this build and `feature`. A new installation has only the features that its command line names.
fn features_with(feature: &str) -> String {
    let of_stores = FEATURES.iter().map(|(_, _, name, is_there)| (*name, *is_there));
    let others = [("fred", cfg!(feature = "fred")), ("verify", cfg!(feature = "verify"))];
    let mut features: Vec<&str> = of_stores
        .chain(others)
        .filter(|(name, is_there)| *is_there && *name != "sqlite")
        .map(|(name, _)| name)
        .chain([feature])
        .collect();
    features.sort_unstable();
    features.dedup();
    features.join(",")
}

/// Shows the scheme only in front of `//`, because other text may be a password.
fn unknown(url: &str) -> Failure {
    let named = match url.split_once("://") {
        Some((scheme, _)) => format!("unknown store \"{scheme}://\" in the URL"),
        None => "the URL does not start with the name of a store".to_owned(),
    };
    Failure::usage(format!(
        "{named}; expected sqlite:, redis://, rediss://, redis-sentinel://, redis-cluster://, redlock+redis://, unix://, \
         etcd://, zookeeper://, postgres:// or mysql://; see leasehold --help"
    ))
}

impl Place {
    /// Refuses a URL of an unknown store, and of a store that this build does not support.
    pub(crate) fn check(url: &str) -> Result<(), Failure> {
        // For a URL without a scheme, the library has a better message.
        if !url.contains("://") && !url.starts_with("sqlite:") {
            return Ok(());
        }
        let place = Self::of(url)?;
        if place.parameter("client") == Some("fred") && !cfg!(feature = "fred") {
            return Err(disabled("client=fred", "fred"));
        }
        match FEATURES.iter().find(|(store, ..)| *store == place.store) {
            Some((_, name, feature, false)) => Err(disabled(&format!("{name} support"), feature)),
            _ => Ok(()),
        }
    }

    pub(crate) fn of(text: &str) -> Result<Self, Failure> {
        let url = StoreUrl::parse(text)?;
        let (base, _) = url.scheme().split_once('-').unwrap_or((url.scheme(), ""));
        let is_encrypted = base.ends_with("rediss")
            || base.ends_with("valkeys")
            || matches!(base, "etcds" | "zookeepers");
        let scheme = url.scheme().replace("valkey", "redis").replace("rediss", "redis");
        let store = match &*scheme {
            "redis" | "unix" | "redis+unix" => Store::Redis,
            "redis-sentinel" => Store::RedisSentinel,
            "redis-cluster" => Store::RedisCluster,
            "redlock+redis" => Store::Redlock,
            "etcd" | "etcds" => Store::Etcd,
            "postgres" | "postgresql" => Store::Postgres,
            "mysql" | "mariadb" => Store::Mysql,
            "sqlite" => Store::Sqlite,
            "zookeeper" | "zookeepers" => Store::ZooKeeper,
            _ => return Err(unknown(text)),
        };
        let mut place = Self {
            store,
            user: None,
            path: String::new(),
            socket: None,
            is_encrypted,
            hosts: Vec::new(),
            options: url.options()?,
        };
        if scheme.contains("unix") {
            place.socket = Some(decode(url.location())?);
        } else if store != Store::Sqlite {
            let authority = url.authority()?;
            // Only the driver of a database parses its hosts.
            if let Some(port) = store.port() {
                place.hosts = authority.servers(port)?;
            }
            place.path = decode(authority.path)?;
            let user = authority.credentials.map(|credentials| credentials.user);
            place.user = user.filter(|user| !user.is_empty());
        }
        Ok(place)
    }

    /// The servers in the URL.
    pub(crate) fn hosts(&self) -> &[Server] {
        &self.hosts
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.options.get(name)
    }

    /// The text before the names of all locks; on ZooKeeper, the node above them.
    pub(crate) fn prefix(&self) -> Cow<'_, str> {
        let usual = match self.store {
            Store::Redis | Store::RedisSentinel | Store::RedisCluster | Store::Redlock => "lock:",
            Store::Etcd => "lock/",
            Store::Postgres | Store::Mysql | Store::Sqlite => "leasehold_",
            Store::ZooKeeper if self.path.is_empty() => "/lock",
            Store::ZooKeeper => return format!("/{}", self.path).into(),
        };
        self.parameter("prefix").unwrap_or(usual).into()
    }

    /// The number of the database, on Redis.
    pub(crate) fn database(&self) -> &str {
        let named = match self.store {
            Store::RedisSentinel => self.path.split_once('/').map(|(_, database)| database),
            _ => Some(self.path.as_str()),
        };
        self.parameter("db").or(named).filter(|it| !it.is_empty()).unwrap_or("0")
    }
}

impl Store {
    /// The port of a server without one in the URL.
    fn port(self) -> Option<u16> {
        match self {
            Self::RedisSentinel => Some(26379),
            Self::Redis | Self::RedisCluster | Self::Redlock => Some(6379),
            Self::Etcd => Some(2379),
            Self::ZooKeeper => Some(2181),
            Self::Postgres | Self::Mysql | Self::Sqlite => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_installation_keeps_the_features_of_this_one() {
        let said = disabled("etcd support", "etcd").message().to_owned();

        let (_, features) = said.split_once("--features ").unwrap();
        let features: Vec<&str> = features.split(',').collect();
        assert_eq!(features.iter().filter(|name| **name == "etcd").count(), 1, "{said}");
        assert!(!features.contains(&"sqlite"), "it is a default feature: {said}");
        for (_, _, name, is_there) in FEATURES.iter().filter(|it| it.2 != "sqlite") {
            assert!(!is_there || features.contains(name), "{name}: {said}");
        }
        assert_eq!(features.contains(&"verify"), cfg!(feature = "verify"), "{said}");
    }

    #[test]
    fn urls_contain_user_prefix_and_database() {
        let place = |url: &str| Place::of(url).unwrap();

        let redis = place("rediss://lo%40ck:S3CR3T@h:1/3?prefix=app%3A&timeout-ms=5");
        assert_eq!((redis.store, redis.user.as_deref()), (Store::Redis, Some("lo@ck")));
        assert_eq!((&*redis.prefix(), redis.database()), ("app:", "3"));
        let sentinel = place("redis-sentinel://:pw@a,b/master/2");
        assert_eq!((sentinel.store, sentinel.user.as_deref()), (Store::RedisSentinel, None));
        assert_eq!((&*sentinel.prefix(), sentinel.database()), ("lock:", "2"));
        assert_eq!(place("etcd://h").prefix(), "lock/");
        assert_eq!(place("zookeeper://h").prefix(), "/lock");
        assert_eq!(place("zookeepers://u:pw@a,b/app/locks?timeout-ms=5").prefix(), "/app/locks");
        assert_eq!(place("zookeeper://h?prefix=/app").prefix(), "/app");
        assert_eq!(place("redlock+rediss://a,b,c").store, Store::Redlock);
        assert_eq!(place("unix:///tmp/s?db=4").database(), "4");
        assert_eq!(place("unix:///tmp/s?db=4").socket.as_deref(), Some("/tmp/s"));
        assert!(place("redlock+rediss://a,b,c").is_encrypted && place("etcds://a").is_encrypted);
        assert!(!place("redis-sentinel://a/m").is_encrypted && !place("unix:///s").is_encrypted);
        let hosts = |url| place(url).hosts().iter().map(Server::to_string).collect::<Vec<_>>();
        assert_eq!(hosts("etcd://u:p@a,[::1]:7"), ["a:2379", "[::1]:7"]);
        assert_eq!(hosts("zookeeper://[::1]/x"), ["[::1]:2181"]);
        assert_eq!(place("zookeeper://a/my%20locks").prefix(), "/my locks");
        assert_eq!(place("unix:///tmp/s").database(), "0");
        assert!(Place::of("localhost:6379").is_err());
    }
}
