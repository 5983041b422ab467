//! The reference backend, which keeps all data in the memory of this process.

mod machine;

pub use machine::Machine;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::clock::{Clock, Instant, SystemClock};
use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Feature, Fencing, Fingerprint, ForcedRelease,
    Inspection, JoinRequest, KeyPage, KeyWatch, KeyWatches, Lease, LockBackend, Member,
    MemberStatus, Release, Renewal, Revocation, StoreAdmin, StoreId, Subject, Vote,
};
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

/// A store in the memory of this process, for tests and for locks within one process.
///
/// Clones share one store, like clients of the same server. Mutual exclusion always holds between
/// clones, and the fencing tokens of each key strictly increase for the lifetime of the store.
/// [`Machine`] implements all operations.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let store = MemoryBackend::new();
/// let (one, other) = (LockClient::new(store.clone()), LockClient::new(store));
/// let guard = one.mutex("k")?.lock().await?;
/// assert!(other.mutex("k")?.try_lock().await.is_err());
/// # drop(guard);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryBackend {
    machine: Arc<Mutex<Machine>>,
    clock: Arc<dyn Clock>,
    /// The watches of waiters and observers.
    watches: KeyWatches,
    /// The watches of holders.
    lease_watches: KeyWatches,
}

impl MemoryBackend {
    /// Creates an empty store that uses the system clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// Creates an empty store that uses `clock`.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self {
            machine: Arc::default(),
            clock: Arc::new(clock),
            watches: KeyWatches::default(),
            lease_watches: KeyWatches::default(),
        }
    }

    /// Returns the number of keys with an entry in the store. Entries of expired leases are removed
    /// gradually.
    pub fn keys(&self) -> usize {
        lock(&self.machine).keys()
    }

    /// Deletes all data to simulate a server that loses its data.
    pub fn wipe(&self) {
        *lock(&self.machine) = Machine::default();
        self.watches.notify_all();
        self.lease_watches.notify_all();
    }

    /// Runs one step of the store, and notifies the waiters of `keys` if the step has changed them.
    fn step<'a, T>(
        &self,
        keys: impl IntoIterator<Item = &'a LockKey>,
        step: impl FnOnce(&mut Machine, Instant) -> T,
    ) -> T {
        let (reply, has_changed) = {
            let mut machine = lock(&self.machine);
            let before = machine.changes();
            let reply = step(&mut machine, self.clock.now());
            (reply, machine.changes() != before)
        };
        if has_changed {
            keys.into_iter().for_each(|key| self.watches.notify(key.as_str()));
        }
        reply
    }
}

#[async_trait]
impl LockBackend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory", Fencing::Strict)
            .with(Feature::Push)
            .with(Feature::Queue)
            .with(Feature::SpareTokens)
            .with(Feature::Together)
            .with(Feature::Units)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.step([claim.key()], |machine, now| machine.acquire(claim, 0, now))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        Ok(self.step([lease.key()], |machine, now| machine.renew(lease, 0, now)))
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        Ok(self.step([lease.key()], |machine, now| machine.release(lease, now)))
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let keys = claims.iter().map(Claim::key);
        self.step(keys, |machine, now| machine.acquire_all(claims, now))
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Lease(lease) => self.lease_watches.watch(lease.key()),
            Subject::Key(_) | Subject::Claim(_) => self.watches.watch(subject.key()),
        }
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }

    fn member(&self) -> Option<&dyn Member> {
        Some(self)
    }
}

#[async_trait]
impl StoreAdmin for MemoryBackend {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        Ok(self.step([], |machine, now| machine.inspect(key, now)))
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        Ok(self.step([], |machine, now| machine.list(prefix, after, now)))
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let forced = self.step([key], |machine, now| machine.force_release(key, only, now));
        self.lease_watches.notify(key.as_str());
        Ok(forced)
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let request = |machine: &mut Machine, now| machine.request_revocation(key, only, now);
        let revocation = self.step([key], request);
        self.lease_watches.notify(key.as_str());
        Ok(revocation)
    }
}

#[async_trait]
impl Member for MemoryBackend {
    async fn status(&self, fresh: StoreId) -> Result<MemberStatus, Error> {
        Ok(self.step([], |machine, now| machine.status(fresh, now)))
    }

    async fn join(&self, request: &JoinRequest) -> Result<MemberStatus, Error> {
        Ok(self.step([], |machine, now| machine.join(request, now)))
    }

    async fn vote(&self, vote: &Vote) -> Result<Attempt, Error> {
        self.step([vote.claim().key()], |machine, now| machine.vote(vote, now))
    }

    async fn raise(&self, lease: &Lease, min_token: u64) -> Result<Renewal, Error> {
        Ok(self.step([lease.key()], |machine, now| machine.renew(lease, min_token, now)))
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").field("keys", &self.keys()).finish_non_exhaustive()
    }
}
