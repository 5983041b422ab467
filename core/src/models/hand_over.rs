//! Models of a lock from `lock()` to its release. The models cover hand-off, cancellation and
//! shutdown while the maintenance task is running.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use super::{Stopped, cancelled_after, in_many_orders, join};
use crate::backends::memory::MemoryBackend;
use crate::client::LockClient;
use crate::contract::error::ErrorKind;
use crate::locks::guard::LockGuard;
use crate::locks::mutex::Mutex;
use crate::sync::scheduling_point;

#[test]
fn lock_has_one_holder_at_a_time() {
    in_many_orders(|| {
        let scene = Arc::new(Scene::new());
        let others =
            [Scene::lock_and_release, Scene::lock_and_drop].map(|part: fn(&Scene)| scene.run(part));

        scene.lock_and_release();

        join(others);
        scene.assert_ends_released();
    });
}

#[test]
fn cancelled_waiter_leaves_the_lock_to_others() {
    for polls in 0..3 {
        in_many_orders(move || {
            let scene = Arc::new(Scene::new());
            let other = scene.run(Scene::lock_and_drop);
            let cancelled = scene.run(move |scene| scene.leave_after(polls));

            scene.lock_and_release();

            join([other, cancelled]);
            scene.assert_ends_released();
        });
    }
}

#[test]
fn shutdown_leaves_nothing_to_come() {
    in_many_orders(|| {
        let scene = Arc::new(Scene::new());
        let others = [0; 2].map(|_| scene.run(Scene::lock_unless_shut_down));

        scene.assert_ends_released();

        join(others);
        assert_eq!(scene.store.keys(), 0, "a request comes after the shutdown");
    });
}

struct Scene {
    store: MemoryBackend,
    client: LockClient<MemoryBackend>,
    holders: AtomicU32,
    last_token: AtomicU64,
}

impl Scene {
    fn new() -> Self {
        let store = MemoryBackend::with_clock(Stopped);
        let client = LockClient::builder(store.clone()).clock(Stopped).build().expect("valid");
        Self { store, client, holders: AtomicU32::new(0), last_token: AtomicU64::new(0) }
    }

    fn run(self: &Arc<Self>, part: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || part(&scene))
    }

    fn lock_and_release(&self) {
        let guard = block_on(self.mutex().lock()).expect("no lock fails");
        self.record(&guard);
        block_on(guard.release()).expect("the store answers");
    }

    fn lock_and_drop(&self) {
        let guard = block_on(self.mutex().lock()).expect("no lock fails");
        self.record(&guard);
    }

    fn lock_unless_shut_down(&self) {
        match block_on(self.mutex().lock()) {
            Ok(guard) => drop(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
        }
    }

    fn leave_after(&self, polls: u32) {
        let mutex = self.mutex();
        if let Some(guard) = cancelled_after(polls, pin!(mutex.lock())) {
            self.record(&guard.expect("no lock fails"));
        }
    }

    fn mutex(&self) -> Mutex {
        self.client.mutex("k").expect("it is a valid key")
    }

    /// Does work that only one holder at a time may do. Each holder must have a larger token than
    /// the previous holder.
    fn record(&self, guard: &LockGuard) {
        assert_eq!(self.holders.fetch_add(1, Ordering::Relaxed), 0, "the lock has two holders");
        let token = guard.token().number();
        assert!(self.last_token.swap(token, Ordering::Relaxed) < token, "tokens go back");
        scheduling_point();
        assert!(guard.is_held());
        self.holders.fetch_sub(1, Ordering::Relaxed);
    }

    /// Checks that neither the client nor the store keeps any state of the lock.
    fn assert_ends_released(&self) {
        block_on(self.client.shutdown(Duration::from_secs(5))).expect("all is released");
        assert_eq!(self.store.keys(), 0, "the store keeps a lock");
    }
}
