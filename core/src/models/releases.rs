//! Models of the handshake between callers with a pending release and a shutdown that waits for all
//! releases.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shuttle::future::block_on;
use shuttle::thread;

use super::{Stopped, in_all_orders, in_many_orders, join, key};
use crate::contract::backend::{
    Attempt, Capabilities, Claim, Fencing, Lease, LockBackend, Release, Renewal,
};
use crate::contract::error::Error;
use crate::engine::record::LeaseRecord;
use crate::engine::releases::{PendingRelease, ReleaseQueue};
use crate::observe::Events;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn shutdown_waits_for_a_caller_or_stops_it() {
    in_all_orders(|| {
        let scene = Arc::new(Scene::new());
        let caller = scene.run(Scene::call_and_release);

        scene.shut_down();

        join([caller]);
    });
}

#[test]
fn two_shutdowns_wait_for_the_same_caller() {
    in_many_orders(|| {
        let scene = Arc::new(Scene::new());
        let caller = scene.run(Scene::call_and_release);
        let other = scene.run(|scene| block_on(scene.releases.wait_settled()));

        scene.shut_down();

        join([other, caller]);
    });
}

#[test]
fn shutdown_waits_for_releases_left_to_two_reapers() {
    in_many_orders(|| {
        let scene = Arc::new(Scene::new());
        let reapers = [0; 2].map(|_| scene.run(|scene| block_on(scene.releases.run(&scene.store))));
        let callers = [Scene::call_and_release, Scene::call_and_drop, Scene::call_and_drop]
            .map(|call: fn(&Scene)| scene.run(call));

        scene.shut_down();

        join(callers);
        scene.releases.finish();
        join(reapers);
    });
}

struct Scene {
    releases: Arc<ReleaseQueue>,
    store: Store,
}

impl Scene {
    fn new() -> Self {
        Self {
            releases: Arc::new(ReleaseQueue::new(Arc::new(Stopped), Events::default())),
            store: Store::default(),
        }
    }

    fn run(self: &Arc<Self>, part: impl FnOnce(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || part(&scene))
    }

    /// Shuts down like the engine. After the shutdown, the store must not hold a lease, and no
    /// request may arrive.
    fn shut_down(&self) {
        block_on(self.releases.wait_settled());
        assert_eq!(self.store.leases.load(Ordering::SeqCst), 0, "a lease outlasts the shutdown");
        self.store.is_closed.store(true, Ordering::SeqCst);
    }

    fn call_and_release(&self) {
        if let Some(mut pending) = self.call() {
            self.store.end();
            pending.disarm();
        }
    }

    fn call_and_drop(&self) {
        drop(self.call());
    }

    /// Sends a request as an acquisition would.
    fn call(&self) -> Option<PendingRelease<'_>> {
        let lease = Lease::new(&key(), Duration::from_secs(30));
        let mut pending = PendingRelease::new(LeaseRecord::of(lease, None), &self.releases);
        pending.arm();
        if self.releases.is_awaited() {
            pending.disarm();
            return None;
        }
        self.store.grant();
        Some(pending)
    }
}

#[derive(Debug, Default)]
struct Store {
    leases: AtomicUsize,
    is_closed: AtomicBool,
}

impl Store {
    fn grant(&self) {
        self.leases.fetch_add(1, Ordering::SeqCst);
        assert!(!self.is_closed.load(Ordering::SeqCst), "a request comes after the shutdown");
    }

    fn end(&self) {
        self.leases.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The queue of releases only calls `release`.
#[async_trait]
impl LockBackend for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("model", Fencing::Strict)
    }

    async fn acquire(&self, _claim: &Claim) -> Result<Attempt, Error> {
        unreachable!("the model's callers do not acquire leases from the store")
    }

    async fn renew(&self, _lease: &Lease) -> Result<Renewal, Error> {
        unreachable!("no lease of the model has a minimum hold")
    }

    async fn release(&self, _lease: &Lease) -> Result<Release, Error> {
        self.end();
        Ok(Release::Released)
    }
}
