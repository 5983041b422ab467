//! Several locks at once: all or none, in one order, within one wait.

mod all_or_none;
mod guard;
mod loss;
mod order;
mod parts;
#[path = "../scene/mod.rs"]
mod scene;
mod together;
mod wait;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{Clock, Instant, Sleep, TokioClock};
use leasehold_core::fault::Fault;
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, ErrorKind, Feature, Lease, LockBackend, LockClient,
    LockOptions, LossReason, MemoryBackend, MultiGuard, MultiLock, Operation, Release, Renewal,
    RenewalMode,
};

use self::scene::{DRIFT, Scene, TTL, dropped_after, key, ms};

const KEYS: [&str; 3] = ["a", "b", "c"];

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL)
}

fn three(scene: &Scene) -> MultiLock {
    scene.client.multi_lock().mutexes(KEYS).unwrap()
}

/// The parts of which no other client gets a lock.
async fn closed(scene: &Scene) -> Vec<&'static str> {
    let mut closed = Vec::new();
    for key in KEYS {
        match scene.other.mutex(key).unwrap().try_lock().await.unwrap() {
            Some(guard) => guard.release().await.unwrap(),
            None => closed.push(key),
        }
    }
    closed
}

/// Tokio's time, which may jump.
#[derive(Clone, Debug)]
struct Jumping {
    clock: TokioClock,
    jump_ms: Arc<AtomicU64>,
}

impl Default for Jumping {
    fn default() -> Self {
        Self { clock: TokioClock::new(), jump_ms: Arc::default() }
    }
}

impl Jumping {
    fn jump(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.jump_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        self.clock.now() + ms(self.jump_ms.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let this = self.clone();
        Box::pin(async move {
            while this.now() < deadline {
                tokio::time::sleep(ms(1)).await;
            }
        })
    }
}
