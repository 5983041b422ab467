//! The time after the work and all faults: everything is to be had, and nothing is left.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Rule;
use leasehold_core::election::Election;
use leasehold_core::memory::Outcome;
use leasehold_core::{Error, ErrorKind, LockClient, LockKey, TryLockError};
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::incident::Incident;
use crate::store::Request;
use crate::workload::{ELECTION, KEYS, MUTEXES};
use crate::world::World;

/// After faults have ended, a client has released everything within this time.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// Longer than any TTL, delay or place in a queue.
const ALL_IS_OVER: Duration = Duration::from_secs(15);

/// The time within which a free lock is granted, with which a wait fails only after it is over.
const SERVED_WITHIN: Duration = Duration::from_secs(14);

/// The proclamation of the last leader.
const FAREWELL: &str = "farewell";

/// Ends all faults, shuts the clients down, and checks that nothing is left.
pub(crate) async fn judge_aftermath(world: &Arc<World>, clients: Vec<(u32, LockClient)>) {
    let faults_end = world.incidents.iter().map(Incident::end).max().unwrap_or_default();
    sleep_until(world.zero() + faults_end).await;
    world.calm_down();
    for (process, client) in &clients {
        judge_liveness(world, *process, client).await;
    }
    judge_election(world, &clients).await;
    sleep(ALL_IS_OVER).await;
    for (process, client) in clients {
        judge_client(world, process, client).await;
    }
    judge_leftovers(world).await;
}

/// Every client gets every mutex: no place and no turn is left behind.
async fn judge_liveness(world: &World, process: u32, client: &LockClient) {
    for key in MUTEXES {
        let mutex = client.mutex(key).expect("it is a good key");
        let call = world.recorder.asked(process, key, Some(SERVED_WITHIN));
        let taken = mutex.try_lock_for(ALL_IS_OVER).await;
        world.recorder.answered(process, call, outcome(&taken));
        match taken {
            Ok(guard) => drop(guard),
            Err(error) => {
                world.judge.violate(Rule::BoundedWait, format!("{key} is not to be had: {error}"));
            }
        }
    }
}

/// All clients are notified of the leader, if the store has elections.
async fn judge_election(world: &World, clients: &[(u32, LockClient)]) {
    let elections = clients.iter().map(|(_, client)| client.election(ELECTION));
    let elections: Result<Vec<Election>, Error> = elections.collect();
    let Ok(elections) = elections else { return };
    let process = clients[0].0;
    let call = world.recorder.asked(process, ELECTION, Some(SERVED_WITHIN));
    let elected = elections[0].try_campaign_for(FAREWELL, ALL_IS_OVER).await;
    world.recorder.answered(process, call, outcome(&elected));
    let Ok(leadership) = elected else {
        return world
            .judge
            .violate(Rule::BoundedWait, format!("no leader is elected: {elected:?}"));
    };
    for (election, (process, _)) in elections.iter().zip(clients) {
        let call = world.recorder.asked(*process, ELECTION, Some(SERVED_WITHIN));
        let mut observer = election.observe();
        let seen = async {
            while let Ok(leader) = observer.next().await {
                if leader.is_some_and(|leader| *leader.value() == leadership.value()) {
                    return;
                }
            }
        };
        let seen = timeout(ALL_IS_OVER, seen).await;
        world.recorder.answered(*process, call, if seen.is_ok() { "granted" } else { "busy" });
        if seen.is_err() {
            world.judge.violate(Rule::BoundedWait, "a leader is not seen".to_owned());
        }
    }
}

fn outcome<T>(result: &Result<T, TryLockError>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(TryLockError::Busy(_)) => "busy".to_owned(),
        Err(error) => format!("{error:?}").to_lowercase(),
    }
}

/// A client that holds nothing keeps nothing, and ends.
async fn judge_client(world: &World, process: u32, client: LockClient) {
    let entries = client.entries().into_iter().map(|(name, count)| (name.to_string(), count as u64));
    world.recorder.finished(process, entries);
    for (entries, count) in client.entries() {
        if count > 0 {
            world.judge.violate(Rule::NoResidue, format!("a client has {count} {entries} left"));
        }
    }
    if let Err(error) = client.shutdown(SHUTDOWN_LIMIT).await {
        world.recorder.remained(format!("a lease of a client that was shut down ({error})"));
        world.judge.violate(Rule::NoResidue, format!("a shutdown fails: {error}"));
    }
    let refused = client.mutex(KEYS[0]).expect("it is a good key").try_lock().await;
    if refused.err().map(|error| Error::from(error).kind()) != Some(ErrorKind::Closed) {
        world.recorder.remained("the ability of a client that was shut down to acquire locks");
        world.judge.violate(Rule::NoResidue, "a client that was shut down locks".to_owned());
    }
}

async fn judge_leftovers(world: &World) {
    let watched = world.disconnect_all();
    if watched > 0 {
        world.recorder.remained(format!("{watched} watched keys"));
        world.judge.violate(Rule::NoResidue, format!("{watched} keys are still watched"));
    }
    sleep(ALL_IS_OVER).await;
    for key in KEYS {
        let inspect = Request::Inspect(LockKey::new(key).expect("it is short and plain"));
        let is_held = |outcome: &Outcome| match outcome {
            Outcome::Inspection(inspection) => inspection.is_held(),
            _ => false,
        };
        if world.apply_everywhere(&inspect).iter().any(is_held) {
            world.recorder.remained(format!("a lease of {key}"));
            world.judge.violate(Rule::NoResidue, format!("{key} is still held"));
        }
    }
    let records = world.keys_in_stores();
    if records > 0 {
        world.recorder.remained(format!("{records} records in the stores"));
        world.judge.violate(Rule::NoResidue, format!("the stores have {records} records left"));
    }
    let tasks = Handle::current().metrics().num_alive_tasks();
    if tasks > 0 {
        world.recorder.remained(format!("{tasks} tasks"));
        world.judge.violate(Rule::NoResidue, format!("{tasks} tasks are left"));
    }
}
