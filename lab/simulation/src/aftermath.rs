//! The time after the work and all faults. Every lock is free, and nothing remains.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::history::event::outcome_of;
use leasehold_core::backend::{Reply, Request};
use leasehold_core::election::Election;
use leasehold_core::{Error, ErrorKind, LockClient, LockKey, TryLockError};
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::incident::Incident;
use crate::store::Answer;
use crate::workload::{ELECTION, KEYS, MUTEXES};
use crate::world::World;

/// After faults have ended, a client has released everything within this time.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// Longer than any TTL, delay or queue entry.
const ALL_IS_OVER: Duration = Duration::from_secs(15);

/// The limit of a call for a free lock in the record. A call that fails takes longer.
const SERVED_WITHIN: Duration = Duration::from_secs(14);

/// The proclamation of the last leader.
const FAREWELL: &str = "farewell";

/// A client without work, and the number of its process.
pub(crate) type Idle = (u32, LockClient);

/// Ends all faults, shuts the clients down, and records what remains.
pub(crate) async fn run_aftermath(world: &Arc<World>, clients: Vec<Idle>) {
    let faults_end = world.incidents.iter().map(Incident::end).max().unwrap_or_default();
    sleep_until(world.zero() + faults_end).await;
    world.calm_down();
    for client in &clients {
        acquire_all(world, client).await;
    }
    elect(world, &clients).await;
    sleep(ALL_IS_OVER).await;
    for client in clients {
        shut_down(world, client).await;
    }
    find_remains(world).await;
}

/// Acquires every mutex. No queue entry and no turn of an earlier caller prevents the call.
async fn acquire_all(world: &World, (process, client): &Idle) {
    for key in MUTEXES {
        let mutex = client.mutex(key).expect("the key is valid");
        let call = world.recorder.asked(*process, key, Some(SERVED_WITHIN));
        let acquired = mutex.try_lock_for(ALL_IS_OVER).await;
        world.recorder.answered(*process, call, outcome(&acquired));
    }
}

/// Elects a leader, of which all clients are notified, if the store supports elections.
async fn elect(world: &World, clients: &[Idle]) {
    let elections = clients.iter().map(|(_, client)| client.election(ELECTION));
    let elections: Result<Vec<Election>, Error> = elections.collect();
    let Ok(elections) = elections else { return };
    let (process, _) = clients[0];
    let call = world.recorder.asked(process, ELECTION, Some(SERVED_WITHIN));
    let elected = elections[0].try_campaign_for(FAREWELL, ALL_IS_OVER).await;
    world.recorder.answered(process, call, outcome(&elected));
    let Ok(leadership) = elected else { return };
    for (election, (process, _)) in elections.iter().zip(clients) {
        let call = world.recorder.asked(*process, ELECTION, Some(SERVED_WITHIN));
        let mut observer = election.observe();
        let seen = async {
            while let Ok(leader) = observer.next().await {
                if leader.is_some_and(|leader| *leader.value() == leadership.value()) {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        let is_seen = timeout(ALL_IS_OVER, seen).await.is_ok();
        world.recorder.answered(*process, call, if is_seen { "granted" } else { "busy" });
    }
}

/// Shuts down a client that holds nothing.
async fn shut_down(world: &World, (process, client): Idle) {
    world.recorder.finished(process, client.entries());
    if let Err(error) = client.shutdown(SHUTDOWN_LIMIT).await {
        world.recorder.remained(format!("a lease of a client that was shut down ({error})"));
    }
    let refused = client.mutex(KEYS[0]).expect("the key is valid").try_lock().await;
    if refused.err().map(|error| Error::from(error).kind()) != Some(ErrorKind::Closed) {
        world.recorder.remained("the ability of a client that was shut down to acquire locks");
    }
}

async fn find_remains(world: &Arc<World>) {
    let watched = world.disconnect_all();
    if watched > 0 {
        world.recorder.remained(format!("{watched} watched keys"));
    }
    sleep(ALL_IS_OVER).await;
    for key in KEYS {
        let inspect = Request::Inspect(Cow::Owned(LockKey::new(key).expect("the key is valid")));
        let is_held = |answer: &Answer| match answer {
            Ok(Reply::Inspection(inspection)) => inspection.is_held(),
            _ => false,
        };
        if world.apply_everywhere(&inspect).iter().any(is_held) {
            world.recorder.remained(format!("a lease of {key}"));
        }
    }
    let records = world.keys_in_stores();
    if records > 0 {
        world.recorder.remained(format!("{records} records in the stores"));
    }
    let tasks = Handle::current().metrics().num_alive_tasks();
    if tasks > 0 {
        world.recorder.remained(format!("{tasks} tasks"));
    }
}

fn outcome<T>(result: &Result<T, TryLockError>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(TryLockError::Busy(_)) => "busy".to_owned(),
        Err(TryLockError::Failed(error)) => outcome_of(error),
    }
}
