//! Locks that are left when programs and threads end.

use super::*;

#[test]
fn a_guard_dropped_after_its_client_is_released_even_if_that_takes_more_than_one_try() {
    let (client, store, faults) = client_with(LockOptions::new());
    let guard = client.mutex("k").unwrap().lock().unwrap();
    faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 3);
    drop(client);

    assert!(guard.is_held());
    guard.extend(LONG).unwrap();
    drop(guard);

    wait_until(|| store.keys() == 0);
    assert_eq!(faults.calls(Operation::Release), 4);
}

#[test]
fn the_background_ends_with_the_last_user() {
    let store = Arc::new(MemoryBackend::new());
    let alive = Arc::downgrade(&store);
    let (needed, ended) = std::sync::mpsc::channel::<()>();
    let client = LockClient::from_async(async || {
        // Nothing but the end of the runtime drops this.
        tokio::spawn(async move {
            let _needed = needed;
            std::future::pending::<()>().await;
        });
        Ok(leasehold_core::LockClient::new(store).into_dyn())
    })
    .unwrap();
    let mutex = client.mutex("k").unwrap();
    let guard = mutex.lock().unwrap();
    drop((client, mutex));
    assert!(ended.recv_timeout(SHORT).is_err_and(|error| error.to_string().contains("timed")));

    drop(guard);

    ended.recv_timeout(LONG).unwrap_err();
    wait_until(|| alive.upgrade().is_none());
}

#[test]
fn a_process_that_holds_a_lock_can_end() {
    const HOLD: &str = "LEASEHOLD_TEST_HOLD";
    if std::env::var_os(HOLD).is_some() {
        std::mem::forget(client().mutex("k").unwrap().lock().unwrap());
        println!("it is held");
        return;
    }
    let this = "blocking::ends::a_process_that_holds_a_lock_can_end";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([this, "--exact", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    let output = child.wait_with_output().unwrap();

    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("it is held"));
}

#[test]
fn a_dropped_guard_is_released_though_an_idle_runtime_has_used_the_client() {
    let store = MemoryBackend::new();
    let hour = LockOptions::new().ttl(Duration::from_secs(3_600));
    let shared = leasehold_core::LockClient::builder(store.clone()).options(hour);
    let shared = shared.build().unwrap().into_dyn();
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    idle.block_on(shared.mutex("k").unwrap().run(async |_guard| ())).unwrap();
    let client = LockClient::from_async(async || Ok(shared)).unwrap();

    drop(client.mutex("k").unwrap().lock().unwrap());

    wait_until(|| store.keys() == 0);
}

#[test]
fn a_dropped_guard_is_released_when_its_drop_returns() {
    let (client, store, faults) = client_with(LockOptions::new());
    let slow = || faults.inject(Operation::Release, Fault::DelayRequest(SHORT), 1);

    let guard = client.mutex("k").unwrap().lock().unwrap();
    slow();
    drop(guard);
    assert_eq!(store.keys(), 0);

    let guard = client.multi_lock().mutexes(["one", "other"]).unwrap().lock().unwrap();
    slow();
    drop(guard);
    assert_eq!(store.keys(), 0);

    let term = client.election("leader").unwrap().campaign("here").unwrap();
    slow();
    drop(term);
    assert_eq!(store.keys(), 0);
}

#[test]
fn a_drop_in_async_code_does_not_wait() {
    let (client, store, faults) = client_with(LockOptions::new());
    let guard = client.mutex("k").unwrap().lock().unwrap();
    faults.inject(Operation::Release, Fault::DelayRequest(SHORT), 1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

    runtime.block_on(async { drop(guard) });

    assert_eq!(store.keys(), 1);
    wait_until(|| store.keys() == 0);
}

#[test]
fn a_store_that_does_not_answer_delays_all_drops_together_by_two_seconds() {
    let (client, _store, faults) = client_with(LockOptions::new());
    let guards: Vec<_> =
        (0..10).map(|n| client.mutex(format!("{n}")).unwrap().lock().unwrap()).collect();
    faults.inject(Operation::Release, Fault::SwallowRequest, 1_000);
    let start = Instant::now();

    drop(guards);

    let waited = start.elapsed().as_secs();
    assert!((2..4).contains(&waited), "{waited} s");
}
