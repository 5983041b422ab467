//! Observers that misbehave, and several of them.

use std::sync::OnceLock;

use super::*;

struct Panicking;

impl Observer for Panicking {
    fn on_acquired(&self, _: &Acquired<'_>) {
        panic!("as it is meant to");
    }
}

#[tokio::test(start_paused = true)]
async fn that_panic_stop_neither_the_call_nor_the_others() {
    let story = Story::default();
    let client =
        LockClient::builder(MemoryBackend::new()).observer(Panicking).observer(story.clone());
    let client = client.build().unwrap();

    client.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();

    assert!(story.0.lock().unwrap().contains(&"granted mutex k#1".to_owned()));
}

/// Uses the client at each event.
#[derive(Clone, Default)]
struct Curious(Arc<OnceLock<LockClient<MemoryBackend>>>);

impl Curious {
    fn look(&self) {
        let client = self.0.get().unwrap();
        let mutex = client.mutex("another").unwrap();
        drop(futures_util::FutureExt::now_or_never(mutex.try_lock()));
    }
}

impl Observer for Curious {
    fn on_lost(&self, it: &Lost<'_>) {
        assert_eq!(it.lock.key, &LockKey::new("k").unwrap());
        self.look();
    }

    fn on_renewed(&self, _: &Renewed<'_>) {
        self.look();
    }

    fn on_handed_over(&self, _: &HandedOver<'_>) {
        self.look();
    }
}

/// A mutex that the client holds meanwhile would hang this test.
#[tokio::test(start_paused = true)]
async fn may_use_the_client() {
    let (curious, clock) = (Curious::default(), TokioClock::new());
    let store = MemoryBackend::with_clock(clock);
    let client = LockClient::builder(store.clone()).clock(clock).observer(curious.clone());
    let client = client.options(LockOptions::new().ttl(TTL)).build().unwrap();
    assert!(curious.0.set(client.clone()).is_ok());
    let mutex = client.mutex("k").unwrap();

    let first = mutex.lock().await.unwrap();
    let (_, next) = tokio::join!(
        async {
            pass(ms(1)).await;
            drop(first);
        },
        mutex.lock()
    );
    let next = next.unwrap();
    pass(RENEWAL).await;
    client.admin().force_release("k", "to see").await.unwrap();
    pass(ms(100)).await;

    assert!(!next.is_held());
}
