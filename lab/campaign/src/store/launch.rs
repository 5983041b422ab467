//! Starts the store of a class.

use super::{
    Store, cluster, etcd, given, mariadb, postgres, quorum, redis, sentinel, sqlite, zookeeper,
};
use crate::class::Class;

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
