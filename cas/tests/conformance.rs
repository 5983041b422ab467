//! Runs the conformance suite on stores in memory.

mod memory;

use std::marker::PhantomData;
use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_cas::CasBackend;
use leasehold_conformance::{Harness, Need, Subject, Suites, Time};
use leasehold_core::backend::StoreAdmin as _;
use leasehold_core::clock::{ManualClock, SystemClock};
use leasehold_core::{Holder, LockKey};

use memory::{MemoryStore, Options};

/// The facets and features that the backend does not have.
const LACKS: &[Need] = &[Need::Member, Need::Push, Need::Together];

async fn holder(backend: &CasBackend<MemoryStore>, key: &LockKey) -> Option<Holder> {
    backend.inspect(key).await.expect("the store replies").holders().first().cloned()
}

/// The behavior of a store.
trait Behavior: Send + Sync + 'static {
    const OPTIONS: Options;
}

struct Exact;

impl Behavior for Exact {
    const OPTIONS: Options = Options::exact("documents");
}

/// A store whose clock shows whole seconds.
struct InSeconds;

impl Behavior for InSeconds {
    const OPTIONS: Options = Options { is_coarse: true, ..Options::exact("documents, in seconds") };
}

/// A store that loses replies and refuses writes.
struct Lossy;

impl Behavior for Lossy {
    const OPTIONS: Options =
        Options { conflicts: 0.3, lost: 0.2, ..Options::exact("documents, lossy") };
}

/// A store whose client library sends writes again.
struct Repeating;

impl Behavior for Repeating {
    const OPTIONS: Options =
        Options { lost: 0.3, repeats: true, ..Options::exact("documents, repeating") };
}

/// A store whose clock the suite advances.
struct Driven<B> {
    store: MemoryStore,
    clock: ManualClock,
    behavior: PhantomData<B>,
}

#[async_trait]
impl<B: Behavior> Harness for Driven<B> {
    type Backend = CasBackend<MemoryStore>;

    const NAME: &str = B::OPTIONS.name;
    const TIME: Time = Time::Driven;
    const LACKS: &[Need] = LACKS;

    async fn start() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::new(clock.clone(), B::OPTIONS);
        Self { store, clock, behavior: PhantomData }
    }

    async fn connect(&self) -> CasBackend<MemoryStore> {
        CasBackend::with_clock(self.store.clone(), self.clock.clone())
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        // The probe must not be disturbed.
        let options = Options { conflicts: 0.0, lost: 0.0, ..B::OPTIONS };
        let store = MemoryStore { options, ..self.store.clone() };
        holder(&CasBackend::with_clock(store, self.clock.clone()), key).await
    }

    async fn advance_store(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// A store in real time, for the cases with many clients.
struct InRealTime(MemoryStore);

#[async_trait]
impl Harness for InRealTime {
    type Backend = CasBackend<MemoryStore>;

    const NAME: &str = "documents, real time";
    const LACKS: &[Need] = LACKS;
    const SUBJECTS: &[Subject] = &[Subject::Load, Subject::Network];

    async fn start() -> Self {
        Self(MemoryStore::new(SystemClock, Options::exact(Self::NAME)))
    }

    async fn connect(&self) -> CasBackend<MemoryStore> {
        CasBackend::new(self.0.clone())
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        holder(&CasBackend::new(self.0.clone()), key).await
    }
}

fn main() -> ExitCode {
    Suites::new()
        .with::<Driven<Exact>>("exact")
        .with::<Driven<InSeconds>>("in_seconds")
        .with::<Driven<Lossy>>("lossy")
        .with::<Driven<Repeating>>("repeating")
        .with::<InRealTime>("real_time")
        .main()
}
