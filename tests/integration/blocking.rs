//! The blocking face on a real server.

use std::time::Duration;

use leasehold::blocking::{self, LockClient};
use leasehold::{ErrorKind, LockOptions, LossReason, TryLockError};
use leasehold_testbed::{Redis, free_port, patiently};
use tokio::runtime::Runtime;

/// The limit for an event that follows at once, on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// A server, and the runtime with which to speak to it past every client of ours.
fn server() -> (Redis, Runtime) {
    let runtime = Runtime::new().unwrap();
    (runtime.block_on(Redis::start()), runtime)
}

fn connect(url: &str) -> LockClient {
    blocking::connect(&patiently(url)).unwrap()
}

fn client(redis: &Redis, options: LockOptions) -> LockClient {
    LockClient::from_async(async || {
        let backend = leasehold::backend::connect(&patiently(&redis.url())).await?;
        Ok(leasehold::LockClient::builder(backend).options(options).build()?.into_dyn())
    })
    .unwrap()
}

#[test]
fn threads_of_two_clients_count_to_a_hundred_under_growing_tokens() {
    let (redis, _runtime) = server();
    let clients = [(); 2].map(|()| connect(&redis.url()));
    let tokens = std::sync::Mutex::new(Vec::new());

    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mutex = clients[thread % 2].mutex("counter").unwrap();
            let tokens = &tokens;
            scope.spawn(move || {
                for _ in 0..25 {
                    let guard = mutex.lock().unwrap();
                    // No other caller has it, so the lock never waits.
                    tokens.try_lock().unwrap().push(guard.token().number());
                    guard.release().unwrap();
                }
            });
        }
    });

    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), 100);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn a_lease_outlives_its_ttl_while_its_thread_works_and_is_deleted_when_the_guard_and_the_client_are_dropped()
 {
    let (redis, runtime) = server();
    let ttl = Duration::from_secs(4);
    let guard = client(&redis, LockOptions::new().ttl(ttl)).mutex("job").unwrap().lock().unwrap();
    let other = connect(&redis.url()).mutex("job").unwrap();

    assert_eq!(guard.wait_lost(ttl * 3 / 2).unwrap(), None);
    assert!(matches!(other.try_lock(), Err(TryLockError::Busy(_))));

    drop(guard);
    other.try_lock_for(LONG).expect("the dropped guard is released").release().unwrap();
    assert_eq!(runtime.block_on(redis.command(&["GET", "lock:job"])), "$-1");
}

#[test]
fn a_key_that_an_operator_deletes_is_a_loss_that_the_holder_sees() {
    let (redis, runtime) = server();
    let guard = client(&redis, LockOptions::new()).mutex("job").unwrap().lock().unwrap();

    runtime.block_on(redis.command(&["DEL", "lock:job"]));

    assert_eq!(guard.wait_lost(LONG).unwrap(), Some(LossReason::Vanished));
    assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let error = blocking::connect(&format!("redis://127.0.0.1:{}", free_port())).unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[cfg(feature = "etcd")]
#[test]
fn threads_take_turns_on_etcd_too() {
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(leasehold_testbed::Etcd::start());
    let [first, second] = [(); 2].map(|()| connect(&etcd.url()).mutex("job").unwrap());

    let guard = first.lock().unwrap();
    assert!(matches!(second.try_lock(), Err(TryLockError::Busy(_))));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.try_lock_for(LONG).expect("it gets free"));
        let token = guard.token().number();
        guard.release().unwrap();
        let later = waiting.join().unwrap();
        assert!(token < later.token().number());
        later.release().unwrap();
    });

    assert_eq!(runtime.block_on(etcd.ctl(&["get", "--prefix", "--keys-only", "lock/"])), "");
}
