//! One simulation, from its seed to its report.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::memory::Outcome;
use leasehold_core::{LockClient, LockKey};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::clock::DriftingClock;
use crate::incident::{Fault, Incident};
use crate::network::{Link, Weather, World};
use crate::report::Report;
use crate::schedule::{Schedule, Stream};
use crate::store::Request;
use crate::workload::{KEYS, Profile, Task};

/// Tasks of each process.
const TASKS: usize = 2;

/// The work of all tasks takes less, with all faults that may happen to them.
const WORK_LIMIT: Duration = Duration::from_secs(600);

/// After faults have ended, a client has released everything within this time.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// Longer than any TTL, delay or place in a queue.
const ALL_IS_OVER: Duration = Duration::from_secs(15);

/// A run that one seed decides.
#[derive(Clone, Debug)]
pub struct Simulation {
    seed: u64,
    clients: usize,
    drift: i64,
    without: BTreeSet<usize>,
}

impl Simulation {
    /// Creates the simulation of a seed, with three clients.
    pub fn new(seed: u64) -> Self {
        Self { seed, clients: 3, drift: DriftingClock::WITHIN, without: BTreeSet::new() }
    }

    /// Sets the number of clients.
    #[must_use]
    pub fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    /// Sets by how many millionths the clocks of clients may be off. With more than 9,900 the promises do not hold.
    #[must_use]
    pub fn drift(mut self, millionths: u32) -> Self {
        self.drift = millionths.into();
        self
    }

    /// Leaves out the incident with this number.
    #[must_use]
    pub fn without(mut self, number: usize) -> Self {
        self.without.insert(number);
        self
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// If a task panics, with its message.
    pub fn run(&self) -> Report {
        // Retries draw their pauses from the thread's generator.
        fastrand::seed(self.seed);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O needs nothing");
        runtime.block_on(self.simulate())
    }

    /// How many incidents the seed draws, with those that are left out.
    pub(crate) fn drawn_incidents(&self) -> usize {
        self.incidents().len()
    }

    fn incidents(&self) -> Vec<Incident> {
        Incident::draw(&mut self.schedule().stream(Stream::Incidents), self.clients)
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(self.seed)
    }

    async fn simulate(&self) -> Report {
        let schedule = self.schedule();
        let incidents = self.incidents().into_iter().enumerate();
        let incidents = incidents.filter(|(number, _)| !self.without.contains(number));
        let incidents: Vec<_> = incidents.map(|(_, incident)| incident).collect();
        let mut rng = schedule.stream(Stream::Options);
        let weather = Weather::draw(&mut rng);
        let profile = Profile::draw(&mut rng);
        let muted = rng.u8(..3) == 0;
        let world = Arc::new(World::new(schedule, incidents, weather));

        let mut processes = JoinSet::new();
        for client in 0..self.clients {
            let ppm = schedule.stream(Stream::Clock(client)).i64(-self.drift..=self.drift);
            let clock = DriftingClock::new(world.zero(), ppm);
            let process = Process { client, clock, muted, profile: profile.clone() };
            processes.spawn(process.live(Arc::clone(&world)));
        }
        tokio::spawn(strike_all(Arc::clone(&world)));
        let clients = timeout(WORK_LIMIT, processes.join_all()).await;
        match clients {
            Ok(clients) => end(&world, clients).await,
            Err(_) => world.judge.violate("V5: the work does not end".to_owned()),
        }
        self.report(&world)
    }

    fn report(&self, world: &World) -> Report {
        let (violations, guards, granted_overlaps) = world.judge.verdict();
        Report {
            seed: self.seed,
            without: self.without.iter().copied().collect(),
            incidents: world.incidents.clone(),
            violations,
            guards,
            granted_overlaps,
            messages: world.messages(),
            trace: world.trace(),
            time: world.now(),
        }
    }
}

/// A client's place in a simulation. When its process crashes, another takes its place.
struct Process {
    client: usize,
    clock: DriftingClock,
    muted: bool,
    profile: Profile,
}

impl Process {
    /// Works until all tasks of a process are through, and gives back that process's client.
    async fn live(self, world: Arc<World>) -> LockClient<Link> {
        let fault = Fault::Crash { client: self.client };
        let crashes = world.incidents.iter().filter(|incident| incident.fault == fault);
        let crashes: Vec<_> = crashes.map(|incident| world.zero() + incident.at).collect();
        for (life, crash) in (0..).zip(crashes) {
            let (link, client) = self.start(&world);
            tokio::select! {
                biased;
                () = sleep_until(crash) => link.die(),
                () = self.work(&world, &link, &client, life) => return client,
            }
            world.outlast(fault).await;
        }
        let (link, client) = self.start(&world);
        self.work(&world, &link, &client, u64::MAX).await;
        client
    }

