//! A client around its stages: runtimes that come and go, panics, shutdown, memory.

mod drops;
mod leases;
mod owners;
mod panics;
mod runtimes;
mod shutdown;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Contention, KeyWatch, Layer, Lease, LockBackend, Operation,
    Release, Reply, Request, Subject,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend, Faults, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::observe::{Lost, Observer};
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockClient, LockOptions, LossReason, Mutex, OwnerId, RenewalMode,
    TryLockError,
};
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{Fixture, TTL, ms, options, pass};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_client_that_lets_no_caller_wait_is_refused() {
    let refused = LockClient::builder(MemoryBackend::new()).max_waiters(0).build().unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

const fn assert_send_sync_static<T: Send + Sync + 'static>(_: &T) {}

#[tokio::test]
async fn types_that_users_hold_may_be_sent_and_shared() {
    let client = LockClient::new(MemoryBackend::new()).into_dyn();
    assert_send_sync_static(&client.mutex("g").unwrap().lock().await.unwrap());
    assert_send_sync_static(&client);
    assert_send_sync_static(&client.mutex("k").unwrap());
    assert_send_sync_static(&client.reentrant_mutex("k").unwrap());
    assert_send_sync_static(&client.admin());
}

/// Futures that users spawn must be `Send`, the closure form included.
#[tokio::test]
async fn futures_that_users_await_may_be_spawned() {
    let client = LockClient::new(MemoryBackend::new());
    let (mutex, reentrant) = (client.mutex("k").unwrap(), client.reentrant_mutex("r").unwrap());

    let spawned = tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        guard.extend(TTL).await.unwrap();
        guard.while_held(async {}).await.unwrap();
        guard.release().await.unwrap();
        let from_mutex = mutex.run(async |guard| guard.token().number()).await.unwrap();
        from_mutex + reentrant.run(async |guard| guard.token().number()).await.unwrap()
    });

    assert!(spawned.await.unwrap() > 0);
}
