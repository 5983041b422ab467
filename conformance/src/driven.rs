//! Time that the suite drives: client clock and store move together, and only while no call is under way.

mod calls;
mod clock;
mod observed;

use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::clock::Clock;
use tokio::task::yield_now;

pub(crate) use calls::Calls;
pub(crate) use clock::DrivenClock;
pub use observed::Observed;

use crate::harness::Harness;

/// Turns that the runtime takes before the driver holds that the tasks are idle. Each turn runs all tasks that are ready, and looks for
/// replies; a piece of news passes a few tasks, one turn each, on its way to the call that it makes.
const TURNS: usize = 16;

/// Runs `case` while time is driven.
///
/// Expects a runtime of one thread: there, [`yield_now`] comes back when no other task is ready and the network has been looked at.
pub(crate) async fn run<T>(
    harness: &impl Harness,
    clock: &DrivenClock,
    calls: &Calls,
    case: impl Future<Output = T>,
) -> T {
    let drive = async {
        loop {
            step(harness, clock, calls).await;
        }
    };
    // Each is polled when it is woken itself: the case sees as few polls as in real time.
    let both: [Pin<Box<dyn Future<Output = T> + '_>>; 2] = [Box::pin(case), Box::pin(drive)];
    let mut both = FuturesUnordered::from_iter(both);
    both.next().await.expect("the driver does not end")
}

/// Moves time to the next timer that is due, unless calls were made meanwhile.
async fn step(harness: &impl Harness, clock: &DrivenClock, calls: &Calls) {
    clock.has_timer().await;
    calls.over().await;
    let begun = calls.begun();
    settle().await;
    harness.flush_news().await;
    settle().await;
    if calls.begun() != begun {
        return;
    }
    let Some(due) = clock.next_timer() else { return };
    let by = due.since(clock.now());
    // The client first: belief in a lease ends before the lease, on stores that look at their clock in between, too.
    clock.advance(by);
    harness.advance_store(by).await;
    clock.wake();
}

/// Lets all tasks run that are ready, and the tasks that they wake.
async fn settle() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}
