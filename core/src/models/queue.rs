//! Models of the local queue. The models check that only one caller per key has the right to send
//! requests at a time, that callers take turns in order of arrival, and that no turn is lost when a
//! waiter leaves.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use super::{Stopped, cancelled_after, in_all_orders, in_many_orders, join, key};
use crate::clock::Clock;
use crate::contract::backend::Mode;
use crate::engine::queue::{LocalQueue, Next, StoreAccess};
use crate::engine::record::LeaseRecord;
use crate::engine::request::LockRequest;
use crate::engine::retry_state::RetryState;
use crate::engine::wait::Wait;
use crate::observe::AskedKind;
use crate::options::LockOptions;
use crate::retry::Retry;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, lock};

#[test]
fn two_callers_take_turns() {
    in_all_orders(|| {
        let scene = Arc::new(Scene::new());
        let other = scene.run(Scene::take_turn);

        scene.take_turn();

        join([other]);
        scene.assert_nothing_is_left();
    });
}

#[test]
fn every_caller_gets_its_turn_alone() {
    in_many_orders(|| {
        let scene = Arc::new(Scene::new());
        let others = [0; 3].map(|_| scene.run(Scene::take_turn));

        scene.take_turn();

        join(others);
        scene.assert_nothing_is_left();
    });
}

#[test]
fn cancelled_caller_passes_its_turn_on() {
    for polls in 0..3 {
        in_many_orders(move || {
            let scene = Arc::new(Scene::new());
            let others = [0; 2].map(|_| scene.run(Scene::take_turn));
            let cancelled = scene.run(move |scene| scene.leave_after(polls));

            scene.take_turn();

            join(others);
            join([cancelled]);
            scene.assert_nothing_is_left();
        });
    }
}

#[test]
fn turns_come_in_the_order_of_asking() {
    in_many_orders(|| {
        let scene = Arc::new(Scene::new());
        let first = block_on(turn(Arc::clone(&scene.queue)));
        let waiters = [1, 2, 3].map(|place| scene.run_in_line(place));

        drop(first);

        join(waiters);
        assert_eq!(*lock(&scene.served), [1, 3]);
        scene.assert_nothing_is_left();
    });
}

struct Scene {
    queue: Arc<LocalQueue<LeaseRecord>>,
    /// The number of callers that have the turn.
    with_turn: AtomicU32,
    served: Mutex<Vec<u32>>,
}

impl Scene {
    fn new() -> Self {
        let queue = Arc::new(LocalQueue::new(10));
        Self { queue, with_turn: AtomicU32::new(0), served: Mutex::default() }
    }

    fn run(self: &Arc<Self>, part: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || part(&scene))
    }

    /// Runs a caller that is already queued. The second caller leaves without its turn.
    fn run_in_line(self: &Arc<Self>, place: u32) -> JoinHandle<()> {
        let mut waiting = Box::pin(turn(Arc::clone(&self.queue)));
        assert!(
            waiting.as_mut().now_or_never().is_none(),
            "queued callers wait for the first caller"
        );
        self.run(move |scene| {
            if place == 2 {
                return drop(waiting);
            }
            let _turn = block_on(waiting);
            lock(&scene.served).push(place);
        })
    }

    fn take_turn(&self) {
        self.act(block_on(turn(Arc::clone(&self.queue))));
    }

    fn leave_after(&self, polls: u32) {
        let turn = turn(Arc::clone(&self.queue));
        if let Some(turn) = cancelled_after(polls, pin!(turn)) {
            self.act(turn);
        }
    }

    /// Does work that only one caller at a time may do.
    fn act(&self, turn: StoreAccess<LeaseRecord>) {
        assert_eq!(self.with_turn.fetch_add(1, Ordering::SeqCst), 0, "two callers have the turn");
        self.with_turn.fetch_sub(1, Ordering::SeqCst);
        drop(turn);
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.queue.len(), 0, "the queue still contains a key without waiting callers");
    }
}

/// Waits for the turn, like a caller that does not accept a different caller's lease.
async fn turn(queue: Arc<LocalQueue<LeaseRecord>>) -> StoreAccess<LeaseRecord> {
    let (key, options) = (key(), Arc::new(LockOptions::default()));
    let request = LockRequest {
        key: &key,
        options: &options,
        mode: Mode::Exclusive,
        kind: AskedKind::Mutex,
        queues: false,
        owner: None,
        wait: Wait::lasting(None, Stopped.now()),
    };
    let mut retries = RetryState::new(&Retry::default(), Stopped.now());
    let next = queue.turn(&request, None, &mut retries, &Stopped).await;
    match next.expect("there is room, and no outage") {
        Next::Ask(access) => access,
        Next::Guard(_) | Next::Held(_) => unreachable!("no caller holds a lease"),
    }
}
