//! Runs processes that acquire locks, pauses and kills some of them, and checks the history of their locks.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::LockClient;
use leasehold_conformance::FaultKind;
use leasehold_conformance::history::checker::{Bounds, History};
use leasehold_conformance::history::event::now;
use leasehold_conformance::history::fault::Hit;
use leasehold_conformance::history::line::Plan;
use leasehold_conformance::history::population::Population;
use leasehold_conformance::history::process::Program;
use leasehold_conformance::history::record::Record;
use leasehold_conformance::history::run::{Run, machine};
use leasehold_conformance::history::stalls::Stalls;
use leasehold_conformance::history::worker;
use tokio::time::{Instant, sleep, sleep_until};

/// The argument of a client process whose history is checked.
const CLIENT: &str = "--client-of-histories";

const PROCESSES: u32 = 4;
const TASKS: u32 = 8;

/// The TTL is short, so that processes are often paused for longer than their lease. If the store's minimum TTL is longer, the minimum TTL
/// is used.
const TTL: Duration = Duration::from_secs(1);

/// The time for recovery after a fault. The time is sufficient for a distant store. The servers are not disturbed, so no time for an
/// election is added.
const RECOVERY: Duration = Duration::from_secs(8);

/// Faults of clients, which the store notices only because a client stops sending requests.
const FAULTS: [FaultKind; 3] =
    [FaultKind::ClientStopped, FaultKind::ClientKilled, FaultKind::ClientsStopped];

/// Runs processes on the store for `time`, pauses and kills some of them at times that a seed determines, and checks their history.
pub(super) async fn run(url: &str, client: &LockClient, time: Duration) -> Run {
    let store = client.backend().capabilities();
    let bounds = Bounds { ttl: TTL.max(store.min_ttl()), recovery: RECOVERY, after_effects: None };
    let plan = Plan {
        url: url.to_owned(),
        ttl: bounds.ttl,
        patience: bounds.ttl * 2 + bounds.recovery,
        process: 0,
        tasks: TASKS,
        sample_every: Duration::from_secs(1),
        flaw: None,
    };
    let program =
        Program { args: ["verify", CLIENT].map(ToOwned::to_owned).into(), group_of: None };
    let (record, start, seed) = (Arc::<Record>::default(), now(), fastrand::u64(..1 << 32));
    let stalls = Stalls::watch(&record);
    let mut clients = Population::start(plan, PROCESSES, program, &record);
    let hits = disturb(&mut clients, seed, bounds.ttl, time).await;
    clients.finish(bounds.ttl * 4 + bounds.recovery * 4).await;
    let last = worker::client(async || leasehold::backend::connect(url).await, bounds.ttl).await;
    worker::until_free(&last, bounds.ttl, &record).await;
    drop(last.shutdown(bounds.ttl).await);
    drop(stalls);
    Run {
        seed,
        class: "yours".to_owned(),
        title: store.name().to_owned(),
        versions: [("leasehold".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        machine: machine(),
        ..History::new(start, record.events(), hits, bounds).check()
    }
}

/// Is one of these processes.
pub(super) async fn client() -> ExitCode {
    let connect = async |plan: &Plan| leasehold::backend::connect(&plan.url).await;
    worker::run(connect, |_client| BTreeMap::new()).await
}

/// Pauses and kills processes until the time has passed.
async fn disturb(clients: &mut Population, seed: u64, ttl: Duration, time: Duration) -> Vec<Hit> {
    let (mut random, end) = (Rng::with_seed(seed), Instant::now() + time);
    let mut hits = Vec::new();
    loop {
        let next = Instant::now() + Duration::from_secs(1) + ttl.mul_f64(random.f64());
        let lasts = ttl.mul_f64(2.0 * random.f64());
        if next + lasts >= end {
            sleep_until(end).await;
            return hits;
        }
        sleep(next.saturating_duration_since(Instant::now())).await;
        let (kind, from) = (FAULTS[random.usize(..FAULTS.len())], now());
        let (target, stopped) = clients.disturb(kind, lasts, random.usize(..)).await;
        hits.push(Hit { target, stopped, ..Hit::new(kind, from, now()) });
    }
}
