//! Models of the batcher of backends. The models check that each request is sent at most once and
//! gets exactly one reply, that no request waits without a lane, and that all lanes end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use super::{in_many_orders, join};
use crate::batch::{BatchLimits, Batcher, Lane, SendBatch};
use crate::sync::{Mutex, lock, scheduling_point, yield_now};

#[test]
fn two_callers_get_their_own_replies() {
    in_many_orders(|| {
        let scene = Scene::new(LIMITS);
        let other = scene.run(|scene| scene.call(1));

        scene.call(2);

        join([other]);
        scene.assert_all_were_sent([1, 2]);
    });
}

#[test]
fn no_request_waits_without_a_lane() {
    in_many_orders(|| {
        let scene = Scene::new(LIMITS);
        let others = [1, 2].map(|number| scene.run(move |scene| scene.call_twice(number)));

        scene.call_twice(3);

        join(others);
        scene.assert_all_were_sent([1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn caller_that_leaves_does_not_delay_others() {
    in_many_orders(|| {
        let scene = Scene::new(LIMITS.with_requests(1));
        let leaving = scene.run(|scene| scene.leave(1));
        let other = scene.run(|scene| scene.call(2));

        scene.call(3);

        join([leaving, other]);
        scene.assert_becomes_idle();
        let sent = scene.sent();
        assert!(sent == [2, 3] || sent == [1, 2, 3], "{sent:?}");
    });
}

#[test]
fn replaced_lanes_send_nothing_twice() {
    in_many_orders(|| {
        // Without a time limit, each caller replaces the lanes of earlier callers.
        let scene = Scene::new(BatchLimits::new(Duration::ZERO).with_requests(1));
        let others = [1, 2, 3, 4].map(|number| scene.run(move |scene| scene.call(number)));

        scene.call(5);

        join(others);
        scene.assert_all_were_sent([1, 2, 3, 4, 5]);
    });
}

#[test]
fn callers_that_send_alone_are_counted() {
    in_many_orders(|| {
        let scene = Scene::new(LIMITS);
        let others = [1, 2, 3, 4].map(|number| scene.run(move |scene| scene.call_any(number)));

        scene.call_any(5);

        join(others);
        scene.assert_all_were_sent([1, 2, 3, 4, 5]);
    });
}

/// Lanes are never replaced.
const LIMITS: BatchLimits = BatchLimits::new(Duration::MAX);

/// A store that replies to each number with its negation.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Vec<i32>>>);

impl SendBatch for Store {
    type Request = i32;
    type Reply = i32;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let Some(mut batch) = lane.next_batch() else { return };
        let requests: Vec<(usize, i32)> = batch.open().map(|(n, request)| (n, *request)).collect();
        lock(&self.0).extend(requests.iter().map(|(_, request)| request));
        yield_now().await;
        for (index, request) in requests {
            scheduling_point();
            batch.answer(index, -request);
        }
    }
}

struct Scene {
    store: Store,
    batcher: Batcher<Store>,
}

impl Scene {
    fn new(limits: BatchLimits) -> Arc<Self> {
        let store = Store::default();
        Arc::new(Self { batcher: Batcher::new("model", store.clone(), limits), store })
    }

    fn run(self: &Arc<Self>, part: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || part(&scene))
    }

    /// Sends a request in a batch, and checks the reply.
    fn call(&self, number: i32) {
        let submitted = self.batcher.submit(number).expect("the queue is not full");
        let reply = block_on(submitted.reply());
        assert_eq!(reply.expect("a lane replies to each request"), -number);
    }

    /// Sends two requests. The second request arrives while the lane of the first request is
    /// ending.
    fn call_twice(&self, number: i32) {
        self.call(number);
        self.call(number + 3);
    }

    /// Sends a request alone if few requests are in progress, or else in a batch.
    fn call_any(&self, number: i32) {
        let Some(_alone) = self.batcher.alone() else { return self.call(number) };
        lock(&self.store.0).push(number);
    }

    /// Submits a request, and leaves before the reply.
    fn leave(&self, number: i32) {
        let submitted = self.batcher.submit(number).expect("the queue is not full");
        scheduling_point();
        let _reply = submitted.reply().now_or_never();
    }

    /// Returns the requests that the store has received, sorted.
    fn sent(&self) -> Vec<i32> {
        let mut sent = lock(&self.store.0).clone();
        sent.sort_unstable();
        sent
    }

    /// Waits until all lanes have ended.
    fn assert_becomes_idle(&self) {
        block_on(async {
            while !self.batcher.is_idle() {
                yield_now().await;
            }
        });
        assert_eq!(self.batcher.stats().queued, 0);
    }

    fn assert_all_were_sent<const N: usize>(&self, expected: [i32; N]) {
        self.assert_becomes_idle();
        assert_eq!(self.sent(), expected);
    }
}
