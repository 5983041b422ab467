//! Tests that the client runs observers and wakers, which are code of its users, only while none of
//! its mutexes is locked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::LockBackend;
use leasehold_core::fault::Notifications;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::observe::{Lost, Observer};
use leasehold_core::{LeaseState, LockGuard, LossReason};

use crate::fixture::{Fixture, TTL, ms, options, pass};

/// A drop that takes longer, on however busy a machine, waits for a mutex.
const HANGS: Duration = Duration::from_secs(30);

/// Drops a guard in another thread, and ends after the drop.
#[derive(Clone, Default)]
struct Dropping {
    guard: Arc<Mutex<Option<LockGuard>>>,
    has_dropped: Arc<AtomicBool>,
}

impl Dropping {
    fn run(&self) {
        let Some(guard) = self.guard.lock().unwrap().take() else { return };
        let (sender, dropped) = mpsc::channel();
        thread::spawn(move || {
            drop(guard);
            sender.send(()).unwrap_or_default();
        });
        self.has_dropped.store(dropped.recv_timeout(HANGS).is_ok(), Ordering::SeqCst);
    }
}

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

struct OnLoss(Dropping);

impl Observer for OnLoss {
    fn on_lost(&self, _: &Lost<'_>) {
        self.0.run();
    }
}

struct Idle;

impl Observer for Idle {}

/// Lets the deadline of a lease pass while the process is paused, just after a notification about
/// the lease. A caller with this waker waits for the lease. `code` must run then.
async fn assert_runs_unlocked(code: &Dropping, observer: impl Observer, waker: &Waker) {
    let Fixture { client, faults, .. } =
        Fixture::building(MemoryBackend::new().capabilities(), |builder| {
            builder.observer(observer).options(options())
        });
    faults.set_notifications(Notifications::Scripted);
    let mutex = client.mutex("k").unwrap();
    let guard = mutex.lock().await.unwrap();
    let other = client.mutex("other").unwrap().with_options(options().ttl(TTL * 9)).unwrap();
    *code.guard.lock().unwrap() = Some(other.lock().await.unwrap());
    let mut waiting = mutex.lock().boxed();
    assert!(waiting.poll_unpin(&mut Context::from_waker(waker)).is_pending());
    pass(ms(100)).await;

    faults.notify_falsely(guard.key());
    tokio::time::advance(TTL * 2).await;
    pass(ms(1)).await;

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    assert!(code.has_dropped.load(Ordering::SeqCst), "a mutex is locked");
}

#[tokio::test(start_paused = true)]
async fn observers_run_while_no_mutex_is_locked() {
    let code = Dropping::default();

    assert_runs_unlocked(&code, OnLoss(code.clone()), Waker::noop()).await;
}

#[tokio::test(start_paused = true)]
async fn wakers_run_while_no_mutex_is_locked() {
    let code = Dropping::default();

    assert_runs_unlocked(&code, Idle, &Waker::from(Arc::new(code.clone()))).await;
}
