//! Implements driven time, in which the suite advances the clocks of the client and the store
//! together, and only while no call is in progress.

mod calls;
mod observed;

use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use leasehold_core::clock::{Clock, ManualClock};
use tokio::task::yield_now;

pub(crate) use calls::Calls;
pub(crate) use observed::Observed;

use crate::profile::AnyHarness;

/// The number of runtime turns after which the driver considers the tasks idle. Each turn runs all
/// ready tasks and reads replies. A notification passes through a few tasks, one turn each, before
/// it causes a call.
const TURNS: usize = 16;

/// Runs `case` in driven time.
///
/// The runtime must have a single thread. On such a runtime, [`yield_now`] returns when no other
/// task is ready and the network was polled.
pub(crate) async fn run<T>(
    harness: &dyn AnyHarness,
    clock: &ManualClock,
    calls: &Calls,
    case: impl Future<Output = T>,
) -> T {
    let drive = async {
        loop {
            step(harness, clock, calls).await;
        }
    };
    // Each future is polled only after its own wake-up, so the case is polled no more often than in
    // real time.
    let both: [Pin<Box<dyn Future<Output = T> + '_>>; 2] = [Box::pin(case), Box::pin(drive)];
    let mut both = FuturesUnordered::from_iter(both);
    both.next().await.expect("the driver does not end")
}

/// Advances time to the next timer, unless a call was made in the meantime.
async fn step(harness: &dyn AnyHarness, clock: &ManualClock, calls: &Calls) {
    clock.next_timer().await;
    calls.over().await;
    let begun = calls.begun();
    settle().await;
    if calls.begun() != begun {
        return;
    }
    harness.flush_news().await;
    settle().await;
    let Some(due) = clock.next_timer().now_or_never() else { return };
    let Some(moving) = calls.begin_move(begun) else { return };
    let by = due.since(clock.now());
    // The client's clock advances first, so that the client considers a lease expired before the
    // store does. Some stores may read their clock after the client's clock has advanced and before
    // their own clock has advanced.
    clock.skip(by);
    harness.advance_store(by).await;
    drop(moving);
    clock.advance(Duration::ZERO);
}

/// Runs all ready tasks and the tasks that they wake.
async fn settle() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use leasehold_core::clock::Instant;
    use leasehold_core::memory::MemoryBackend;
    use leasehold_core::{Holder, LockKey};

    use super::*;
    use crate::harness::Harness;

    /// A store that receives the time over a connection.
    #[derive(Clone, Default)]
    struct Far(Arc<AtomicU64>);

    #[async_trait]
    impl Harness for Far {
        type Backend = MemoryBackend;

        const NAME: &str = "far";

        async fn start() -> Self {
            Self::default()
        }

        async fn connect(&self) -> MemoryBackend {
            MemoryBackend::new()
        }

        async fn probe(&self, _: &LockKey) -> Option<Holder> {
            None
        }

        async fn advance_store(&self, by: Duration) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_call_finds_client_and_store_at_the_same_time() {
        let (far, clock, calls) = (Far::default(), ManualClock::new(), Calls::default());
        let start = clock.now();
        let timer = clock.sleep_until(start + Duration::from_millis(100));
        let has_moved = async {
            while clock.now() == start {
                yield_now().await;
            }
            let _call = calls.begin().await;
            (clock.now(), far.0.load(Ordering::SeqCst))
        };
        let case = async { futures_util::future::join(timer, has_moved).await.1 };

        let (client, store) = run(&far, &clock, &calls, case).await;

        assert_eq!(client, start + Duration::from_millis(store));
        assert_ne!(client, Instant::from_zero(Duration::ZERO));
    }
}
