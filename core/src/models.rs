//! Concurrency models, in which `shuttle` runs the code shared by a process's threads in many
//! orders.
//!
//! At each scheduling point (`core/src/sync/modelled.rs`), `shuttle` chooses which thread runs
//! next. `shuttle` reports a thread that waits indefinitely as a deadlock. Timers never fire in a
//! model, so a timeout cannot hide a missed event. Small models run in all orders, and larger
//! models run in a bounded number of random orders. `scripts/verify` runs the models.
//!
//! Memory is sequentially consistent in a model, so the models cannot find a memory ordering that
//! is too weak. `loom` can find weak memory orderings, but it treats `SeqCst` as weaker than it is
//! and would report the correct handshake of [`releases`] as an error. Each operation of a tokio
//! type (`Notify`, `oneshot`) is a single step for `shuttle`.

mod batcher;
mod hand_over;
mod in_order;
mod queue;
mod releases;
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

/// The number of random orders per model. All models together take about ten seconds on one core.
const RANDOM_ORDERS: usize = 4_000;

/// The number of preemptions in an order with few preemptions. Most races need only one or two
/// preemptions.
const PREEMPTIONS: usize = 3;

/// The stack size of a thread, in bytes. The future of a complete call needs more than `shuttle`'s
/// default, and a stack overflow crashes without a message.
const STACK_SIZE: usize = 256 * 1024;

/// Runs `model` in all possible orders.
fn in_all_orders(model: fn()) {
    run(DfsScheduler::new(None, false), model);
}

/// Runs `model` in many orders. In half of these orders, any step can come next. In the other half,
/// threads are rarely preempted.
fn in_many_orders(model: impl Fn() + Copy + Send + Sync + 'static) {
    run(RandomScheduler::new(RANDOM_ORDERS / 2), model);
    run(PctScheduler::new(PREEMPTIONS, RANDOM_ORDERS / 2), model);
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_SIZE;
    Runner::new(scheduler, config).run(model);
}

/// Polls `future` up to `polls` times and then drops it, like a cancelled caller.
fn cancelled_after<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    (0..polls).find_map(|_| {
        scheduling_point();
        future.as_mut().now_or_never()
    })
}

/// Waits until all `threads` have finished, in the given order.
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
