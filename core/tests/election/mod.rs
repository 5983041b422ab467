//! Elections, under a driven clock: nothing here sleeps.

mod candidates;
mod leaders;
mod observers;
mod options;
mod run_leader;
mod values;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::admin::Inspection;
use leasehold_core::backend::{Capabilities, Feature, Fencing, Operation, Reply};
use leasehold_core::clock::Clock;
use leasehold_core::election::{Leadership, Observer};
use leasehold_core::fault::{Fault, FaultBackend, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockOptions, LossReason, RenewalMode, TryLockError,
};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, TTL, ms, options, pass};

const OUTAGE_WAIT: Duration = ms(10_000);
/// Timers fire in the millisecond that they are set for, or in the next.
const TICK: Duration = ms(2);

/// The observer's next report: the leader's value, if there is a leader.
async fn told(observer: &mut Observer) -> Option<String> {
    observer.next().await.unwrap().map(|leader| leader.value().to_string())
}

/// Whether the observer has nothing to tell for so long.
async fn is_quiet_for(observer: &mut Observer, time: Duration) -> bool {
    tokio::time::timeout(time, observer.next()).await.is_err()
}

fn value(text: &str) -> Option<String> {
    Some(text.to_owned())
}

const fn assert_send_sync_static<T: Send + Sync + 'static>(_: &T) {}

/// Users may send and share the types that they hold, and spawn the futures that they await.
#[tokio::test]
async fn elections_may_be_sent_shared_and_spawned() {
    let client = LockClient::new(MemoryBackend::new()).into_dyn();
    let election = client.election("k").unwrap();
    assert_send_sync_static(&election);
    let mut observer = election.observe();
    assert_send_sync_static(&observer);

    let spawned = tokio::spawn(async move {
        let term = election.campaign("one").await.unwrap();
        assert_send_sync_static(&term);
        term.proclaim("two").await.unwrap();
        let leader = observer.next().await.unwrap().unwrap();
        term.resign().await.unwrap();
        let led = election.run_leader(leader.value(), async |term| term.value()).await.unwrap();
        let mut told = pin!(observer.into_stream());
        assert!(told.next().await.unwrap().unwrap().is_none());
        led
    });

    assert_eq!(spawned.await.unwrap().as_str(), "two");
}
