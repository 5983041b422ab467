//! Clones of one backend.

use super::*;

const SHORT: Duration = Duration::from_secs(2);

/// A cluster, with the runtime on which it is watched.
fn start() -> (Runtime, Etcd, EtcdBackend) {
    let runtime = Runtime::new().unwrap();
    let etcd = runtime.block_on(Etcd::start());
    let backend = runtime.block_on(EtcdBackend::connect(&etcd.url())).unwrap();
    (runtime, etcd, backend)
}

fn client_of(backend: &EtcdBackend) -> LockClient<EtcdBackend> {
    let options = LockOptions::new().ttl(SHORT);
    LockClient::builder(backend.clone()).options(options).build().unwrap()
}

#[test]
fn keep_no_lock_alive_that_another_has_left_behind() {
    let (long, etcd, backend) = start();
    let (stays, goes) = (client_of(&backend), client_of(&backend));
    let held = long.block_on(async { stays.mutex("held").unwrap().lock().await.unwrap() });
    let short = Runtime::new().unwrap();
    let guard = short.block_on(async { goes.mutex("left").unwrap().lock().await.unwrap() });

    // No client is left to renew or release it.
    drop(short);
    drop((guard, goes));

    long.block_on(async {
        let store = store(&etcd).await;
        until("it ends", async || holder(&store, "left").await.is_none()).await;
        assert!(held.is_held());
    });
}

#[test]
fn keep_no_place_alive_that_another_has_left_behind() {
    let (long, etcd, backend) = start();
    let (stays, goes) = (client_of(&backend), client_of(&backend));
    let short = Runtime::new().unwrap();
    let [kept, left] = ["kept", "left"].map(|name| format!("lock/{name}/other"));
    let mut store = long.block_on(store(&etcd));
    for key in [kept, left] {
        long.block_on(store.put(key, "", None)).unwrap();
    }
    let wait = |client: &LockClient<EtcdBackend>, name: &str| {
        let mutex = client.mutex(name).unwrap();
        async move { mutex.lock().await.map(drop) }
    };
    let waits = long.spawn(wait(&stays, "kept"));
    short.spawn(wait(&goes, "left"));
    long.block_on(until("both wait", async || keys(&store).await == 4));

    // No client is left to keep its place or to leave it.
    drop(short);
    drop(goes);

    // A mark lies elsewhere, for a minute, if the reply had not come yet.
    long.block_on(until("its place ends", async || keys_under(&store, "lock/left/").await == 1));
    assert!(!waits.is_finished());
}
