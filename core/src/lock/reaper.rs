//! Releases what a drop or a cancelled future could not await.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::backend::{LockBackend, Release, Renewal};
use crate::clock::{self, Clock, Instant};
use crate::error::{Error, ErrorKind};
use crate::lease::{Lease, Tenure};
use crate::loss::LossReason;
use crate::retry::Retry;
use crate::sync::lock;

/// Releases under way at once.
const MAX_IN_FLIGHT: usize = 64;

/// How long a caller that awaits a release is kept, before it is left to the reaper: longer than a
/// reconnect, shorter than a caller notices.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

/// The pause between two tries of such a release.
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Leases that the store may still have and nobody wants.
///
/// Each is tried until the store answers, or its TTL has freed it anyway.
#[derive(Debug)]
pub(crate) struct Reaper {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    pushed: Notify,
    settled: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Unwanted>,
    /// How many wait or are under way.
    unsettled: usize,
    /// No more will come.
    finishing: bool,
}

/// A lease to be ended in the store.
#[derive(Clone, Debug)]
pub(crate) struct Unwanted {
    lease: Lease,
    /// The key is to stay closed until then.
    closed_until: Instant,
}

/// A release that may be owed to the store. Dropped while owed, it is left to the reaper.
#[derive(Debug)]
pub(crate) struct Debt {
    unwanted: Unwanted,
    owed: bool,
    reaper: Arc<Reaper>,
}

impl Unwanted {
    /// A lease whose key may be open as soon as it has ended.
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, closed_until: Instant::from_zero(Duration::ZERO) }
    }

    /// Keeps the key closed until then.
    pub(crate) fn closed_until(mut self, instant: Instant) -> Self {
        self.closed_until = instant;
        self
    }

    /// Ends the lease: at once, or by a last renewal to the time that the key is to stay closed.
    pub(crate) async fn end(
        &self,
        backend: &dyn LockBackend,
        now: Instant,
    ) -> Result<Release, Error> {
        let closed_for = self.closed_until.since(now);
        if closed_for.is_zero() {
            return backend.release(&self.lease).await;
        }
        let closed_for = closed_for.max(backend.capabilities().min_ttl());
        let last = self.lease.clone().with_ttl(closed_for).with_tenure(Tenure::Fixed);
        match backend.renew(&last).await? {
            Renewal::Renewed | Renewal::RevocationRequested => Ok(Release::Released),
            Renewal::Taken | Renewal::Vanished => Ok(Release::NotHeld),
        }
    }
}

impl Debt {
    /// Owes nothing yet.
    pub(crate) fn new(unwanted: Unwanted, reaper: &Arc<Reaper>) -> Self {
        Self { unwanted, owed: false, reaper: Arc::clone(reaper) }
    }

    /// From now on the store may have the lease.
    pub(crate) fn incur(&mut self) {
        self.owed = true;
    }

    /// The store does not have the lease, or somebody wants it.
    pub(crate) fn forgive(&mut self) {
        self.owed = false;
    }

    /// Releases now what is owed, insisting a little; what fails is left to the reaper.
    pub(crate) async fn settle(
        mut self,
        backend: &dyn LockBackend,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let mut now = clock.now();
        let give_up = now + RELEASE_WAIT;
        let mut unanswered = None;
        loop {
            let release = self.unwanted.end(backend, now);
            let error = match clock::until(clock, give_up, release).await {
                Some(Ok(Release::Released)) => {
                    self.forgive();
                    return Ok(());
                }
                Some(Ok(Release::NotHeld)) => {
                    self.forgive();
                    // The lost reply of an earlier try may have been the release.
                    return Err(unanswered.unwrap_or_else(|| Error::lost(LossReason::Vanished)));
                }
                Some(Err(error)) => error,
                None => Error::new(ErrorKind::Indeterminate, "no reply in time"),
            };
            if !error.is_retryable() || clock.now() + RELEASE_PAUSE >= give_up {
                return Err(error);
            }
            if error.may_have_been_applied() {
                unanswered = Some(error);
            }
            clock.sleep_until(clock.now() + RELEASE_PAUSE).await;
            now = clock.now();
        }
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        if self.owed {
            self.reaper.push(self.unwanted.clone());
        }
    }
}

impl Reaper {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, queue: Mutex::default(), pushed: Notify::new(), settled: Notify::new() }
    }

    /// Takes over the release of a lease. Never blocks, and needs no runtime.
    pub(crate) fn push(&self, unwanted: Unwanted) {
        let mut queue = lock(&self.queue);
        queue.waiting.push_back(unwanted);
        queue.unsettled += 1;
        drop(queue);
        self.pushed.notify_one();
    }

    /// Makes the task end once all is settled.
    pub(crate) fn finish(&self) {
        lock(&self.queue).finishing = true;
        self.pushed.notify_one();
    }

    /// How many releases wait or are under way.
    pub(crate) fn unsettled(&self) -> usize {
        lock(&self.queue).unsettled
    }

    /// Waits until all that was pushed is settled.
    pub(crate) async fn wait_settled(&self) {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.unsettled() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// The task. Ends after [`Reaper::finish`], when all is settled.
    pub(crate) async fn run(&self, backend: &dyn LockBackend) {
        let mut releases = FuturesUnordered::new();
        loop {
            while releases.len() < MAX_IN_FLIGHT {
                let Some(unwanted) = self.pop() else { break };
                releases.push(self.settle(unwanted, backend));
            }
            if releases.is_empty() && lock(&self.queue).finishing {
                return;
            }
            tokio::select! {
                Some(()) = releases.next() => {}
                () = self.pushed.notified() => {}
            }
        }
    }

    fn pop(&self) -> Option<Unwanted> {
        lock(&self.queue).waiting.pop_front()
    }

    async fn settle(&self, unwanted: Unwanted, backend: &dyn LockBackend) {
        // Whatever happens here, the store frees the key by itself at about that time.
        let free_anyway = self.clock.now() + unwanted.lease.ttl();
        // A backend that panics must not take the releases of others along.
        let settled = AssertUnwindSafe(self.insist(&unwanted, backend)).catch_unwind();
        if !matches!(clock::until(&*self.clock, free_anyway, settled).await, Some(Ok(()))) {
            tracing::debug!(key = %unwanted.lease.key(), "release given up, the TTL frees the key");
        }
        lock(&self.queue).unsettled -= 1;
        self.settled.notify_waiters();
    }

    async fn insist(&self, unwanted: &Unwanted, backend: &dyn LockBackend) {
        for pause in Retry::unlimited().pauses() {
            match unwanted.end(backend, self.clock.now()).await {
                Ok(_) => return,
                Err(error) if error.is_retryable() => {
                    tracing::debug!(%error, "release failed, will try again");
                }
                Err(error) => {
                    let key = unwanted.lease.key();
                    tracing::warn!(%key, %error, "release failed, the TTL will free the key");
                    return;
                }
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
        }
    }
}
