//! Models of concurrency: `shuttle` runs the layers that threads of one process share in many orders.
//!
//! `shuttle` chooses at each scheduling point (`core/src/sync/modelled.rs`) which thread goes on, and reports a thread that waits for
//! ever as a deadlock. No clock fires, so an event that is missed is missed for good. Small models run in all orders, larger ones
//! in a bounded number of random orders. `scripts/verify` runs them.
//!
//! Memory is sequentially consistent in a model: it finds no ordering that is too weak. `loom` looks for those, but takes `SeqCst` for less
//! than it is, and would report the handshake of [`reaper`] although it is right. An operation of tokio (`Notify`, `oneshot`) is one step.

mod hand_over;
mod queue;
mod reaper;
mod watch;

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::JoinHandle;
use shuttle::{Config, Runner};

use crate::clock::{Clock, Instant, Sleep};
use crate::contract::key::LockKey;
use crate::sync::scheduling_point;

/// Random orders per model: all models together take about ten seconds of one core.
const RANDOM_ORDERS: usize = 4_000;

/// Preemptions of a thread in an order that has few of them. Most races need one or two.
const PREEMPTIONS: usize = 3;

/// Bytes of a thread's stack. The future of a whole call needs more than `shuttle` gives by itself, and an overflow is a mere crash.
const STACK_SIZE: usize = 256 * 1024;

/// Runs `model` in all orders.
fn in_all_orders(model: fn()) {
    run(DfsScheduler::new(None, false), model);
}

/// Runs `model` in many orders: in half of them any step may come next, in the others threads are preempted rarely.
fn in_many_orders(model: impl Fn() + Copy + Send + Sync + 'static) {
    run(RandomScheduler::new(RANDOM_ORDERS / 2), model);
    run(PctScheduler::new(PREEMPTIONS, RANDOM_ORDERS / 2), model);
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_SIZE;
    Runner::new(scheduler, config).run(model);
}

/// Polls `future` up to `polls` times and drops it unfinished, as a caller does that is cancelled.
fn cancelled_after<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    (0..polls).find_map(|_| {
        scheduling_point();
        future.as_mut().now_or_never()
    })
}

/// Waits until `threads` have ended, in this order.
fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let join = |thread: JoinHandle<T>| thread.join().expect("a model ends with its first panic");
    threads.into_iter().map(join).collect()
}

fn key() -> LockKey {
    LockKey::new("k").expect("it is a valid key")
}

/// A clock that never fires.
#[derive(Clone, Copy, Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Instant {
        Instant::from_zero(Duration::from_secs(3_600))
    }

    fn sleep_until(&self, _deadline: Instant) -> Sleep {
        Box::pin(pending())
    }

    fn is_real_time(&self) -> bool {
        false
    }
}
