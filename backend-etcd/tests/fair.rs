//! First come, first served, across processes: 16 clients in 4 of them.

use std::env;
use std::process::Command;

use leasehold_conformance::fairness;
use leasehold_core::LockOptions;
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::Etcd;

const PROCESSES: usize = 4;
const CLIENTS: usize = 4;
/// Acquisitions of each client, those that it cancels not counted.
const ROUNDS: usize = 20;

/// Set in the processes that the test starts: where the server is.
const SERVER: &str = "LEASEHOLD_FAIR_TEST_SERVER";

/// What a process of the test runs; nothing when it is called as a test of its own.
#[tokio::test]
async fn a_process() {
    let Ok(url) = env::var(SERVER) else { return };
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let backend = EtcdBackend::connect(&url).await.unwrap();
        clients.spawn(fairness::take_turns(backend, LockOptions::new(), ROUNDS));
    }
    clients.join_all().await;
}

fn process(url: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_process", "--nocapture"]).env(SERVER, url);
    command
}

#[tokio::test]
async fn nobody_is_served_before_one_whose_place_was_acknowledged_before_it_asked() {
    let server = Etcd::start().await;
    let processes: Vec<Command> = (0..PROCESSES).map(|_| process(&server.url())).collect();

    let acquired =
        tokio::task::spawn_blocking(|| fairness::assert_first_come_first_served(processes));

    assert_eq!(acquired.await.unwrap(), PROCESSES * CLIENTS * ROUNDS);
}
