//! Runs the suite on the in-memory backend: in real time, in driven time, through `dyn`, through the fault backend, without hand-off
//! in the process, and with mutexes that are implemented with other types of locks.

use std::convert::identity;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::{AsMutex, Groups, Harness, Need, Suites, Time};
use leasehold_core::backend::{LockBackend, Operation, StoreAdmin};
use leasehold_core::clock::{ManualClock, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Holder, LockKey, LockOptions};

async fn probe(store: &MemoryBackend, key: &LockKey) -> Option<Holder> {
    store.inspect(key).await.unwrap().holders().first().cloned()
}

struct Memory(MemoryBackend);

#[async_trait]
impl Harness for Memory {
    type Backend = MemoryBackend;

    const NAME: &str = "memory";
    // The harnesses in virtual time run all groups.
    const GROUPS: Groups = Groups::Named(&["fencing", "mutual_exclusion", "renewal", "waiting"]);

    async fn start() -> Self {
        Self(MemoryBackend::new())
    }

    async fn connect(&self) -> MemoryBackend {
        self.0.clone()
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        probe(&self.0, key).await
    }
}

/// A distant store: each call takes some real time, and the suite advances the store's clock.
struct Far {
    store: MemoryBackend,
    clock: ManualClock,
}

#[async_trait]
impl Harness for Far {
    type Backend = FaultBackend<MemoryBackend>;

    const NAME: &str = "memory, driven";
    const TIME: Time = Time::Driven;
    const GROUPS: Groups = OF_TIME;

    async fn start() -> Self {
        let clock = ManualClock::new();
        Self { store: MemoryBackend::with_clock(clock.clone()), clock }
    }

    async fn connect(&self) -> FaultBackend<MemoryBackend> {
        let backend = FaultBackend::new(self.store.clone());
        for operation in [Operation::Acquire, Operation::Renew, Operation::Release] {
            for delay in [Fault::DelayRequest, Fault::DelayReply].into_iter().cycle().take(CALLS) {
                backend.faults().inject(operation, delay(FAR), 1);
            }
        }
        backend
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        probe(&self.store, key).await
    }

    async fn advance_store(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// The groups whose cases wait.
const OF_TIME: Groups = Groups::Named(&[
    "expiry",
    "fair",
    "lost",
    "mutual_exclusion",
    "renewal",
    "revocation",
    "waiting",
]);

/// The delay of each request and each reply.
const FAR: Duration = Duration::from_millis(1);

/// More calls than any client of a case makes.
const CALLS: usize = 1_000;

/// Declares a harness in virtual time. `$made` creates the backend of a client, and `$item` overrides items of the trait.
macro_rules! harness {
    ($harness:ident, $name:literal, $backend:ty, $made:expr, { $($item:item)* }) => {
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

            async fn probe(&self, key: &LockKey) -> Option<Holder> {
                probe(&self.0, key).await
            }

            async fn advance(&self, _keys: &[LockKey], time: Duration) {
                tokio::time::advance(time).await;
            }
        }
    };
}

type Dyn = Arc<dyn LockBackend>;
type Faulty = FaultBackend<MemoryBackend>;
type Other = AsMutex<MemoryBackend>;

harness!(Erased, "memory, dyn", Dyn, Arc::new, {
    const HOOKS: &[Need] = &[Need::Advance];
});
harness!(Decorated, "memory, faults", Faulty, FaultBackend::new, {});
harness!(Asked, "memory, no hand-over", MemoryBackend, identity, {
    fn options(&self) -> LockOptions {
        LockOptions::new().hand_over(false)
    }
});
harness!(Permit, "memory, semaphore(1)", Other, AsMutex::semaphore, {
    const LACKS: &[Need] = Other::LACKS;
});
harness!(WriteLock, "memory, write lock", Other, AsMutex::write_lock, {
    const LACKS: &[Need] = Other::LACKS;
});

fn main() -> ExitCode {
    Suites::new()
        .with::<Memory>("real_time")
        .with::<Far>("driven_time")
        .with::<Erased>("erased")
        .with::<Decorated>("decorated")
        .with::<Asked>("no_hand_over")
        .with::<Permit>("permit")
        .with::<WriteLock>("write_lock")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
