//! The simulated network, which connects each client to the stores.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::FaultKind;
use leasehold_core::backend::{KeyWatch, Layer, LockBackend, Reply, Request, Subject};
use leasehold_core::clock::Clock;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};

use crate::clock::DriftingClock;
use crate::conditions::Fate;
use crate::endpoint::Endpoint;
use crate::incident::Target;
use crate::schedule::{LinkId, Stream};
use crate::store::{self, Answer, Message};
use crate::world::World;

/// A backend that connects one process to one store, and sends requests and replies as messages.
#[derive(Clone)]
pub struct Link(Arc<Connection>);

struct Connection {
    world: Arc<World>,
    clock: DriftingClock,
    endpoint: Arc<Endpoint>,
    /// An empty backend with the capabilities and facets of the stores, which run the same state machine.
    model: MemoryBackend,
}

impl Link {
    /// Connects an endpoint to its store.
    pub(crate) fn new(world: &Arc<World>, clock: DriftingClock, endpoint: Endpoint) -> Self {
        let (world, endpoint) = (Arc::clone(world), Arc::new(endpoint));
        world.connect(Arc::clone(&endpoint));
        Self(Arc::new(Connection { world, clock, endpoint, model: MemoryBackend::new() }))
    }

    /// The store's number.
    pub fn store(&self) -> usize {
        self.0.endpoint.id.store
    }

    /// The client's number.
    pub fn client(&self) -> usize {
        self.0.endpoint.id.client
    }

    /// The client's clock.
    pub fn clock(&self) -> impl Clock + use<> {
        self.0.clock.clone()
    }

    /// Ends the process, which then sends no more messages.
    pub(crate) fn kill_process(&self) {
        self.0.endpoint.kill_process();
    }

    async fn exchange(&self, request: Message) -> Answer {
        let Connection { world, endpoint, .. } = &*self.0;
        let Endpoint { id, process, processor, .. } = &**endpoint;
        if processor.is_paused() && !endpoint.is_dead() {
            world.recorder.ran_paused(*process);
        }
        let number = endpoint.next_number();
        let fate =
            world.conditions().fate(&mut world.schedule.stream(Stream::Message(*id, number)));
        let is_down = world.is_on(FaultKind::ServerKilled, Target::Store(id.store));
        if endpoint.is_dead() || fate.is_refused || is_down {
            return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
        }
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(self.clone().deliver(request, fate, sender));
        // If the reply is lost, the caller waits until the limit.
        let heard = async {
            match receiver.await {
                Ok(answer) => answer,
                Err(_lost) => std::future::pending().await,
            }
        };
        let answer = processor.within(world.reply_limit, heard).await;
        answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Indeterminate, "no reply")))
    }

    async fn deliver(self, request: Message, fate: Fate, sender: oneshot::Sender<Answer>) {
        let answer = self.carry(request, fate).await;
        // A lost reply also wakes its caller.
        self.0.endpoint.processor.running().await;
        if let Some(answer) = answer {
            // A caller that no longer waits does not receive the reply.
            drop(sender.send(answer));
        }
    }

    /// Carries a request to the store, and the store's answer back. Returns `None` if the request or the answer is lost.
    async fn carry(&self, request: Message, fate: Fate) -> Option<Answer> {
        let Connection { world, endpoint, .. } = &*self.0;
        let LinkId { client, store, .. } = endpoint.id;
        let link = Target::Link { client, store };
        if fate.is_lost || world.is_on(FaultKind::RequestsDropped, link) {
            return None;
        }
        sleep(fate.there).await;
        world.admits(store, &request).await;
        if world.is_on(FaultKind::ServerKilled, Target::Store(store)) {
            return None;
        }
        let answer = match world.answer_of_follower(store, &request) {
            Some((answer, ping)) => {
                tokio::spawn(self.clone().forward(request.clone(), ping));
                answer
            }
            None => world.apply(store, &request),
        };
        if let Some(again) = fate.again {
            let puts_ttl_in_force = store::puts_ttl_in_force(&request);
            let repeat = repeat(Arc::clone(world), store, request, again);
            // No backend repeats a request after its reply, and a late repetition would put an earlier TTL in force.
            if puts_ttl_in_force {
                repeat.await;
            } else {
                tokio::spawn(repeat);
            }
        }
        sleep(fate.back).await;
        let is_cut = world.is_on(FaultKind::RepliesDropped, link);
        (!fate.is_unheard && !is_cut).then_some(answer)
    }

    /// Forwards a request that the client's follower has answered to the store.
    async fn forward(self, request: Message, ping: Duration) {
        let Connection { world, endpoint, .. } = &*self.0;
        let LinkId { client, store, .. } = endpoint.id;
        sleep_until(world.zero() + ping).await;
        if !world.is_on(FaultKind::RequestsDropped, Target::Link { client, store }) {
            world.admits(store, &request).await;
            drop(world.apply(store, &request));
        }
    }
}

async fn repeat(world: Arc<World>, store: usize, request: Message, after: Duration) {
    sleep(after).await;
    world.admits(store, &request).await;
    drop(world.apply(store, &request));
}

#[async_trait]
impl Layer for Link {
    fn inner(&self) -> &dyn LockBackend {
        &self.0.model
    }

    /// Sends each renewal as a separate message.
    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        match request {
            Request::RenewAll(leases) => {
                Ok(join_all(leases.iter().map(|lease| self.renew(lease))).await.into())
            }
            request => self.exchange(request.into_owned()).await,
        }
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.0.endpoint.watch(subject)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.0.endpoint.id).finish_non_exhaustive()
    }
}
