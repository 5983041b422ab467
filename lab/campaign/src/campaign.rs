//! A campaign against one class of store.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::FaultKind;
use leasehold_conformance::history::checker::History;
use leasehold_conformance::history::event::now;
use leasehold_conformance::history::fault::Hit;
use leasehold_conformance::history::line::{Plan, text};
use leasehold_conformance::history::population::Population;
use leasehold_conformance::history::process::Program;
use leasehold_conformance::history::record::Record;
use leasehold_conformance::history::run::{Run, machine};
use leasehold_conformance::history::stalls::Stalls;
use leasehold_conformance::history::worker;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::class::Class;
use crate::fault::{Fault, Part};
use crate::faulty_backend::Flaw;
use crate::firewall::{Cut, Firewall, Isolation, group_of};
use crate::schedule::{Schedule, Slot};
use crate::store::{self, Store};

/// The size of a campaign.
#[derive(Clone, Debug)]
pub struct Size {
    /// The seed of the schedule.
    pub seed: u64,
    /// How long faults come.
    pub time: Duration,
    /// The client processes.
    pub processes: u32,
    /// The tasks of each.
    pub tasks: u32,
    /// How often clients tell of the resources that they use.
    pub sample_every: Duration,
    /// The TTL of all leases, in place of the default TTL of the class.
    pub ttl: Option<Duration>,
    /// The kinds of faults to cause. If the list is empty, all kinds that fit the class.
    pub kinds: Vec<FaultKind>,
    /// The flaw of the store, as its clients see it.
    pub flaw: Option<Flaw>,
    /// The folder for the record of all events, if it is wanted.
    pub record: Option<PathBuf>,
}

/// A store and its clients.
struct Campaign<'a> {
    store: Mutex<Box<dyn Store>>,
    clients: Mutex<Population>,
    firewall: Option<&'a Firewall>,
    ports: Vec<u16>,
    start: Duration,
}

/// Runs clients on a store of a class, disturbs both, and judges their history.
pub async fn run(class: Class, url: Option<&str>, size: &Size, firewall: Option<&Firewall>) -> Run {
    let mut bounds = class.bounds();
    bounds.ttl = size.ttl.unwrap_or(bounds.ttl);
    let store = store::start(class, url, firewall.is_some()).await;
    let (url, versions, ports) = (store.url(), store.versions().await, store.ports());
    let record = Arc::<Record>::default();
    let plan = Plan {
        url: url.clone(),
        ttl: bounds.ttl,
        patience: bounds.ttl * 2 + bounds.recovery,
        process: 0,
        tasks: size.tasks,
        sample_every: size.sample_every,
        flaw: size.flaw.map(|flaw| flaw.to_string()),
    };
    let (start, stalls) = (now(), Stalls::watch(&record));
    let program = Program {
        args: vec!["--child".to_owned()],
        group_of: firewall.map(|_| group_of as fn(usize) -> u32),
    };
    let clients = Population::start(plan, size.processes, program, &record);
    let (store, clients) = (Mutex::new(store), Mutex::new(clients));
    let campaign = Campaign { store, clients, firewall, ports, start };
    let mut kinds = Fault::fitting(class, firewall.is_some());
    kinds.retain(|fault| size.kinds.is_empty() || size.kinds.contains(&fault.kind));
    let hits = campaign.disturb(Schedule::new(size.seed, kinds), size.time).await;
    let within = bounds.ttl * 4 + bounds.recovery + Duration::from_secs(30);
    campaign.clients.into_inner().finish(within).await;
    let client = worker::client(async || leasehold::backend::connect(&url).await, bounds.ttl).await;
    worker::until_free(&client, bounds.ttl, &record).await;
    drop(timeout(Duration::from_secs(5), client.shutdown(bounds.ttl)).await);
    drop(stalls);
    let events = record.events();
    if let Some(folder) = &size.record {
        let lines: String = events.iter().map(text).collect();
        fs::write(folder.join(&*class.name()), lines).expect("the folder can be written");
    }
    let run = History::new(start, events, hits, bounds).check();
    Run {
        seed: size.seed,
        class: class.name().into_owned(),
        title: class.title().to_owned(),
        versions,
        machine: machine(),
        ..run
    }
}

impl Campaign<'_> {
    async fn disturb(&self, schedule: Schedule, time: Duration) -> Vec<Hit> {
        let end = Instant::now() + time;
        let mut hits = Vec::new();
        for slot in schedule {
            sleep_until(end.min(Instant::now() + slot.pause)).await;
            if Instant::now() >= end {
                break;
            }
            let Slot { faults, pick, .. } = slot;
            let faults = faults.into_iter().map(|(fault, time)| self.hit(fault, time, pick));
            hits.extend(join_all(faults).await);
        }
        // Without a fault that fits, the time passes all the same.
        sleep_until(end).await;
        hits
    }

    async fn hit(&self, fault: &'static Fault, time: Duration, pick: usize) -> Hit {
        let from = now();
        let (target, stopped) = match fault.part {
            Part::Servers | Part::Disk => {
                (self.store.lock().await.disturb(fault.kind, time).await, Vec::new())
            }
            Part::Clients => self.disturb_clients(fault.kind, time, pick).await,
            Part::Packets(cut) => (self.cut(cut, time, pick).await, Vec::new()),
            Part::Peers(isolation) => (self.isolate_leader(isolation, time).await, Vec::new()),
        };
        let until = now();
        let at = |at: Duration| (at - self.start).as_secs_f64();
        println!("  {:7.2} s to {:7.2} s: {} ({target})", at(from), at(until), fault.kind);
        let Fault { kind, window, is_outside, .. } = *fault;
        Hit { window, is_outside, target, stopped, ..Hit::new(kind, from, until) }
    }

    async fn disturb_clients(
        &self,
        kind: FaultKind,
        time: Duration,
        pick: usize,
    ) -> (String, Vec<u32>) {
        if kind == FaultKind::ProcessorsBusy {
            let burners: Vec<_> = (0..4).map(|_| Burner::start()).collect();
            sleep(time).await;
            drop(burners);
            return ("the machine".to_owned(), Vec::new());
        }
        self.clients.lock().await.disturb(kind, time, pick).await
    }

    async fn cut(&self, cut: Cut, time: Duration, pick: usize) -> String {
        let firewall = self.firewall.expect("without a firewall, there are no such faults");
        let (place, victim) = {
            let clients = self.clients.lock().await;
            let place = pick % clients.len();
            (place, clients.at(place).number())
        };
        firewall.cut(cut, place, &self.ports).await;
        sleep(time).await;
        let packets = firewall.heal().await;
        match cut {
            Cut::Loss => format!("all clients and servers, {packets} packets"),
            _ => format!("process {victim} and the servers, {packets} packets"),
        }
    }

    async fn isolate_leader(&self, isolation: Isolation, time: Duration) -> String {
        let firewall = self.firewall.expect("without a firewall, there are no such faults");
        let leader = self.store.lock().await.leader().await;
        let leader = leader.expect("the catalogue has such faults for ensembles only");
        firewall.isolate(&leader, isolation).await;
        sleep(time).await;
        let packets = firewall.heal().await;
        format!("{} and the others, {packets} packets", leader.name)
    }
}

/// A process that keeps a core busy. It ends when dropped.
struct Burner(Child);

impl Burner {
    fn start() -> Self {
        let burner = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Self(burner.expect("there is a shell"))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop((self.0.kill(), self.0.wait()));
    }
}
