//! Observers that misbehave, and several of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;

use super::*;

struct Panicking;

impl Observer for Panicking {
    fn on_acquired(&self, _: &Acquired<'_>) {
        panic!("as it is meant to");
    }
}

#[tokio::test(start_paused = true)]
async fn that_panic_stop_neither_the_call_nor_the_others() {
    let log = EventLog::default();
    let client =
        LockClient::builder(MemoryBackend::new()).observer(Panicking).observer(log.clone());
    let client = client.build().unwrap();

    client.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();

    assert!(log.0.lock().unwrap().contains(&"granted mutex k#1".to_owned()));
}

/// Uses the client, and looks at the guard that the event is about.
#[derive(Clone, Default)]
struct Curious {
    client: Arc<OnceLock<LockClient>>,
    guard: Arc<OnceLock<LockGuard>>,
    looks: Arc<AtomicU32>,
}

impl Curious {
    fn look(&self) {
        let mutex = self.client.get().unwrap().mutex("another").unwrap();
        drop(mutex.try_lock().now_or_never());
        let _state = self.guard.get().map(LockGuard::state);
        self.looks.fetch_add(1, Ordering::Relaxed);
    }
}

impl Observer for Curious {
    fn on_handed_over(&self, _: &HandedOver<'_>) {
        self.look();
    }

    fn on_renewed(&self, _: &Renewed<'_>) {
        self.look();
    }

    fn on_lost(&self, _: &Lost<'_>) {
        self.look();
    }
}

/// It would hang if the client held a mutex of its own meanwhile.
#[tokio::test(start_paused = true)]
async fn may_use_the_client() {
    let curious = Curious::default();
    let Fixture { client, .. } =
        Fixture::building(MemoryBackend::new().capabilities(), |builder| {
            builder.observer(curious.clone()).options(options())
        });
    assert!(curious.client.set(client.clone().into_dyn()).is_ok());
    let mutex = client.mutex("k").unwrap();

    // The second call waits when the grant of the first one arrives, so it takes over the lease.
    client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(1)), 1);
    let first = async { drop(mutex.lock().await.unwrap()) };
    let ((), next) = tokio::join!(first, mutex.lock());
    assert!(curious.guard.set(next.unwrap()).is_ok());
    pass(RENEWAL).await;
    client.admin().force_release("k", "to see").await.unwrap();
    pass(ms(100)).await;

    assert!(!curious.guard.get().unwrap().is_held());
    assert_eq!(curious.looks.load(Ordering::Relaxed), 3);
}
