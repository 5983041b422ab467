//! A client that a process made before it was forked.

use std::process::{self, Command};
use std::time::Duration;
use std::{env, thread};

use fork::{Fork, fork, waitpid};
use leasehold::{Error, ErrorKind, LeaseState, LossReason};
use libtest_mimic::Trial;
use tokio::runtime::Builder;

use crate::stores::{LOCAL, SERVERS, Store, on_each};

/// The argument by which this program is the process that forks.
pub(crate) const ROLE: &str = "forks";

/// No call may take as long: each of them is refused before it waits for anything.
const LONG: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    let stores = LOCAL.into_iter().chain(SERVERS);
    on_each(stores, "forks::calls_are_refused_and_guards_are_lost", are_refused)
}

fn are_refused(name: &'static str) {
    let store = Store::start(name);
    let mut command = Command::new(env::current_exe().unwrap());

    let output = command.args([ROLE, &store.url]).output().unwrap();

    assert!(output.status.success(), "{output:?}");
}

/// Makes clients and locks, forks, and ends with the outcome of the forked process.
pub(crate) fn run(url: &str) {
    let blocking = leasehold::blocking::connect(url).unwrap();
    let waits = blocking.mutex("blocking").unwrap();
    let held = waits.lock().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, guard) = runtime.block_on(async {
        let client = leasehold::connect(url).await.unwrap();
        let guard = client.mutex("async").unwrap().lock().await.unwrap();
        (client, guard)
    });
    if let Fork::Parent(child) = fork().unwrap() {
        let status = waitpid(child).unwrap();
        assert!(held.is_held() && guard.is_held(), "the parent's locks are its own");
        runtime.block_on(guard.release()).unwrap();
        held.release().unwrap();
        process::exit(i32::from(status != 0));
    }

    thread::spawn(|| {
        thread::sleep(LONG);
        eprintln!("a call hangs");
        process::exit(1);
    });
    assert_eq!(held.state(), LeaseState::Lost(LossReason::Forked));
    assert!(!guard.is_held());
    refused(waits.lock().map(drop));
    refused(waits.try_lock().map(drop).map_err(Error::from));
    refused(waits.try_lock_for(Duration::from_secs(2)).map(drop).map_err(Error::from));
    refused(blocking.ping(Duration::from_secs(2)));
    let fresh = Builder::new_current_thread().enable_all().build().unwrap();
    fresh.block_on(async {
        let mutex = client.mutex("async").unwrap();
        refused(mutex.lock().await.map(drop));
        refused(mutex.try_lock().await.map(drop).map_err(Error::from));
        refused(mutex.is_locked().await.map(drop));
        refused(client.shutdown(Duration::from_secs(2)).await);
        assert_eq!(guard.lost().await, Some(LossReason::Forked));
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.loss(), Some(LossReason::Forked));
    });
    drop(held);
    // Nothing that the parent made is dropped here, such as its runtime.
    process::exit(0);
}

fn refused(outcome: Result<(), Error>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("forked"), "{error}");
}
