//! The same on a real server, which goes down and comes back.

use std::time::Duration;

use leasehold::observe::{Observer, Store, StoreChange, Waiting, WakeUp, Woken};
use leasehold::retry::Retry;
use leasehold::{LockClient, LockOptions};
use leasehold_testbed::{Redis, patiently};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(60);

#[derive(Debug, Eq, PartialEq)]
enum Told {
    Waiting,
    Woken(WakeUp),
    Store(&'static str, bool),
}

struct Teller(UnboundedSender<Told>);

impl Observer for Teller {
    fn on_waiting(&self, _: &Waiting<'_>) {
        self.0.send(Told::Waiting).unwrap_or_default();
    }

    fn on_woken(&self, woken: &Woken<'_>) {
        self.0.send(Told::Woken(woken.by)).unwrap_or_default();
    }

    fn on_store(&self, store: &Store<'_>) {
        let up = matches!(store.change, StoreChange::Up { .. });
        self.0.send(Told::Store(store.store, up)).unwrap_or_default();
    }
}

/// A client whose callers ask again when the server tells them to.
async fn client(url: &str) -> (LockClient, UnboundedReceiver<Told>) {
    let (sender, told) = unbounded_channel();
    let options = LockOptions::new().retry(Retry::unlimited().every(LONG)).outage_wait(LONG);
    let client = LockClient::builder(leasehold::backend::connect(&patiently(url)).await.unwrap());
    let client = client.options(options.ttl(LONG)).observer(Teller(sender)).build().unwrap();
    (client.into_dyn(), told)
}

async fn next(told: &mut UnboundedReceiver<Told>) -> Told {
    timeout(SOON, told.recv()).await.expect("nothing is told").expect("the client is there")
}

#[tokio::test]
async fn wakes_up_those_that_wait_by_a_push() {
    let redis = Redis::start().await;
    let (holder, _) = client(&redis.url()).await;
    let (waiter, mut told) = client(&redis.url()).await;
    let held = holder.mutex("job").unwrap().lock().await.unwrap();
    let mutex = waiter.mutex("job").unwrap();
    let call = tokio::spawn(async move { mutex.lock().await });
    assert_eq!(next(&mut told).await, Told::Store("redis", true));
    assert_eq!(next(&mut told).await, Told::Waiting);

    held.release().await.unwrap();

    assert_eq!(next(&mut told).await, Told::Woken(WakeUp::Push));
    drop(timeout(SOON, call).await.unwrap().unwrap().unwrap());
}

#[tokio::test]
async fn is_told_to_be_down_and_up_again() {
    let mut redis = Redis::start().await;
    let (client, mut told) = client(&redis.url()).await;
    let mutex = client.mutex("job").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    assert_eq!(next(&mut told).await, Told::Store("redis", true));

    redis.kill();
    let call = tokio::spawn(async move { mutex.lock().await });
    assert_eq!(next(&mut told).await, Told::Store("redis", false));
    assert_eq!(next(&mut told).await, Told::Waiting);

    redis.restart().await;
    assert_eq!(next(&mut told).await, Told::Store("redis", true));
    drop(timeout(SOON, call).await.unwrap().unwrap().unwrap());
}
