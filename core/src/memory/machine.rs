//! What a store does, as a pure state machine: the executable specification of every backend.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;

use crate::backend::{Attempt, Contention, ForcedRelease, Grant, Release, Renewal};
use crate::claim::Claim;
use crate::clock::Instant;
use crate::holder::{Holder, Inspection};
use crate::key::LockKey;
use crate::lease::Lease;

/// A store of leases without I/O and without a clock: time is what the caller says.
///
/// Property tests hold other backends against it.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::clock::Instant;
/// use leasehold_core::memory::{Machine, Op, Outcome};
/// use leasehold_core::{Attempt, Claim, Lease, LockKey, Release};
///
/// let (start, ttl) = (Instant::from_zero(Duration::ZERO), Duration::from_secs(10));
/// let lease = Lease::new(&LockKey::new("k")?, ttl);
/// let mut store = Machine::default();
///
/// let outcome = store.apply(Op::TryAcquire(&Claim::new(lease.clone())), start);
/// assert!(matches!(outcome, Outcome::Attempt(Attempt::Granted(_))));
/// let outcome = store.apply(Op::Release(&lease), start + ttl);
/// assert_eq!(outcome, Outcome::Release(Release::NotHeld), "it has just expired");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Machine {
    leases: HashMap<LockKey, InForce>,
    /// The keys by when their leases end.
    ends: BTreeSet<(Instant, LockKey)>,
    last_token: u64,
}

/// A lease and when it ends by itself.
#[derive(Debug)]
struct InForce {
    lease: Lease,
    ends: Instant,
}

/// An operation on the store.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// [`LockBackend::force_release`](crate::LockBackend::force_release)
    ForceRelease(&'a LockKey),
    /// [`LockBackend::inspect`](crate::LockBackend::inspect)
    Inspect(&'a LockKey),
    /// [`LockBackend::release`](crate::LockBackend::release)
    Release(&'a Lease),
    /// [`LockBackend::renew`](crate::LockBackend::renew)
    Renew(&'a Lease),
    /// [`LockBackend::try_acquire`](crate::LockBackend::try_acquire)
    TryAcquire(&'a Claim),
}

/// What an operation came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Of [`Op::TryAcquire`].
    Attempt(Attempt),
    /// Of [`Op::ForceRelease`].
    ForcedRelease(ForcedRelease),
    /// Of [`Op::Inspect`].
    Inspection(Inspection),
    /// Of [`Op::Release`].
    Release(Release),
    /// Of [`Op::Renew`].
    Renewal(Renewal),
}

impl Machine {
    /// Entries of expired leases that each operation clears away, so that a key that nobody asks
    /// for again does not stay for ever. More than one, so that clearing outruns filling.
    const CLEARED_PER_OPERATION: usize = 2;

    /// Applies `op` as one atomic step at `now`, which must not go back.
    pub fn apply(&mut self, op: Op<'_>, now: Instant) -> Outcome {
        self.clear_expired(now);
        match op {
            Op::ForceRelease(key) => Outcome::ForcedRelease(self.force_release(key, now)),
            Op::Inspect(key) => Outcome::Inspection(self.inspect(key, now)),
            Op::Release(lease) => Outcome::Release(self.release(lease, now)),
            Op::Renew(lease) => Outcome::Renewal(self.renew(lease, now)),
            Op::TryAcquire(claim) => Outcome::Attempt(self.try_acquire(claim, now)),
        }
    }

    /// How many keys have an entry.
    pub fn keys(&self) -> usize {
        self.leases.len()
    }

    fn try_acquire(&mut self, claim: &Claim, now: Instant) -> Attempt {
        if let Some(in_force) = self.in_force(claim.key(), now)
            && in_force.lease.id() != claim.id()
        {
            return Attempt::Held(Contention::new().with_holder(in_force.holder(now)));
        }
        self.last_token += 1;
        self.put_in_force(claim.lease(), now);
        Attempt::Granted(Grant::new(NonZeroU64::new(self.last_token).expect("it has grown")))
    }

    fn renew(&mut self, lease: &Lease, now: Instant) -> Renewal {
        match self.in_force(lease.key(), now) {
            None => Renewal::Vanished,
            Some(in_force) if in_force.lease.id() != lease.id() => Renewal::Taken,
            Some(_) => {
                self.put_in_force(lease, now);
                Renewal::Renewed
            }
        }
    }

    fn release(&mut self, lease: &Lease, now: Instant) -> Release {
        match self.in_force(lease.key(), now) {
            Some(in_force) if in_force.lease.id() == lease.id() => {
                self.end(lease.key());
                Release::Released
            }
            _ => Release::NotHeld,
        }
    }

    fn inspect(&self, key: &LockKey, now: Instant) -> Inspection {
        let last_token = (self.last_token > 0).then_some(self.last_token);
        let inspection = Inspection::free().with_last_token(last_token);
        match self.in_force(key, now) {
            Some(in_force) => inspection.with_holder(in_force.holder(now)),
            None => inspection,
        }
    }

    fn force_release(&mut self, key: &LockKey, now: Instant) -> ForcedRelease {
        let Some(in_force) = self.in_force(key, now) else {
            return ForcedRelease::new();
        };
        let ended = in_force.holder(now);
        self.end(key);
        self.last_token += 1;
        ForcedRelease::new().with_ended(ended).with_min_token(self.last_token)
    }

    fn in_force(&self, key: &LockKey, now: Instant) -> Option<&InForce> {
        self.leases.get(key).filter(|in_force| now < in_force.ends)
    }

    fn put_in_force(&mut self, lease: &Lease, now: Instant) {
        let ends = now + lease.ttl();
        let replaced =
            self.leases.insert(lease.key().clone(), InForce { lease: lease.clone(), ends });
        if let Some(replaced) = replaced {
            self.ends.remove(&(replaced.ends, lease.key().clone()));
        }
        self.ends.insert((ends, lease.key().clone()));
    }

    fn end(&mut self, key: &LockKey) {
        if let Some(ended) = self.leases.remove(key) {
            self.ends.remove(&(ended.ends, key.clone()));
        }
    }

    fn clear_expired(&mut self, now: Instant) {
        for _ in 0..Self::CLEARED_PER_OPERATION {
            match self.ends.first() {
                Some((ends, _)) if *ends <= now => {
                    let expired = self.ends.pop_first();
                    self.leases.remove(&expired.expect("it was there just now").1);
                }
                _ => return,
            }
        }
    }
}

impl InForce {
    fn holder(&self, now: Instant) -> Holder {
        Holder::new(self.lease.id().fingerprint())
            .with_description(self.lease.description().cloned())
            .with_remaining(Some(self.ends.since(now)))
    }
}

/// Lets a caller that knows which operation it applied take the outcome of that operation.
macro_rules! outcome_of {
    ($($variant:ident),*) => {$(
        impl TryFrom<Outcome> for $variant {
            type Error = Outcome;

            fn try_from(outcome: Outcome) -> Result<Self, Outcome> {
                match outcome {
                    Outcome::$variant(outcome) => Ok(outcome),
                    other => Err(other),
                }
            }
        }
    )*};
}

outcome_of!(Attempt, ForcedRelease, Inspection, Release, Renewal);
