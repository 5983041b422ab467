//! All that can happen to locks, in virtual time.

use std::time::Duration;

use leasehold::backend::Operation;
use leasehold::batch::{BatchLimits, Batcher, Lane, SendBatch};
use leasehold::clock::TokioClock;
use leasehold::fault::{Fault, FaultBackend, Notifications};
use leasehold::memory::MemoryBackend;
use leasehold::observe::Observer;
use leasehold::{ErrorKind, LockClient, LockOptions, TryLockError};

const TTL: Duration = Duration::from_secs(30);
const UNAVAILABLE: Fault = Fault::Fail(ErrorKind::Unavailable);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Makes every event come about at least once, and gives back the secrets that none may show.
pub(crate) async fn run(observer: impl Observer) -> Vec<String> {
    let clock = TokioClock::new();
    let store = MemoryBackend::with_clock(clock);
    let backend = FaultBackend::new(store.clone());
    let faults = backend.faults().clone();
    let options = LockOptions::new().ttl(TTL);
    let client = LockClient::builder(backend).clock(clock).options(options.clone());
    let client = client.observer(observer).long_wait(ms(5_000)).long_hold(ms(15_000));
    let client = client.build().unwrap();
    let other = LockClient::builder(store).clock(clock).options(options).build().unwrap();
    let (mutex, others) = (client.mutex("job").unwrap(), other.mutex("job").unwrap());
    let mut secrets = Vec::new();

    // Another process holds it: busy, a wait that ends, one by push and one by poll.
    let held = others.lock().await.unwrap();
    assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));
    assert!(matches!(mutex.try_lock_for(ms(10)).await, Err(TryLockError::Busy(_))));
    let (guard, ()) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(ms(6_000)).await;
        held.release().await.unwrap();
    });
    secrets.push(guard.unwrap().lease().id().secret());
    tokio::time::sleep(ms(10)).await;
    faults.set_notifications(Notifications::Muted);
    let held = others.lock().await.unwrap();
    let first = async {
        let guard = mutex.lock().await.unwrap();
        tokio::time::sleep(ms(5)).await;
        guard.release().await.unwrap();
    };
    // The second caller of this process waits, too, and takes over.
    let ((), next, ()) = tokio::join!(first, mutex.lock(), async {
        tokio::time::sleep(ms(100)).await;
        held.release().await.unwrap();
    });
    faults.set_notifications(Notifications::True);

    // It works long, and is renewed.
    let next = next.unwrap();
    secrets.push(next.lease().id().secret());
    next.while_held(tokio::time::sleep(ms(31_000))).await.unwrap();
    faults.inject(Operation::Renew, UNAVAILABLE, 1);
    tokio::time::sleep(ms(15_000)).await;
    next.release().await.unwrap();

    // An operator ends one; the store fails releases for a while, and for good.
    let forced = mutex.lock().await.unwrap();
    client.admin().force_release("job", "it hangs").await.unwrap();
    tokio::time::sleep(ms(100)).await;
    assert!(!forced.is_held());
    let guard = mutex.lock().await.unwrap();
    secrets.push(guard.lease().id().secret());
    faults.inject(Operation::Release, UNAVAILABLE, 1_000);
    assert!(guard.release().await.is_err());
    tokio::time::sleep(TTL).await;
    faults.heal();
    secrets
}

/// A store that replies to each request of a batch.
pub(crate) struct Echo;

impl SendBatch for Echo {
    type Request = ();
    type Reply = ();

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let Some(mut batch) = lane.next_batch() else { return };
        batch.answer_all(|()| ());
    }
}

pub(crate) fn batcher() -> Batcher<Echo> {
    Batcher::new("memory", Echo, BatchLimits::new(TTL))
}
