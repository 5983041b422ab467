//! Compiles and runs the programs in the README, the guide and the store pages as doctests.

/// Declares one item per page, so that the name of a failed test includes the page.
macro_rules! pages {
    ($($name:ident = $path:literal,)*) => {
        $(
            #[doc = include_str!($path)]
            struct $name;
        )*
    };
}

pages! {
    Readme = "../README.md",
    Backend = "../docs/guide/backend.md",
    Choosing = "../docs/guide/choosing.md",
    Fencing = "../docs/guide/fencing.md",
    FirstLock = "../docs/guide/first-lock.md",
    FromRedisson = "../docs/guide/from-redisson.md",
    Leases = "../docs/guide/leases.md",
    Migrating = "../docs/guide/migrating.md",
    Moving = "../docs/guide/moving.md",
    Patterns = "../docs/guide/patterns.md",
    Testing = "../docs/guide/testing.md",
    WebService = "../docs/guide/web-service.md",
    Etcd = "../backend-etcd/README.md",
    Redis = "../redis-support/README.md",
    ZooKeeper = "../backend-zookeeper/README.md",
    Postgres = "../backend-postgres/README.md",
    Mysql = "../backend-mysql/README.md",
    Sqlite = "../backend-sqlite/README.md",
}
