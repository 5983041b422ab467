//! The network: each client's links to the stores.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, Fingerprint, KeyWatch, KeyWatches, Lease,
    LockBackend, Release, Renewal, Standing, StoreId,
};
use leasehold_core::clock::Clock;
use leasehold_core::memory::{MemoryBackend, Outcome};
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};

use crate::clock::DriftingClock;
use crate::incident::Fault;
use crate::processor::Processor;
use crate::schedule::{LinkId, Stream};
use crate::store::Request;
use crate::weather::Fate;
use crate::world::World;

/// The link of one process to one store: a backend that sends requests and replies as messages.
#[derive(Clone)]
pub struct Link(Arc<Connection>);

struct Connection {
    id: LinkId,
    process: u32,
    /// The link does not deliver notifications.
    muted: bool,
    world: Arc<World>,
    clock: DriftingClock,
    processor: Processor,
    capabilities: Capabilities,
    /// The process has ended.
    is_dead: AtomicBool,
    numbers: AtomicU64,
    waiters: KeyWatches,
    holders: KeyWatches,
}

impl Link {
    pub(crate) fn new(
        id: LinkId,
        process: u32,
        world: Arc<World>,
        clock: DriftingClock,
        muted: bool,
    ) -> Self {
        Self(Arc::new(Connection {
            id,
            process,
            muted,
            world,
            processor: clock.processor().clone(),
            clock,
            // Both stores run the state machine.
            capabilities: MemoryBackend::new().capabilities(),
            is_dead: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            waiters: KeyWatches::default(),
            holders: KeyWatches::default(),
        }))
    }

    /// The store's number.
    pub fn store(&self) -> usize {
        self.0.id.store
    }

    /// The client's number.
    pub fn client(&self) -> usize {
        self.0.id.client
    }

    /// The client's clock.
    pub fn clock(&self) -> impl Clock + use<> {
        self.0.clock.clone()
    }

    /// Ends the process: no message leaves it any more.
    pub(crate) fn die(&self) {
        self.0.is_dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn watched_keys(&self) -> usize {
        self.0.waiters.watched_keys() + self.0.holders.watched_keys()
    }

    async fn exchange<T: TryFrom<Outcome>>(&self, request: Request) -> Result<T, Error> {
        let Connection { id, world, processor, .. } = &*self.0;
        if processor.is_paused() && !self.is_dead() {
            world.recorder.ran_paused(self.0.process);
        }
        let number = self.next_number();
        let fate = world.weather().fate(&mut world.schedule.stream(Stream::Message(*id, number)));
        if self.is_dead() || fate.is_refused || world.is_on(Fault::Restart { store: id.store }) {
            return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
        }
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(self.clone().deliver(request, fate, sender));
        // A reply that is lost is as late as any limit.
        let heard = async {
            match receiver.await {
                Ok(outcome) => outcome,
                Err(_lost) => std::future::pending().await,
            }
        };
        let outcome = processor.within(world.reply_limit, heard).await;
        read(outcome.ok_or_else(|| Error::new(ErrorKind::Indeterminate, "no reply"))?)
    }

    async fn deliver(self, request: Request, fate: Fate, sender: oneshot::Sender<Outcome>) {
        let outcome = self.carry(request, fate).await;
        // A reply that is lost wakes its caller, too.
        self.0.processor.running().await;
        if let Some(outcome) = outcome {
            // A caller that no longer waits does not receive the reply.
            drop(sender.send(outcome));
        }
    }

    /// Carries a request to the store, and its reply back; none if either gets lost.
    async fn carry(&self, request: Request, fate: Fate) -> Option<Outcome> {
        let Connection { id: LinkId { client, store, .. }, world, .. } = &*self.0;
        let (client, store) = (*client, *store);
        if fate.is_lost || world.is_on(Fault::CutRequests { client, store }) {
            return None;
        }
        sleep(fate.there).await;
        world.admits(store, &request).await;
        if world.is_on(Fault::Restart { store }) {
            return None;
        }
        let outcome = match world.answer_of_follower(store, &request) {
            Some((outcome, ping)) => {
                tokio::spawn(self.clone().pass_on(request.clone(), ping));
                outcome
            }
            None => world.apply(store, &request),
        };
        if let Some(again) = fate.again {
            let puts_ttl_in_force = request.puts_ttl_in_force();
            let repeat = repeat(Arc::clone(world), store, request, again);
            // No backend repeats a request that has its reply, and a late repetition would put an earlier TTL in force.
            if puts_ttl_in_force {
                repeat.await;
            } else {
                tokio::spawn(repeat);
            }
        }
        sleep(fate.back).await;
        let is_cut = world.is_on(Fault::CutReplies { client, store });
        (!fate.is_unheard && !is_cut).then_some(outcome)
    }

    /// Forwards a request that the client's follower has answered to the store.
    async fn pass_on(self, request: Request, ping: Duration) {
        let Connection { id: LinkId { client, store, .. }, world, .. } = &*self.0;
        sleep_until(world.zero() + ping).await;
        if !world.is_on(Fault::CutRequests { client: *client, store: *store }) {
            world.admits(*store, &request).await;
            world.apply(*store, &request);
        }
    }

    /// Notifies the client of a request that the store has applied.
    pub(crate) fn tell(&self, request: &Request) {
        let Connection { id, world, muted, .. } = &*self.0;
        if *muted || self.is_dead() {
            return;
        }
        let number = self.next_number();
        let mut rng = world.schedule.stream(Stream::News(*id, number));
        if let Some(delay) = world.weather().news(&mut rng) {
            let link = self.clone();
            let request = request.clone();
            tokio::spawn(async move {
                sleep(delay).await;
                link.hear(&request).await;
            });
        }
    }

    async fn hear(&self, request: &Request) {
        let Connection { id: LinkId { client, store, .. }, world, processor, .. } = &*self.0;
        if world.is_on(Fault::CutReplies { client: *client, store: *store }) {
            return;
        }
        processor.running().await;
        for key in request.keys() {
            self.0.waiters.notify(key.as_str());
            if request.concerns_holders() {
                self.0.holders.notify(key.as_str());
                world.recorder.notified(self.0.process, *store, &key);
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::Relaxed)
    }
}

async fn repeat(world: Arc<World>, store: usize, request: Request, after: Duration) {
    sleep(after).await;
    world.admits(store, &request).await;
    world.apply(store, &request);
}

fn read<T: TryFrom<Outcome>>(outcome: Outcome) -> Result<T, Error> {
    if let Outcome::WrongType(key) = &outcome {
        let message = "the key is in use as another type of lock";
        return Err(Error::new(ErrorKind::WrongType, message).with_key(key));
    }
    if let Outcome::NotEnlisted(key) = &outcome {
        let message = "the store is not a member of this quorum";
        return Err(Error::new(ErrorKind::Unavailable, message).with_key(key));
    }
    Ok(T::try_from(outcome).ok().expect("each request has its own outcome"))
}

#[async_trait]
impl LockBackend for Link {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities.clone()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.exchange(Request::TryAcquire(claim.clone())).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        self.exchange(Request::TryAcquireAll(claims.to_vec())).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.exchange(Request::Renew(lease.clone())).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.exchange(Request::Release(lease.clone())).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.0.waiters.watch(key)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.0.holders.watch(lease.key())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.exchange(Request::Inspect(key.clone())).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.exchange(Request::ForceRelease(key.clone(), only)).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.exchange(Request::Revoke(key.clone(), only)).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.exchange(Request::Standing(fresh)).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.exchange(Request::Enlist(enlistment.clone())).await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.0.id).finish_non_exhaustive()
    }
}
