//! A campaign against one class of store.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::until;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::class::Class;
use crate::event::{EventKind, now};
use crate::fault::{Fault, Hit, Part};
use crate::firewall::{Cut, Firewall};
use crate::judge::History;
use crate::liar::Lie;
use crate::line::{Plan, text};
use crate::population::Population;
use crate::record::Record;
use crate::run::{Run, machine};
use crate::schedule::{Schedule, Slot};
use crate::stalls::Stalls;
use crate::store::{self, Store};
use crate::worker;

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
    /// The TTL of all leases, instead of that of the class.
    pub ttl: Option<Duration>,
    /// Only faults of these kinds; all that fit if there are none.
    pub kinds: Vec<String>,
    /// The flaw of the store, as its clients see it.
    pub lie: Option<Lie>,
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
    let store = store::start(class, url).await;
    let (url, versions, ports) = (store.url(), store.versions().await, store.ports());
    let record = Arc::<Record>::default();
    let plan = Plan {
        url: url.clone(),
        ttl: bounds.ttl,
        patience: bounds.ttl * 2 + bounds.recovery,
        process: 0,
        tasks: size.tasks,
        sample_every: size.sample_every,
        lie: size.lie,
    };
    let (start, stalls) = (now(), Stalls::watch(&record));
    let clients = Population::start(plan, size.processes, firewall.is_some(), &record);
    let (store, clients) = (Mutex::new(store), Mutex::new(clients));
    let campaign = Campaign { store, clients, firewall, ports, start };
    let mut kinds = Fault::fitting(class, firewall.is_some());
    kinds.retain(|fault| size.kinds.is_empty() || size.kinds.iter().any(|it| it == fault.kind));
    let hits = campaign.disturb(Schedule::new(size.seed, kinds), size.time).await;
    let within = bounds.ttl * 4 + bounds.recovery + Duration::from_secs(30);
    campaign.clients.into_inner().finish(within).await;
    until_free(&url, bounds.ttl, &record).await;
    drop(stalls);
    let events = record.events();
    if let Some(folder) = &size.record {
        let lines: String = events.iter().map(text).collect();
        fs::write(folder.join(class.name()), lines).expect("the folder can be written");
    }
    let run = History::new(start, events, hits, bounds).judge();
    Run {
        seed: size.seed,
        class: class.name().to_owned(),
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
            Part::Servers => (self.store.lock().await.disturb(fault.kind, time).await, Vec::new()),
            Part::Clients => self.disturb_clients(fault.kind, time, pick).await,
            Part::Packets => (self.disturb_packets(fault.kind, time, pick).await, Vec::new()),
            Part::Peers => (self.isolate_leader(fault.kind, time).await, Vec::new()),
        };
        let until = now();
        let at = |at: Duration| (at - self.start).as_secs_f64();
        println!("  {:7.2} s to {:7.2} s: {} ({target})", at(from), at(until), fault.kind);
        Hit { fault, target, stopped, from, until }
    }

    async fn disturb_clients(&self, kind: &str, time: Duration, pick: usize) -> (String, Vec<u32>) {
        let mut clients = self.clients.lock().await;
        let place = pick % clients.len();
        let victim = clients.at(place).number();
        match kind {
            "client-stopped" => {
                clients.at(place).stop();
                sleep(time).await;
                clients.at(place).go_on();
                (format!("process {victim}"), vec![victim])
            }
            "clients-stopped" => {
                clients.all().iter().for_each(|process| process.stop());
                sleep(time).await;
                clients.all().iter().for_each(|process| process.go_on());
                let all = clients.all().iter().map(|process| process.number()).collect();
                ("all processes".to_owned(), all)
            }
            "client-killed" => {
                clients.replace(place, time).await;
                (format!("process {victim}"), Vec::new())
            }
            "processors-busy" => {
                let burners: Vec<_> = (0..4).map(|_| Burner::start()).collect();
                sleep(time).await;
                drop(burners);
                ("the machine".to_owned(), Vec::new())
            }
            _ => panic!("{kind} befalls no client"),
        }
    }

    async fn disturb_packets(&self, kind: &str, time: Duration, pick: usize) -> String {
        let firewall = self.firewall.expect("without a firewall, there are no such faults");
        let cut = match kind {
            "client-partitioned" => Cut::BothWays,
            "requests-dropped" => Cut::Requests,
            "replies-dropped" => Cut::Replies,
            "packets-lost" => Cut::Loss,
            "connections-refused" => Cut::Reset,
            _ => panic!("{kind} befalls no packet"),
        };
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

    async fn isolate_leader(&self, kind: &str, time: Duration) -> String {
        let firewall = self.firewall.expect("without a firewall, there are no such faults");
        let leader = self.store.lock().await.leader().await;
        let leader = leader.unwrap_or_else(|| panic!("{kind} befalls no single server"));
        firewall.isolate(&leader, kind != "leader-mute", kind != "leader-deaf").await;
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

/// Takes all of each key once no other client is left, and looks for keys that remain.
async fn until_free(url: &str, ttl: Duration, record: &Record) {
    let ended = Instant::now();
    let client = worker::client(url, ttl, None).await;
    let free = async |key: &'static str| {
        worker::take_all(&client, key, ttl).await;
        record.add(0, EventKind::Freed { key: key.to_owned(), after: ended.elapsed() });
    };
    join_all(worker::KEYS.map(free)).await;
    let give_up = Instant::now() + ttl * 2 + Duration::from_secs(5);
    let gone = async {
        until("no key is left", async || worker::left(&client).await.is_empty()).await;
    };
    if timeout_at(give_up, gone).await.is_err() {
        for key in worker::left(&client).await {
            record.add(0, EventKind::Left { key });
        }
    }
    drop(timeout(Duration::from_secs(5), client.shutdown(ttl)).await);
}
