//! Models of the watch. The models check that a watch does not miss an event that occurs between
//! its check and its wait, and that a key is removed when its last watch is dropped.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use super::{in_all_orders, in_many_orders, join, key};
use crate::contract::backend::{Claim, KeyWatch, KeyWatches, Lease, LeaseId, Patience, WokenBy};
use crate::sync::atomic::{AtomicU32, Ordering};

#[test]
fn event_between_look_and_wait_wakes_the_watcher() {
    in_all_orders(|| {
        let scene = Scene::new();
        let mut watch = scene.watches.watch(&key());
        let events = scene.causes_events(1);

        while scene.events() < 1 {
            block_on(watch.changed());
        }

        join([events]);
    });
}

#[test]
fn event_between_skip_and_wait_wakes_the_watcher() {
    in_many_orders(|| {
        let scene = Scene::new();
        let mut watch = scene.watches.watch(&key());
        let events = [scene.causes_events(1), scene.causes_events(2)];

        loop {
            watch.skip();
            if scene.events() == 3 {
                break;
            }
            block_on(watch.changed());
        }

        join(events);
    });
}

#[test]
fn event_during_a_look_shows_in_the_next() {
    in_all_orders(|| {
        let scene = Scene::new();
        let mut watch = scene.polled_watch();
        let events = scene.causes_events(1);

        watch.has_changed();
        join([events]);

        assert!(watch.has_changed());
        assert!(watch.poll_changed(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(!watch.has_changed());
    });
}

#[test]
fn event_wakes_the_thread_that_polled_last() {
    in_all_orders(|| {
        let scene = Scene::new();
        let mut watch = scene.polled_watch();
        let events = scene.causes_events(1);

        join([thread::spawn(move || block_on(watch.changed()))]);

        join([events]);
    });
}

#[test]
fn event_wakes_every_watcher_that_stays() {
    in_many_orders(|| {
        let scene = Scene::new();
        let watchers = [0; 2].map(|_| scene.watches_until_event());
        let mut leaving = scene.watches.watch(&key());
        let leaver = thread::spawn(move || {
            let _polled = leaving.poll_changed(&mut Context::from_waker(Waker::noop()));
        });

        join([scene.causes_events(1)]);

        join(watchers);
        join([leaver]);
        assert_eq!(scene.watches.watched_keys(), 0);
    });
}

#[test]
fn nothing_is_left_of_a_key_after_its_last_watch() {
    in_all_orders(|| {
        let watches = KeyWatches::default();
        let threads = [0; 2].map(|_| {
            let watches = watches.clone();
            thread::spawn(move || {
                let mut watch = watches.watch(&key());
                let _polled = watch.poll_changed(&mut Context::from_waker(Waker::noop()));
            })
        });

        join(threads);

        assert_eq!(watches.watched_keys(), 0);
    });
}

#[test]
fn call_between_look_and_wait_wakes_the_claim() {
    in_many_orders(|| {
        let (scene, claim) = (Scene::new(), claim());
        let mut watch = scene.watches.watch_claim(&claim);
        watch.set_woken_by(WokenBy::Claim);
        let (calls, others) = (scene.calls(claim.id()), scene.causes_events(1));

        while scene.events() < CALLED {
            block_on(watch.changed());
        }

        drop(watch);
        join([calls, others]);
        assert_eq!(scene.watches.watched_keys(), 0);
    });
}

/// Marks a claim that was notified individually. This value is larger than the number of events in
/// any model.
const CALLED: u32 = 100;

/// Returns the claim of a waiting caller.
fn claim() -> Claim {
    Claim::new(Lease::new(&key(), Duration::from_secs(30))).with_patience(Patience::Waits)
}

#[derive(Clone, Default)]
struct Scene {
    watches: KeyWatches,
    events: Arc<AtomicU32>,
}

impl Scene {
    fn new() -> Self {
        Self::default()
    }

    fn events(&self) -> u32 {
        self.events.load(Ordering::SeqCst)
    }

    /// Returns a watch that waits for the next event.
    fn polled_watch(&self) -> KeyWatch {
        let mut watch = self.watches.watch(&key());
        assert!(watch.poll_changed(&mut Context::from_waker(Waker::noop())).is_pending());
        watch
    }

    /// Causes events one by one and sends a notification for each event.
    fn causes_events(&self, count: u32) -> thread::JoinHandle<()> {
        let scene = self.clone();
        thread::spawn(move || {
            for _ in 0..count {
                scene.events.fetch_add(1, Ordering::SeqCst);
                scene.watches.notify("k");
            }
        })
    }

    /// Notifies a single claim.
    fn calls(&self, id: LeaseId) -> thread::JoinHandle<()> {
        let scene = self.clone();
        thread::spawn(move || {
            scene.events.fetch_add(CALLED, Ordering::SeqCst);
            scene.watches.notify_claim(&id.secret());
        })
    }

    fn watches_until_event(&self) -> thread::JoinHandle<()> {
        let scene = self.clone();
        thread::spawn(move || {
            let mut watch = scene.watches.watch(&key());
            while scene.events() == 0 {
                block_on(watch.changed());
            }
        })
    }
}
