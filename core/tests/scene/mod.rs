//! One store, two clients of it in tokio's paused time, and a log of the store's grants and releases.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::admin::ForcedRelease;
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Feature, KeyWatch, Lease, LockBackend, Release,
    Renewal,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{FaultBackend, Faults};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, LockClient, LockKey, LockOptions};

pub(crate) const TTL: Duration = ms(30_000);
/// 1 % of the TTL and 2 ms.
pub(crate) const DRIFT: Duration = ms(302);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).unwrap()
}

pub(crate) struct Scene {
    pub(crate) client: LockClient<FaultBackend<Recorder>>,
    pub(crate) faults: Faults,
    pub(crate) clock: TokioClock,
    pub(crate) store: MemoryBackend,
    /// Another process, whose requests neither suffer nor are recorded.
    pub(crate) other: LockClient<MemoryBackend>,
    story: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with_options(LockOptions::new().ttl(TTL))
    }

    /// Its store grants one key at a time.
    pub(crate) fn with_options(options: LockOptions) -> Self {
        let all = MemoryBackend::new().capabilities();
        Self::declaring(all.without(Feature::Together), options)
    }

    pub(crate) fn declaring(capabilities: Capabilities, options: LockOptions) -> Self {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let story = Arc::default();
        let recorder = Recorder { inner: store.clone(), capabilities, story: Arc::clone(&story) };
        let backend = FaultBackend::new(recorder);
        let faults = backend.faults().clone();
        let client = LockClient::builder(backend).clock(clock).options(options).build().unwrap();
        let other = LockClient::builder(store.clone()).clock(clock).build().unwrap();
        Self { client, faults, clock, store, other, story }
    }

    /// The grants (`+key`, or `+key+key` at once) and releases (`-key`) of the store, in order.
    pub(crate) fn story(&self) -> Vec<String> {
        self.story.lock().unwrap().clone()
    }

    /// How many keys the store still knows once all that goes on in the background is done.
    pub(crate) async fn left(&self) -> usize {
        tokio::time::sleep(ms(2_000)).await;
        self.store.keys()
    }
}

/// Polls `future` at most so many times, then drops it when it is woken once more.
pub(crate) async fn dropped_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

#[derive(Debug)]
pub(crate) struct Recorder {
    inner: MemoryBackend,
    capabilities: Capabilities,
    story: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl LockBackend for Recorder {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let attempt = self.inner.try_acquire(claim).await;
        if let Ok(Attempt::Granted(_)) = attempt {
            self.story.lock().unwrap().push(format!("+{}", claim.key()));
        }
        attempt
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let attempt = self.inner.try_acquire_all(claims).await;
        if let Ok(AttemptAll::Granted(_)) = attempt {
            let keys = claims.iter().map(|claim| format!("+{}", claim.key()));
            self.story.lock().unwrap().push(keys.collect());
        }
        attempt
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.inner.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let release = self.inner.release(lease).await;
        if let Ok(Release::Released) = release {
            self.story.lock().unwrap().push(format!("-{}", lease.key()));
        }
        release
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.inner.watch(key)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.inner.watch_lease(lease)
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        self.inner.force_release(key).await
    }
}
