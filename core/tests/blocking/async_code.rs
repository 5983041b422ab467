//! The blocking face beside async code.

use super::*;

/// Makes each call that waits, and returns the outcomes.
fn calls(client: &LockClient, guard: Guard) -> Vec<Option<ErrorKind>> {
    let now = now();
    let mutex = client.mutex("m").unwrap();
    let reentrant = client.reentrant_mutex("r").unwrap();
    let lock = client.rw_lock("rw").unwrap();
    let permits = client.semaphore("s", 1).unwrap();
    let admin = client.admin();
    let build = async || Ok(leasehold_core::LockClient::new(MemoryBackend::new()).into_dyn());
    let plain = |_guard: &Guard| ();
    vec![
        kind(mutex.lock()),
        kind(mutex.try_lock().map_err(Error::from)),
        kind(mutex.try_lock_for(SHORT).map_err(Error::from)),
        kind(mutex.try_lock_until(now).map_err(Error::from)),
        kind(mutex.run(plain)),
        kind(mutex.is_locked()),
        kind(reentrant.lock()),
        kind(reentrant.try_lock().map_err(Error::from)),
        kind(reentrant.try_lock_for(SHORT).map_err(Error::from)),
        kind(reentrant.try_lock_until(now).map_err(Error::from)),
        kind(reentrant.run(plain)),
        kind(reentrant.is_locked()),
        kind(lock.read()),
        kind(lock.try_read().map_err(Error::from)),
        kind(lock.try_read_for(SHORT).map_err(Error::from)),
        kind(lock.try_read_until(now).map_err(Error::from)),
        kind(lock.write()),
        kind(lock.try_write().map_err(Error::from)),
        kind(lock.try_write_for(SHORT).map_err(Error::from)),
        kind(lock.try_write_until(now).map_err(Error::from)),
        kind(lock.is_locked()),
        kind(permits.acquire(1)),
        kind(permits.try_acquire(1).map_err(Error::from)),
        kind(permits.try_acquire_for(1, SHORT).map_err(Error::from)),
        kind(permits.try_acquire_until(1, now).map_err(Error::from)),
        kind(permits.run(1, plain)),
        kind(permits.available()),
        kind(admin.inspect("k")),
        kind(admin.list("").unwrap().next_page()),
        kind(admin.force_release("k", "part of the test")),
        kind(client.request_revocation("k")),
        kind(client.shutdown(SHORT)),
        kind(guard.wait_lost(SHORT)),
        kind(guard.extend(LONG)),
        kind(guard.release()),
        kind(LockClient::from_async(build)),
    ]
}

#[tokio::test]
async fn is_told_to_await_by_every_call_that_would_block_it() {
    let (client, guard) = elsewhere(|| {
        let client = client();
        let guard = client.mutex("k").unwrap().lock().unwrap();
        (client, guard)
    });

    for (n, kind) in calls(&client, guard).iter().enumerate() {
        assert_eq!(*kind, Some(ErrorKind::Unsupported), "call {n}");
    }
}

#[test]
fn is_any_place_where_a_runtime_is_entered() {
    let client = client();
    let mutex = client.mutex("k").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let try_lock = |mutex: &Mutex| kind(mutex.try_lock().map_err(Error::from));

    let entered = {
        let _entered = runtime.enter();
        try_lock(&mutex)
    };
    let blocking = mutex.clone();
    let blocking = runtime.block_on(runtime.spawn_blocking(move || try_lock(&blocking)));

    assert_eq!(entered, Some(ErrorKind::Unsupported));
    assert_eq!(blocking.unwrap(), Some(ErrorKind::Unsupported));
    assert_eq!(try_lock(&mutex), None);
}

#[test]
fn is_told_that_no_thread_can_be_made() {
    const NO_THREADS: &str = "LEASEHOLD_TEST_NO_THREADS";
    if std::env::var_os(NO_THREADS).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let made = runtime.block_on(async { LockClient::new(MemoryBackend::new()) });
        println!("it says {:?}", kind(made));
        return;
    }
    let this = "blocking::async_code::is_told_that_no_thread_can_be_made";
    // No address space is large enough for the stack of another thread, so the test runs on the main one.
    let child = Command::new(std::env::current_exe().unwrap())
        .args([this, "--exact", "--nocapture"])
        .env(NO_THREADS, "1")
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    let output = child.wait_with_output().unwrap();

    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("it says Some(Unavailable)"), "{said}");
}

#[test]
fn may_make_look_at_and_drop_all_of_it() {
    let (client, store, _faults) = client_with(LockOptions::new());
    let guard = client.mutex("k").unwrap().lock().unwrap();
    let writer = client.rw_lock("rw").unwrap().write().unwrap();
    let released = client.mutex("released").unwrap().lock().unwrap();
    let downgraded = client.rw_lock("downgraded").unwrap().write().unwrap();

    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async move {
        drop(LockClient::new(MemoryBackend::new()).unwrap());
        assert!(guard.is_held() && writer.is_held());
        assert_eq!(kind(released.release()), Some(ErrorKind::Unsupported));
        assert_eq!(kind(downgraded.downgrade()), Some(ErrorKind::Unsupported));
        drop((guard, writer, client));
    });

    wait_until(|| store.keys() == 0);
}
