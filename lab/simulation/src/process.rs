//! A client's processes, one after the other.

use std::sync::Arc;

use leasehold_conformance::FaultKind;
use leasehold_core::backend::LockBackend;
use leasehold_core::{LockClient, OwnerId};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::aftermath::Idle;
use crate::clock::DriftingClock;
use crate::endpoint::Endpoint;
use crate::incident::Target;
use crate::network::Link;
use crate::schedule::{LinkId, Stream};
use crate::workload::{Profile, Task};
use crate::world::World;

/// Tasks of each process.
const TASKS: usize = 3;

/// Makes the backend of a process from its links, one to each store.
pub(crate) type MakeBackend = Arc<dyn Fn(Vec<Link>) -> Arc<dyn LockBackend> + Send + Sync>;

/// A client's place in a simulation. When its process crashes, another takes its place.
pub(crate) struct Place {
    pub(crate) client: usize,
    pub(crate) clock: DriftingClock,
    pub(crate) muted: bool,
    pub(crate) profile: Profile,
    pub(crate) make_backend: MakeBackend,
}

/// A process while it runs.
struct Process {
    links: Vec<Link>,
    client: LockClient,
    life: u64,
    number: u32,
}

impl Place {
    /// Works until all tasks of a process have ended, and returns the client of this process.
    pub(crate) async fn live(self, world: Arc<World>) -> Idle {
        let (killed, target) = (FaultKind::ClientKilled, Target::Client(self.client));
        let crashes = world.incidents.iter().filter(|incident| incident.is(killed, target));
        let crashes: Vec<_> = crashes.map(|incident| world.zero() + incident.at).collect();
        for (life, crash) in (0..).zip(crashes) {
            let process = self.start(&world, life).await;
            tokio::select! {
                biased;
                () = sleep_until(crash) => {
                    process.links.iter().for_each(Link::kill_process);
                    world.recorder.killed(process.number);
                }
                () = self.work(&world, &process) => return (process.number, process.client),
            }
            world.outlast(killed, target).await;
        }
        let process = self.start(&world, u64::MAX).await;
        self.work(&world, &process).await;
        (process.number, process.client)
    }

    async fn start(&self, world: &Arc<World>, life: u64) -> Process {
        self.clock.processor().running().await;
        let number = world.recorder.started(self.client);
        let links = self.connect(world, life, number);
        let backend = (self.make_backend)(links.clone());
        let options = self.profile.on(&backend.capabilities());
        let builder = LockClient::builder(backend).clock(self.clock.clone());
        let client = builder.options(options).build();
        let client = client.expect("the profile's options suit the store").into_dyn();
        Process { links, client, life, number }
    }

    /// Connects a new process to all stores.
    fn connect(&self, world: &Arc<World>, life: u64, process: u32) -> Vec<Link> {
        let connect = |store| {
            let id = LinkId { client: self.client, life, store };
            let processor = self.clock.processor().clone();
            let endpoint = Endpoint::new(id, process, processor, self.muted);
            Link::new(world, self.clock.clone(), endpoint)
        };
        (0..world.stores()).map(connect).collect()
    }

    async fn work(&self, world: &Arc<World>, process: &Process) {
        let mut tasks = JoinSet::new();
        let common = OwnerId::new();
        for number in 0..TASKS {
            let stream = Stream::Task { client: self.client, life: process.life, task: number };
            let task = Task {
                world: Arc::clone(world),
                client: process.client.clone(),
                clock: self.clock.clone(),
                process: process.number,
                profile: self.profile.clone(),
                common,
                rng: world.schedule.stream(stream),
            };
            tasks.spawn(task.run());
        }
        tasks.join_all().await;
    }
}
