//! The stores, which a campaign disturbs.

mod cluster;
mod databases;
mod etcd;
mod given;
mod mariadb;
mod postgres;
mod quorum;
mod redis;
mod sentinel;
mod sqlite;
mod weather;
mod zookeeper;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;

use crate::class::Class;
use crate::firewall::Peer;

/// A store, whose servers end when it is dropped.
#[async_trait]
pub trait Store: Send + Sync {
    /// Its URL, for clients.
    fn url(&self) -> String;

    /// The ports on which clients reach it.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// The server that leads the others, by the packets between them; none where proxies stand between servers, or there is only one.
    async fn leader(&self) -> Option<Peer> {
        None
    }

    /// The versions of its programs.
    async fn versions(&self) -> BTreeMap<String, String>;

    /// Causes a fault for `time`, repairs the store, and returns the name of the fault's target.
    ///
    /// # Panics
    ///
    /// Panics if this store does not support the fault.
    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String;
}

/// Starts a store of a class; the one at a URL is there already. A file may have a disk of its own if the campaign has a namespace of mounts.
pub async fn start(class: Class, url: Option<&str>, has_namespaces: bool) -> Box<dyn Store> {
    match class {
        Class::Redis => Box::new(redis::OneRedis::start().await),
        Class::Sentinel => Box::new(sentinel::WithSentinel::start().await),
        Class::Cluster => Box::new(cluster::Cluster::start().await),
        Class::Quorum => Box::new(quorum::FiveRedis::start(class.bounds().ttl).await),
        Class::Etcd => Box::new(etcd::ThreeEtcd::start().await),
        Class::Postgres => Box::new(postgres::WithReplica::start().await),
        Class::Mariadb => Box::new(mariadb::OneMariaDb::start().await),
        Class::Sqlite => Box::new(sqlite::File::new(has_namespaces)),
        Class::Zookeeper => Box::new(zookeeper::ThreeZooKeeper::start().await),
        Class::Memory => Box::new(given::Given::at("memory:")),
        Class::Given => Box::new(given::Given::at(url.expect("its URL is given"))),
    }
}

/// Returns the command that causes a fault of a primary, if a single command is sufficient.
fn of_a_primary(kind: FaultKind, time: Duration) -> Option<String> {
    Some(match kind {
        FaultKind::ScriptsFlushed => "SCRIPT FLUSH".to_owned(),
        FaultKind::ConnectionsKilled => "CLIENT KILL TYPE normal".to_owned(),
        FaultKind::CommandsPaused => format!("CLIENT PAUSE {} WRITE", time.as_millis()),
        _ => return None,
    })
}

/// One version, by its program.
fn version(program: &str, version: impl Into<String>) -> BTreeMap<String, String> {
    BTreeMap::from([(program.to_owned(), version.into())])
}

/// The version in a reply to `INFO server`.
fn redis_version(info: &str) -> BTreeMap<String, String> {
    let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    version("redis", line.unwrap_or("unknown").trim())
}
