//! The reference backend, which keeps all data in the memory of this process.

mod machine;

pub use machine::{Machine, Op, Outcome};

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::clock::{Clock, SystemClock};
use crate::contract::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Enlistment, Feature, Fencing, Fingerprint, KeyPage,
    KeyWatch, KeyWatches, Lease, LockBackend, Release, Renewal, Standing, StoreId,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};
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

    fn apply<T: TryFrom<Outcome>>(&self, op: Op<'_>) -> Result<T, Error> {
        let (outcome, changed) = {
            let mut machine = lock(&self.machine);
            let before = machine.changes();
            let outcome = machine.apply(op, self.clock.now());
            (outcome, machine.changes() != before)
        };
        if changed {
            op.keys().for_each(|key| self.watches.notify(key.as_str()));
        }
        if let Outcome::WrongType(key) = &outcome {
            let claim = op.claims().iter().find(|claim| claim.key() == key);
            return Err(claim.expect("only claims are of a kind").wrong_type());
        }
        if let Outcome::NotEnlisted(key) = &outcome {
            let message = "the store is not, or is no longer, a member of this quorum";
            return Err(Error::new(ErrorKind::Unavailable, message).with_key(key));
        }
        Ok(T::try_from(outcome).ok().expect("each operation has its own outcome"))
    }
}

#[async_trait]
impl LockBackend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory", Fencing::Strict)
            .with(Feature::ForceRelease)
            .with(Feature::Inspect)
            .with(Feature::List)
            .with(Feature::Membership)
            .with(Feature::Push)
            .with(Feature::Queue)
            .with(Feature::Revocation)
            .with(Feature::SpareTokens)
            .with(Feature::Together)
            .with(Feature::Units)
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.apply(Op::TryAcquire(claim))
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        self.apply(Op::TryAcquireAll(claims))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.apply(Op::Renew(lease))
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.apply(Op::Release(lease))
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.watches.watch(key)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.lease_watches.watch(lease.key())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.apply(Op::Inspect(key))
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.apply(Op::List { prefix, after })
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let forced = self.apply(Op::ForceRelease(key, only))?;
        self.lease_watches.notify(key.as_str());
        Ok(forced)
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let revocation = self.apply(Op::RequestRevocation(key, only))?;
        self.lease_watches.notify(key.as_str());
        Ok(revocation)
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.apply(Op::Standing(fresh))
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.apply(Op::Enlist(enlistment))
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
