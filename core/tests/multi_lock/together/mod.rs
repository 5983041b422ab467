//! Several locks at once, on a store that grants several keys in one atomic step.

mod cancellation;
mod contention;
mod fault;
mod one_request;

use async_trait::async_trait;
use leasehold_core::clock::Clock;
use leasehold_core::fault::Fault;
use leasehold_core::{
    Attempt, AttemptAll, Capabilities, Claim, Error, ErrorKind, Grant, Lease, LockBackend,
    LockClient, LockOptions, LossReason, MemoryBackend, Operation, Patience, Release, Renewal,
    Retry,
};

use super::scene::{DRIFT, Scene, TTL, dropped_after, key, ms};
use super::{KEYS, closed, options, three};

const ALL: &str = "+a+b+c";

fn scene() -> Scene {
    scene_with(options())
}

fn scene_with(options: LockOptions) -> Scene {
    Scene::declaring(MemoryBackend::new().capabilities(), options)
}

/// A store that cannot do what it declares, as a decorator that was written before may be.
#[derive(Debug)]
struct Older(MemoryBackend);

#[async_trait]
impl LockBackend for Older {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.0.try_acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.0.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.0.release(lease).await
    }
}
