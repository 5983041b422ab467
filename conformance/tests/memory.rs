//! The suite on the memory backend: in real time, behind `dyn`, behind the fault decorator, without hand-over in the
//! process, and with mutexes made of other kinds of lock.

use std::convert::identity;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{AsMutex, Groups, Harness, Need, Time, suite};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::FaultBackend;
use leasehold_core::{Holder, LockBackend, LockKey, LockOptions, MemoryBackend};

async fn witness(store: &MemoryBackend, key: &LockKey) -> Option<Holder> {
    store.inspect(key).await.unwrap().holders().first().cloned()
}

struct Memory(MemoryBackend);

#[async_trait]
impl Harness for Memory {
    type Backend = MemoryBackend;

    const NAME: &str = "memory";
    // In virtual time, the others run all of them.
    const GROUPS: Groups = Groups::Named(&["fencing", "mutual_exclusion", "renewal", "waiting"]);

    async fn start() -> Self {
        Self(MemoryBackend::new())
    }

    async fn connect(&self) -> MemoryBackend {
        self.0.clone()
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        witness(&self.0, key).await
    }
}

mod real_time {
    use super::*;

    suite!(Memory);
}

/// A harness in virtual time, whose clients are made of the store by an expression; with items that differ from the trait's.
macro_rules! harness {
    ($module:ident, $harness:ident, $name:literal, $backend:ty, $made:expr, { $($item:item)* }) => {
        struct $harness(MemoryBackend);

        #[async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const TIME: Time = Time::Virtual;

            $($item)*

            async fn start() -> Self {
                Self(MemoryBackend::with_clock(TokioClock::new()))
            }

            async fn connect(&self) -> $backend {
                $made(self.0.clone())
            }

            async fn witness(&self, key: &LockKey) -> Option<Holder> {
                witness(&self.0, key).await
            }

            async fn advance(&self, _keys: &[LockKey], time: Duration) {
                tokio::time::advance(time).await;
            }
        }

        mod $module {
            use super::*;

            suite!($harness);
        }
    };
}

type Dyn = Arc<dyn LockBackend>;
type Faulty = FaultBackend<MemoryBackend>;
type Other = AsMutex<MemoryBackend>;

harness!(erased, Erased, "memory, dyn", Dyn, Arc::new, {
    const HOOKS: &[Need] = &[Need::Advance];
});
harness!(decorated, Decorated, "memory, faults", Faulty, FaultBackend::new, {});
harness!(no_hand_over, Asked, "memory, no hand-over", MemoryBackend, identity, {
    fn options(&self) -> LockOptions {
        LockOptions::new().hand_over(false)
    }
});
harness!(permit, Permit, "memory, semaphore(1)", Other, AsMutex::semaphore, {
    const LACKS: &[Need] = Other::LACKS;
});
harness!(write_lock, WriteLock, "memory, write lock", Other, AsMutex::write_lock, {
    const LACKS: &[Need] = Other::LACKS;
});

#[test]
fn what_runs_here_is_documented() {
    const PAGE: &str = include_str!("../../docs/conformance.md");

    assert_documented::<Memory>(PAGE);
    assert_documented::<Erased>(PAGE);
    assert_documented::<Decorated>(PAGE);
    assert_documented::<Asked>(PAGE);
    assert_documented::<Permit>(PAGE);
    assert_documented::<WriteLock>(PAGE);
}
