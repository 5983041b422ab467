//! The stores of these tests.

use std::any::Any;

use leasehold_testbed::{Etcd, MariaDb, Postgres, Redis, ZooKeeper, patiently};
use libtest_mimic::Trial;
use tokio::runtime::{Builder, Runtime};

/// A store, which ends when this is dropped.
pub(crate) struct Store {
    pub(crate) url: String,
    _server: Box<dyn Any>,
    _runtime: Runtime,
}

pub(crate) const SERVERS: [&str; 5] = ["redis", "etcd", "zookeeper", "postgres", "mariadb"];

/// Stores that are part of the process, or a file.
pub(crate) const LOCAL: [&str; 2] = ["memory", "sqlite"];

impl Store {
    pub(crate) fn start(name: &str) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (url, server): (String, Box<dyn Any>) = runtime.block_on(async {
            match name {
                "redis" => {
                    let redis = Redis::start().await;
                    (patiently(&redis.url()), Box::new(redis) as Box<dyn Any>)
                }
                "etcd" => {
                    let etcd = Etcd::start().await;
                    (patiently(&etcd.url()), Box::new(etcd) as Box<dyn Any>)
                }
                "zookeeper" => {
                    let zookeeper = ZooKeeper::start().await;
                    (patiently(&zookeeper.url()), Box::new(zookeeper) as Box<dyn Any>)
                }
                "postgres" => {
                    let postgres = Postgres::start().await;
                    (patiently(&postgres.url()), Box::new(postgres) as Box<dyn Any>)
                }
                "mariadb" => {
                    let mariadb = MariaDb::start().await;
                    (patiently(&mariadb.url()), Box::new(mariadb) as Box<dyn Any>)
                }
                "sqlite" => {
                    let folder = tempfile::tempdir().unwrap();
                    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
                    (patiently(&url), Box::new(folder) as Box<dyn Any>)
                }
                _ => ("memory:".to_owned(), Box::new(()) as Box<dyn Any>),
            }
        });
        Self { url, _server: server, _runtime: runtime }
    }
}

/// A test for each of the stores.
pub(crate) fn on_each(
    stores: impl IntoIterator<Item = &'static str>,
    name: &str,
    test: fn(&'static str),
) -> Vec<Trial> {
    let trial = |store| {
        Trial::test(format!("{name}_on_{store}"), move || {
            test(store);
            Ok(())
        })
    };
    stores.into_iter().map(trial).collect()
}
