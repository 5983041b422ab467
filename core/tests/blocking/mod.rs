//! The blocking face: real threads, on the store in memory.

mod async_code;
mod clients;
mod ends;
mod leases;
mod mutex;
mod other_kinds;
mod reentrancy;
mod rw_lock;
mod semaphore;
mod under_the_lock;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::backend::Operation;
use leasehold_core::blocking::{Guard, LockClient, Mutex};
use leasehold_core::clock::{self, Clock, SystemClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{
    Error, ErrorKind, LeaseState, LockOptions, LossReason, OwnerId, TryLockError,
};

/// The limit for an event that follows at once, on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// The time in which an event must not happen.
const SHORT: Duration = Duration::from_millis(20);

fn client() -> LockClient {
    LockClient::new(MemoryBackend::new()).unwrap()
}

fn client_with(options: LockOptions) -> (LockClient, MemoryBackend, Faults) {
    let store = MemoryBackend::new();
    let backend = FaultBackend::new(store.clone());
    let faults = backend.faults().clone();
    let client = LockClient::from_async(async || {
        Ok(leasehold_core::LockClient::builder(backend).options(options).build()?.into_dyn())
    });
    (client.unwrap(), store, faults)
}

/// The time on the clock of clients.
fn now() -> clock::Instant {
    SystemClock.now()
}

/// Waits for an effect of another thread.
#[track_caller]
fn wait_until(happened: impl Fn() -> bool) {
    let give_up = Instant::now() + LONG;
    while !happened() {
        assert!(Instant::now() < give_up, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the result of a call in another thread.
fn elsewhere<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(call).join().unwrap())
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}
