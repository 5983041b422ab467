//! Acquires and releases one lock repeatedly, so that a tracer can count what each lock costs. `scripts/evidence` runs this program.
#![forbid(unsafe_code)]

use std::io::{self, Read as _};

use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use leasehold_testbed::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};
use tokio::runtime::Builder;

/// Acquires and releases one lock repeatedly, so that a tracer can count what each lock costs.
#[derive(Debug, Parser)]
#[command(name = "leasehold-counted")]
enum Command {
    /// Starts a store, prints its URL, and stops the store at the end of the standard input.
    Serve { store: Store },
    /// Acquires and releases a lock `times` times on the store with this URL.
    Lock {
        url: String,
        times: u32,
        /// The number of tasks, each of which has a lock of its own.
        #[arg(default_value_t = 1)]
        tasks: u32,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Store {
    Etcd,
    Mariadb,
    Postgres,
    Redis,
    Zookeeper,
}

fn main() -> Result<(), leasehold::Error> {
    // The number of instructions does not depend on the scheduling of threads.
    let runtime =
        Builder::new_current_thread().enable_all().build().expect("a runtime can be created");
    match Command::parse() {
        Command::Serve { store } => {
            runtime.block_on(serve(store));
            Ok(())
        }
        Command::Lock { url, times, tasks } => runtime.block_on(lock(&url, times, tasks)),
    }
}

async fn serve(store: Store) {
    match store {
        Store::Etcd => with(Etcd::start().await, Etcd::url),
        Store::Mariadb => with(MariaDb::start().await, |server| server.url()),
        Store::Postgres => with(Postgres::start().await, |server| server.url()),
        Store::Redis => with(Redis::start().await, Redis::url),
        Store::Zookeeper => with(ZooKeeper::start().await, ZooKeeper::url),
    }
}

fn with<S>(store: S, url: impl Fn(&S) -> String) {
    println!("{}", url(&store));
    io::stdin().read_to_end(&mut Vec::new()).expect("the standard input can be read");
}

async fn lock(url: &str, times: u32, tasks: u32) -> Result<(), leasehold::Error> {
    let client = leasehold::connect(url).await?;
    let lock_and_release = async |task: u32| {
        let mutex = client.mutex(format!("counted-{task}"))?;
        for _ in 0..times {
            mutex.lock().await?.release().await?;
        }
        Ok(())
    };
    try_join_all((0..tasks).map(lock_and_release)).await.map(drop)
}
