//! Runs Leasehold's conformance suite on the backend.

use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::backend::StoreAdmin as _;
use leasehold::clock::ManualClock;
use leasehold::{Holder, LockKey};
use leasehold_conformance::{Harness, Need, Subject, Suites, Time};
use leasehold_mystore::MyStore;

/// The facets and features that the backend does not have. The suite skips their cases without
/// starting a store.
const LACKS: &[Need] = &[Need::Member];

/// Returns the holder of `key`. A harness for a server reads the server directly.
async fn holder(store: &MyStore, key: &LockKey) -> Option<Holder> {
    store.inspect(key).await.expect("the store responds").holders().first().cloned()
}

/// A store whose clock the suite advances, so that no case waits for a lease to expire.
struct Driven {
    store: MyStore,
    clock: ManualClock,
}

#[async_trait]
impl Harness for Driven {
    type Backend = MyStore;

    const NAME: &str = "my store, driven";
    const TIME: Time = Time::Driven;
    const LACKS: &[Need] = LACKS;

    async fn start() -> Self {
        let clock = ManualClock::new();
        Self { store: MyStore::with_clock(clock.clone()), clock }
    }

    async fn connect(&self) -> MyStore {
        self.store.clone()
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        holder(&self.store, key).await
    }

    async fn advance_store(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// A store in real time, for the cases with many clients and for the cases of the network.
struct InRealTime(MyStore);

#[async_trait]
impl Harness for InRealTime {
    type Backend = MyStore;

    const NAME: &str = "my store";
    const LACKS: &[Need] = LACKS;
    const SUBJECTS: &[Subject] = &[Subject::Load, Subject::Network];

    async fn start() -> Self {
        Self(MyStore::new())
    }

    async fn connect(&self) -> MyStore {
        self.0.clone()
    }

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        holder(&self.0, key).await
    }
}

fn main() -> ExitCode {
    Suites::new().with::<Driven>("driven").with::<InRealTime>("real_time").main()
}
