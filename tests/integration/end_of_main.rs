//! A program that ends with a guard in hand leaves no lock behind.

use std::path::PathBuf;

use futures_util::stream::{self, StreamExt};
use leasehold::LockClient;
use leasehold_testbed::{Etcd, MariaDb, Postgres, Redis, ZooKeeper, patiently};
use tokio::process::Command;

/// The ends of a program: with the guard in `main`, or in a task.
const ENDS: [&str; 2] = ["main", "task"];

fn program(name: &str) -> PathBuf {
    // Cargo puts examples next to the folder of tests.
    let here = std::env::current_exe().unwrap();
    here.ancestors().nth(2).unwrap().join("examples").join(name)
}

/// Runs the program so many times, some at once, and looks at its key as soon as it is gone.
async fn leaves_no_lock(url: &str, runs: usize) {
    let client = leasehold::connect(url).await.unwrap();
    let left = stream::iter(0..runs).map(|run| {
        let (client, url) = (client.clone(), url.to_owned());
        async move {
            let (key, end) = (format!("run-{run}"), ENDS[run % ENDS.len()]);
            let mut command = Command::new(program("one_shot"));
            command.args([&*key, end]).env("LEASEHOLD_BACKEND", url);
            let output = command.output().await.unwrap();
            assert!(output.status.success(), "{output:?}");
            is_left(&client, key).await.then_some(end)
        }
    });
    let left: Vec<&str> = left.buffer_unordered(8).filter_map(async |left| left).collect().await;
    assert_eq!(left, [""; 0], "{} of {runs} runs left their lock", left.len());
}

async fn is_left(client: &LockClient, key: String) -> bool {
    match client.mutex(key).unwrap().try_lock().await {
        Ok(_guard) => false,
        Err(refusal) => {
            refusal.into_busy().unwrap();
            true
        }
    }
}

#[tokio::test]
async fn on_redis() {
    let redis = Redis::start().await;

    leaves_no_lock(&patiently(&redis.url()), 100).await;
}

#[tokio::test]
async fn on_redis_with_fred() {
    let redis = Redis::start().await;

    leaves_no_lock(&patiently(&format!("{}?client=fred", redis.url())), 100).await;
}

#[tokio::test]
async fn on_etcd() {
    let etcd = Etcd::start().await;

    leaves_no_lock(&patiently(&etcd.url()), 100).await;
}

#[tokio::test]
async fn on_postgres() {
    let postgres = Postgres::start().await;

    leaves_no_lock(&patiently(&postgres.url()), 20).await;
}

#[tokio::test]
async fn on_mysql() {
    let mysql = MariaDb::start().await;

    leaves_no_lock(&patiently(&mysql.url()), 20).await;
}

#[tokio::test]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();

    leaves_no_lock(&format!("sqlite:{}", folder.path().join("locks.db").display()), 20).await;
}

#[tokio::test]
async fn on_zookeeper() {
    let zookeeper = ZooKeeper::start().await;

    leaves_no_lock(&patiently(&zookeeper.url()), 20).await;
}
