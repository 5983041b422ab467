//! Stage 1 of the pipeline: gives an owner that already holds the key another guard of the same
//! lease.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::clock::{self, Clock};
use crate::contract::backend::Mode;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::owner::OwnerId;
use crate::engine::record::{LeaseRecord, Term};
use crate::engine::wait::Wait;
use crate::sync::{Mutex, lock};

/// The leases of each owner on each key. An owner that does not hold a key does not have an entry.
#[derive(Debug, Default)]
pub(crate) struct OwnerTable {
    slots: Mutex<HashMap<(LockKey, OwnerId), OwnerSlot>>,
}

/// The lease of one owner on one key.
///
/// The mutex is locked while the owner is acquiring the key. A second call from the same owner, for
/// example in a joined future, then waits for the outcome of the first call instead of waiting for
/// itself.
type OwnerSlot = Arc<AsyncMutex<OwnedLease>>;

/// A lease, and the term in which the owner holds it.
type OwnedLease = (Weak<LeaseRecord>, Term);

/// The outcome of an owner's call.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The owner already held the key and now has one more guard.
    Again(Arc<LeaseRecord>, Term),
    /// The owner must acquire the key.
    First(Entering),
}

/// An owner that is acquiring a key. Dropping this value abandons the attempt.
#[derive(Debug)]
pub(crate) struct Entering {
    slot: Option<OwnedMutexGuard<OwnedLease>>,
    table: Arc<OwnerTable>,
    key: LockKey,
    owner: OwnerId,
}

impl OwnerTable {
    /// Enters `key` on behalf of `owner`. Returns `None` if another call from the same owner is
    /// still acquiring the key when `wait` ends.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the owner lost the lease
    /// but still has guards, because a new lease would hide the loss from the surrounding code.
    /// Returns [`ErrorKind::ReentryLimit`](crate::ErrorKind::ReentryLimit) if the owner has `limit`
    /// guards, and [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock) if the owner holds
    /// fewer units of the key than it requests.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the owner does not get a guard.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        key: &LockKey,
        owner: OwnerId,
        mode: Mode,
        limit: u32,
        wait: Wait,
        clock: &dyn Clock,
    ) -> Result<Option<Entry>, Error> {
        let first = || lock(&self.slots).keys().find(|(other, _)| other == key).map(|(_, it)| *it);
        let owner = if flaw!("owners-not-compared") { first().unwrap_or(owner) } else { owner };
        let slot = Arc::clone(lock(&self.slots).entry((key.clone(), owner)).or_default());
        let mut entering =
            Entering { slot: None, table: Arc::clone(self), key: key.clone(), owner };
        // Do not await the mutex here: if the task has used up its budget, tokio's future is
        // pending even if the slot is free.
        let free = Arc::clone(&slot).try_lock_owned().ok();
        let slot = match free {
            Some(slot) => slot,
            None if wait.is_once() => return Ok(None),
            None => match clock::until(clock, wait.end(), slot.lock_owned()).await {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
        let (record, term) = &*slot;
        if let Some(record) = record.upgrade()
            && record.enter_again(*term, mode, limit, clock.now())?
        {
            return Ok(Some(Entry::Again(record, *term)));
        }
        entering.slot = Some(slot);
        Ok(Some(Entry::First(entering)))
    }

    /// Removes an empty slot that no call is about to enter.
    pub(crate) fn tidy(&self, key: &LockKey, owner: OwnerId) {
        let mut slots = lock(&self.slots);
        let place = (key.clone(), owner);
        let unused = slots.get(&place).is_some_and(|slot| {
            // The table has the only reference, so no call can lock the slot before the table is
            // unlocked.
            Arc::strong_count(slot) == 1
                && slot.try_lock().is_ok_and(|slot| {
                    slot.0.upgrade().is_none_or(|record| record.is_abandoned(slot.1))
                })
        });
        if unused {
            slots.remove(&place);
        }
    }

    #[cfg(any(test, feature = "_simulation"))]
    pub(crate) fn len(&self) -> usize {
        lock(&self.slots).len()
    }
}

impl Entering {
    /// Makes `record` the lease that the owner's later calls enter.
    pub(crate) fn publish(mut self, record: &Arc<LeaseRecord>, term: Term) {
        if let Some(mut slot) = self.slot.take() {
            *slot = (Arc::downgrade(record), term);
        }
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        drop(self.slot.take());
        self.table.tidy(&self.key, self.owner);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::clock::{Instant, TokioClock};
    use crate::contract::backend::{Grant, Lease};

    const ZERO: Instant = Instant::from_zero(Duration::ZERO);

    #[tokio::test(start_paused = true)]
    async fn a_second_call_of_one_owner_waits_for_the_outcome_of_the_first() {
        let table = Arc::new(OwnerTable::default());
        let (key, owner) = (LockKey::new("k").unwrap(), OwnerId::new());
        let clock = TokioClock::new();
        let enter = |wait| table.enter(&key, owner, Mode::Exclusive, 9, wait, &clock);
        let Some(Entry::First(entering)) = enter(Wait::lasting(None, ZERO)).await.unwrap() else {
            panic!()
        };

        assert!(enter(Wait::once(ZERO)).await.unwrap().is_none());
        let mut second = Box::pin(enter(Wait::lasting(None, ZERO)));
        assert!((&mut second).now_or_never().is_none());

        drop(entering);
        assert!(matches!(second.await.unwrap(), Some(Entry::First(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_owners_whose_last_guard_has_gone() {
        let table = Arc::new(OwnerTable::default());
        let (key, owner) = (LockKey::new("k").unwrap(), OwnerId::new());
        let (clock, ttl) = (TokioClock::new(), Duration::from_secs(30));
        let entered = table
            .enter(&key, owner, Mode::Exclusive, 9, Wait::lasting(None, ZERO), &clock)
            .await
            .unwrap();
        let Some(Entry::First(entering)) = entered else { panic!() };
        let record = LeaseRecord::of(Lease::new(&key, ttl), Some(owner));
        record.granted(&Grant::new(NonZeroU64::MIN), clock.now(), false);
        record.give_to_caller(None);
        entering.publish(&record, Term::default());
        table.tidy(&key, owner);
        assert_eq!(table.len(), 1, "it is held");

        let _last = record.leave(clock.now());
        table.tidy(&key, owner);

        assert_eq!(table.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_owners_that_hold_nothing() {
        let table = Arc::new(OwnerTable::default());
        let (key, owner) = (LockKey::new("k").unwrap(), OwnerId::new());
        let clock = TokioClock::new();
        let enter =
            || table.enter(&key, owner, Mode::Exclusive, 9, Wait::lasting(None, ZERO), &clock);
        let first = enter().await.unwrap();
        let waiting = enter().now_or_never();
        assert!(waiting.is_none());
        assert_eq!(table.len(), 1);

        drop(first);

        assert_eq!(table.len(), 0);
    }
}
