//! Tests of the crate `leasehold` with real servers and processes.

#[cfg(all(feature = "blocking", feature = "redis"))]
mod blocking;
#[cfg(all(feature = "fred", feature = "redis"))]
mod clients;
#[cfg(feature = "config")]
mod config;
#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]
mod dead_waiters;
#[cfg(all(
    feature = "etcd",
    feature = "fred",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod end_of_main;
mod examples;
#[cfg(all(feature = "blocking", feature = "macros"))]
mod locked;
#[cfg(all(feature = "metrics", feature = "redis"))]
mod observability;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod quorum;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod stopped;
