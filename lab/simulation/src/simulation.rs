//! One simulation, from its seed to its report.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::LockKey;
use leasehold_core::backend::LockBackend;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::aftermath::run_aftermath;
use crate::clock::{DriftingClock, Rate};
use crate::conditions::Conditions;
use crate::incident::{Incident, Stores};
use crate::network::Link;
use crate::process::{MakeBackend, Place};
use crate::report::Report;
use crate::schedule::{Schedule, Stream};
use crate::store::Store;
use crate::workload::{KEYS, Profile};
use crate::world::World;

/// The work of all tasks takes less, with all faults that may happen to them.
const WORK_LIMIT: Duration = Duration::from_secs(600);

/// The time after which the simulation ends although the work continues.
const GIVE_UP: Duration = Duration::from_secs(660);

/// How long clients wait for a reply: less than most leases have until their second renewal, or longer than any lease.
const REPLY_LIMITS: [Duration; 2] = [Duration::from_millis(400), Duration::from_secs(3)];

/// A run that one seed decides.
#[derive(Clone)]
pub struct Simulation {
    seed: u64,
    clients: usize,
    stores: Stores,
    make_backend: MakeBackend,
    drift: i64,
    pings: Option<Duration>,
    without: BTreeSet<usize>,
}

impl Simulation {
    /// Creates the simulation of a seed, with three clients of one store.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            clients: 3,
            stores: Stores { count: 1, are_members: false },
            make_backend: Arc::new(|links| Arc::new(links[0].clone())),
            drift: Rate::WITHIN,
            pings: None,
            without: BTreeSet::new(),
        }
    }

    /// Sets the number of clients.
    #[must_use]
    pub fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    /// Sets the number of stores. Each has a clock, links and incidents of its own. Unless there is a [backend](Self::backend) for
    /// all of them, clients use the first.
    #[must_use]
    pub fn stores(mut self, stores: usize) -> Self {
        self.stores = Stores { count: stores, are_members: false };
        self
    }

    /// Sets the number of stores that are members of a quorum. A minority of them loses all data, and has its clock set, at times.
    #[must_use]
    pub fn members(mut self, members: usize) -> Self {
        self.stores = Stores { count: members, are_members: true };
        self
    }

    /// Sets the backend of each process, made from its links, one to each store.
    #[must_use]
    pub fn backend<B: LockBackend>(
        mut self,
        make: impl Fn(Vec<Link>) -> B + Send + Sync + 'static,
    ) -> Self {
        self.make_backend = Arc::new(move |links| Arc::new(make(links)));
        self
    }

    /// Sets by how many millionths the clocks of clients and stores may be off. With more than 4,950 the promises do not hold.
    #[must_use]
    pub fn drift(mut self, millionths: u32) -> Self {
        self.drift = millionths.into();
        self
    }

    /// Has renewals answered by servers that only follow the store, which hears of them with the next ping, so often.
    ///
    /// A follower that [is cut off](leasehold_conformance::FaultKind::RequestsDropped) before the ping takes the renewals along that it has answered. A reply is no
    /// renewal then, and the promises do not hold.
    #[must_use]
    pub fn answered_by_followers(mut self, pings: Duration) -> Self {
        self.pings = Some(pings);
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
        let mut rng = self.schedule().stream(Stream::Incidents);
        Incident::draw(&mut rng, self.clients, self.stores)
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(self.seed)
    }

    async fn simulate(&self) -> Report {
        let mut rng = self.schedule().stream(Stream::Options);
        let world = Arc::new(self.world(&mut rng));
        let profile = Profile::draw(&mut rng);
        let muted = rng.u8(..3) == 0;
        let mut places = JoinSet::new();
        for client in 0..self.clients {
            let rate = self.rate(Stream::Clock(client));
            let place = Place {
                client,
                clock: DriftingClock::new(world.zero(), rate, world.processor(client)),
                muted,
                profile: profile.clone(),
                make_backend: Arc::clone(&self.make_backend),
            };
            places.spawn(place.live(Arc::clone(&world)));
        }
        tokio::spawn(strike_all(Arc::clone(&world)));
        let call = world.recorder.asked(0, "", Some(WORK_LIMIT));
        let clients = timeout(GIVE_UP, places.join_all()).await;
        world.recorder.answered(0, call, if clients.is_ok() { "granted" } else { "busy" });
        if let Ok(clients) = clients {
            run_aftermath(&world, clients).await;
        }
        self.report(&world)
    }

    fn world(&self, rng: &mut Rng) -> World {
        let incidents = self.incidents().into_iter().enumerate();
        let incidents = incidents.filter(|(number, _)| !self.without.contains(number));
        let incidents = incidents.map(|(_, incident)| incident).collect();
        let stores = 0..self.stores.count;
        let stores = stores.map(|store| Store::new(self.rate(Stream::StoreClock(store)))).collect();
        let (conditions, reply_limit) = (Conditions::draw(rng), REPLY_LIMITS[rng.usize(..2)]);
        World::new(self.schedule(), incidents, conditions, reply_limit, stores, self.pings)
    }

    fn rate(&self, stream: Stream) -> Rate {
        Rate::new(self.schedule().stream(stream).i64(-self.drift..=self.drift))
    }

    fn report(&self, world: &World) -> Report {
        Report {
            seed: self.seed,
            without: self.without.iter().copied().collect(),
            incidents: world.incidents.clone(),
            run: world.check(),
            messages: world.messages(),
            trace: world.trace(),
            time: world.now(),
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed)
            .field("clients", &self.clients)
            .field("stores", &self.stores)
            .field("without", &self.without)
            .finish_non_exhaustive()
    }
}

/// Applies each incident to the world at its start.
async fn strike_all(world: Arc<World>) {
    let keys = KEYS.map(|key| LockKey::new(key).expect("it is short and plain"));
    for incident in &world.incidents {
        sleep_until(world.zero() + incident.at).await;
        world.strike(incident, &keys);
    }
}