    fn start(&self, world: &Arc<World>) -> (Link, LockClient<Link>) {
        let link = world.connect(self.client, self.muted);
        let builder = LockClient::builder(link.clone()).clock(self.clock);
        let client = builder.options(self.profile.options.clone()).build();
        (link, client.expect("the profile's options suit the store"))
    }

    async fn work(&self, world: &Arc<World>, link: &Link, client: &LockClient<Link>, life: u64) {
        let mut tasks = JoinSet::new();
        for number in 0..TASKS {
            let stream = Stream::Task { client: self.client, life, task: number };
            let task = Task {
                world: Arc::clone(world),
                link: link.clone(),
                client: client.clone(),
                number: self.client,
                profile: self.profile.clone(),
                rng: world.schedule.stream(stream),
            };
            tasks.spawn(task.run());
        }
        tasks.join_all().await;
    }
}

/// Lets the incidents that are a moment only happen.
async fn strike_all(world: Arc<World>) {
    let keys = keys();
    for incident in &world.incidents {
        sleep_until(world.zero() + incident.at).await;
        world.strike(incident.fault, &keys);
    }
}

/// Ends all faults, shuts the clients down, and looks for anything that is left.
async fn end(world: &Arc<World>, clients: Vec<LockClient<Link>>) {
    let faults_end = world.incidents.iter().map(Incident::end).max().unwrap_or_default();
    sleep_until(world.zero() + faults_end).await;
    world.calm_down();
    for client in &clients {
        judge_liveness(world, client).await;
    }
    for client in clients {
        if let Err(error) = client.shutdown(SHUTDOWN_LIMIT).await {
            world.judge.violate(format!("V6: a shutdown fails: {error}"));
        }
    }
    world.disconnect_all();
    sleep(ALL_IS_OVER).await;
    for key in keys() {
        if let Outcome::Inspection(inspection) = world.apply(&Request::Inspect(key.clone()))
            && inspection.is_held()
        {
            world.judge.violate(format!("V6: {key} is still held"));
        }
    }
    if world.keys_in_store() > 0 {
        world.judge.violate("V6: the store has records left".to_owned());
    }
    let tasks = Handle::current().metrics().num_alive_tasks();
    if tasks > 0 {
        world.judge.violate(format!("V6: {tasks} tasks are left"));
    }
}

/// With all faults over, every client gets every mutex: no place and no turn is left behind.
async fn judge_liveness(world: &World, client: &LockClient<Link>) {
    for key in [KEYS[0], KEYS[1]] {
        let mutex = client.mutex(key).expect("it is a good key");
        match mutex.try_lock_for(ALL_IS_OVER).await {
            Ok(Some(guard)) => drop(guard),
            Ok(None) => world.judge.violate(format!("V5: {key} is not to be had")),
            Err(error) => world.judge.violate(format!("V5: {key} is not to be had: {error}")),
        }
    }
}

fn keys() -> Vec<LockKey> {
    KEYS.map(|key| LockKey::new(key).expect("it is short and plain")).to_vec()
}
