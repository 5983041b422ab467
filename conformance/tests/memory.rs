//! The suite on the memory backend: in real time, behind `dyn`, behind the fault decorator, without hand-over in the
//! process, and with mutexes made of other kinds of lock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{AsMutex, Harness, Need, Time, suite};
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

struct Erased(MemoryBackend);

#[async_trait]
impl Harness for Erased {
    type Backend = Arc<dyn LockBackend>;

    const NAME: &str = "memory, dyn";
    const TIME: Time = Time::Virtual;
    const HOOKS: &[Need] = &[Need::Advance];

    async fn start() -> Self {
        Self(MemoryBackend::with_clock(TokioClock::new()))
    }

    async fn connect(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.0.clone())
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        witness(&self.0, key).await
    }

    async fn advance(&self, _keys: &[LockKey], time: Duration) {
        tokio::time::advance(time).await;
    }
}

mod erased {
    use super::*;

    suite!(Erased);
}

struct Decorated(MemoryBackend);

#[async_trait]
impl Harness for Decorated {
    type Backend = FaultBackend<MemoryBackend>;

    const NAME: &str = "memory, faults";
    const TIME: Time = Time::Virtual;

    async fn start() -> Self {
        Self(MemoryBackend::with_clock(TokioClock::new()))
    }

    async fn connect(&self) -> FaultBackend<MemoryBackend> {
        FaultBackend::new(self.0.clone())
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        witness(&self.0, key).await
    }
}

mod decorated {
    use super::*;

    suite!(Decorated);
}

struct Asked(MemoryBackend);

#[async_trait]
impl Harness for Asked {
    type Backend = MemoryBackend;

    const NAME: &str = "memory, no hand-over";
    const TIME: Time = Time::Virtual;

    async fn start() -> Self {
        Self(MemoryBackend::with_clock(TokioClock::new()))
    }

    async fn connect(&self) -> MemoryBackend {
        self.0.clone()
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        witness(&self.0, key).await
    }

    fn options(&self) -> LockOptions {
        LockOptions::new().hand_over(false)
    }
}

mod no_hand_over {
    use super::*;

    suite!(Asked);
}

struct Permit(MemoryBackend);

#[async_trait]
impl Harness for Permit {
    type Backend = AsMutex<MemoryBackend>;

    const NAME: &str = "memory, semaphore(1)";
    const TIME: Time = Time::Virtual;

    async fn start() -> Self {
        Self(MemoryBackend::with_clock(TokioClock::new()))
    }

    async fn connect(&self) -> AsMutex<MemoryBackend> {
        AsMutex::semaphore(self.0.clone())
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        witness(&self.0, key).await
    }
}

mod permit {
    use super::*;

    suite!(Permit);
}

struct WriteLock(MemoryBackend);

#[async_trait]
impl Harness for WriteLock {
    type Backend = AsMutex<MemoryBackend>;

    const NAME: &str = "memory, write lock";
    const TIME: Time = Time::Virtual;

    async fn start() -> Self {
        Self(MemoryBackend::with_clock(TokioClock::new()))
    }

    async fn connect(&self) -> AsMutex<MemoryBackend> {
        AsMutex::write_lock(self.0.clone())
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        witness(&self.0, key).await
    }
}

mod write_lock {
    use super::*;

    suite!(WriteLock);
}

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
