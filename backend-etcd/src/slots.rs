//! The keys of this client's leases.
//!
//! A deleted key stays in etcd's index until the next compaction, and every range request visits
//! it. Keys are therefore reused, as in the recipe of etcd's `concurrency` package. The recipe uses
//! one key per client and lock. If a client holds or requests several leases on one lock at the
//! same time, Leasehold uses a separate key for each lease. In addition, each lock has one key that
//! all clients share. A lease that is granted while the lock is free uses the shared key. The key's
//! value identifies the lease.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Lease, LeaseId, Tenure, unpoisoned};
use leasehold_core::clock::Instant;
use uuid::Uuid;

use crate::layout::Layout;

/// A slot is kept for two TTLs plus this time after the last renewal or attempt. The server may
/// restart the TTL, for example after an election, and a transaction that creates the entry may
/// arrive late.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The interval at which all slots are checked. At this rate, the check is cheap for any number of
/// slots.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The slots of this client and the leases that use them.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The part of this client's keys that distinguishes them from the keys of other clients.
    client: String,
    taken: Mutex<HashMap<LockKey, Vec<Option<Taken>>>>,
    /// The time when all slots are checked again.
    look_at: Mutex<Instant>,
}

#[derive(Debug)]
struct Taken {
    id: LeaseId,
    /// The time when the slot is freed, unless the lease is renewed or requested before that.
    until: Instant,
    /// Whether the lease was granted while the lock was free.
    is_first: bool,
    /// The revision at which the entry was created, after the grant. This revision is unique to the
    /// entry.
    granted: Option<i64>,
    /// The time when the lease expires, unless its caller renews it. A shared session may keep the
    /// entry alive for longer. `None` if the entry has been reported as abandoned, or need not be
    /// reported.
    kept_until: Option<Instant>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        // Half of a random ID is sufficient, because only the IDs of clients that use the same lock
        // at the same time must differ.
        let (client, _) = Uuid::new_v4().as_u64_pair();
        Self {
            client: format!("{client:016x}"),
            taken: Mutex::default(),
            look_at: Mutex::new(Instant::from_zero(Duration::ZERO)),
        }
    }

    /// Returns the key of a lease. Assigns a free slot if the lease does not have one.
    pub(crate) fn take(&self, layout: &Layout, lease: &Lease, now: Instant) -> String {
        let until = forgotten_at(lease, now);
        // The time is set before the attempt, because the caller may be dropped before the outcome
        // is known.
        let kept_until = kept_until(lease, now);
        let mut all = self.taken();
        let slots = all.entry(lease.key().clone()).or_default();
        let slot = position(slots, lease.id()).or_else(|| slots.iter().position(Option::is_none));
        let slot = slot.unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        let id = lease.id();
        slots[slot] = Some(Taken { id, until, is_first: false, granted: None, kept_until });
        layout.entry(lease.key(), &self.client, slot)
    }

    /// Returns the key of a lease, if the lease has one.
    pub(crate) fn find(&self, layout: &Layout, lease: &Lease) -> Option<String> {
        let all = self.taken();
        let slots = all.get(lease.key())?;
        let slot = position(slots, lease.id())?;
        Some(self.entry(layout, lease, slot, slots[slot].as_ref()?))
    }

    fn entry(&self, layout: &Layout, lease: &Lease, slot: usize, taken: &Taken) -> String {
        match taken.is_first {
            true => layout.first(lease.key()),
            false => layout.entry(lease.key(), &self.client, slot),
        }
    }

    /// Records that the lease was granted while the lock was free, so that its entry has the shared
    /// key.
    pub(crate) fn grant_first(&self, lease: &Lease, created: i64, now: Instant) {
        self.change(lease, |taken| taken.is_first = true);
        self.grant(lease, created, now);
    }

    /// Records that the lease was granted and that its entry in this slot was created at the
    /// revision `created`.
    pub(crate) fn grant(&self, lease: &Lease, created: i64, now: Instant) {
        self.change(lease, |taken| {
            taken.granted = Some(created);
            taken.kept_until = kept_until(lease, now);
        });
    }

    /// Records that the lease was renewed.
    pub(crate) fn renew(&self, lease: &Lease, now: Instant) {
        self.change(lease, |taken| {
            taken.until = forgotten_at(lease, now);
            taken.kept_until = kept_until(lease, now);
        });
    }

    /// Returns the key of a granted lease, and the revision at which its entry was created.
    pub(crate) fn granted(&self, layout: &Layout, lease: &Lease) -> Option<(String, i64)> {
        let all = self.taken();
        let slots = all.get(lease.key())?;
        let slot = position(slots, lease.id())?;
        let taken = slots[slot].as_ref()?;
        Some((self.entry(layout, lease, slot, taken), taken.granted?))
    }

    /// Frees the slot of a lease that no longer exists in the store.
    pub(crate) fn free(&self, lease: &Lease) {
        let mut all = self.taken();
        let Some(slots) = all.get_mut(lease.key()) else {
            return;
        };
        if let Some(slot) = position(slots, lease.id()) {
            slots[slot] = None;
        }
        if slots.iter().all(Option::is_none) {
            all.remove(lease.key());
        }
    }

    /// Returns whether, to this client's knowledge, it has no entries in the store.
    pub(crate) fn are_free(&self) -> bool {
        self.taken().is_empty()
    }

    /// Records that the lease was abandoned, so that [`Self::finds_strays`] does not report it
    /// again.
    pub(crate) fn leave(&self, lease: &Lease) {
        self.change(lease, |taken| taken.kept_until = None);
    }

    /// Periodically checks for leases and queue entries that no caller renews any longer. Returns
    /// whether a session may keep such an entry alive. Also frees slots that have not been renewed
    /// for a long time.
    pub(crate) fn finds_strays(&self, now: Instant) -> bool {
        {
            let mut look_at = unpoisoned(&self.look_at);
            if now < *look_at {
                return false;
            }
            *look_at = now + LOOK_EVERY;
        }
        let mut found = false;
        self.taken().retain(|_, slots| {
            for slot in slots.iter_mut() {
                if let Some(taken) = slot {
                    found |= taken.kept_until.take_if(|until| *until <= now).is_some();
                }
                slot.take_if(|taken| taken.until <= now);
            }
            slots.iter().any(Option::is_some)
        });
        found
    }

    fn change(&self, lease: &Lease, change: impl FnOnce(&mut Taken)) {
        let mut all = self.taken();
        let mut taken = all.get_mut(lease.key()).into_iter().flatten().flatten();
        if let Some(taken) = taken.find(|taken| taken.id == lease.id()) {
            change(taken);
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<LockKey, Vec<Option<Taken>>>> {
        unpoisoned(&self.taken)
    }
}

fn forgotten_at(lease: &Lease, now: Instant) -> Instant {
    now + lease.ttl() * 2 + FORGOTTEN_AFTER
}

fn kept_until(lease: &Lease, now: Instant) -> Option<Instant> {
    (lease.tenure() == Tenure::Kept).then(|| now + lease.ttl())
}

fn position(slots: &[Option<Taken>], id: LeaseId) -> Option<usize> {
    slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.id == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_zero(Duration::from_secs(1_000));

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn keys_are_used_again_and_leave_nothing_behind() {
        let (slots, layout) = (Slots::new(), Layout::default());
        let key = LockKey::new("k").unwrap();
        let [one, two, three] = [(); 3].map(|()| Lease::new(&key, TTL));

        let first = slots.take(&layout, &one, NOW);
        assert_eq!(slots.take(&layout, &one, NOW), first);
        assert_ne!(slots.take(&layout, &two, NOW), first);
        slots.free(&one);
        assert_eq!(slots.find(&layout, &one), None);
        assert_eq!(slots.take(&layout, &three, NOW), first);

        slots.free(&two);
        assert!(!slots.are_free());
        slots.free(&three);
        assert!(slots.are_free());
    }

    #[test]
    fn a_lease_is_granted_until_it_is_asked_for_again_or_released() {
        let (slots, layout) = (Slots::new(), Layout::default());
        let lease = Lease::new(&LockKey::new("k").unwrap(), TTL);
        slots.grant(&lease, 6, NOW);
        assert_eq!(slots.granted(&layout, &lease), None);

        let entry = slots.take(&layout, &lease, NOW);
        assert_eq!(slots.granted(&layout, &lease), None);
        slots.grant(&lease, 7, NOW);
        assert_eq!(slots.granted(&layout, &lease), Some((entry.clone(), 7)));

        assert_eq!(slots.take(&layout, &lease, NOW), entry);
        assert_eq!(slots.granted(&layout, &lease), None);
        slots.grant(&lease, 7, NOW);
        slots.free(&lease);
        assert_eq!(slots.granted(&layout, &lease), None);
    }

    #[test]
    fn a_lease_keeps_its_slot_for_as_long_as_it_is_renewed() {
        let (slots, layout) = (Slots::new(), Layout::default());
        let key = LockKey::new("k").unwrap();
        let [one, two] = [(); 2].map(|()| Lease::new(&key, TTL));
        let entry = slots.take(&layout, &one, NOW);
        slots.grant(&one, 7, NOW);

        let mut now = NOW;
        for _ in 0..100 {
            now = now + TTL;
            slots.renew(&one, now);
            slots.finds_strays(now);
        }

        assert_eq!(slots.granted(&layout, &one), Some((entry.clone(), 7)));
        assert_ne!(slots.take(&layout, &two, now), entry);
    }

    #[test]
    fn an_unreleased_slot_is_forgotten_when_it_must_have_ended() {
        let (slots, layout) = (Slots::new(), Layout::default());
        let leases = ["a", "b"].map(|key| Lease::new(&LockKey::new(key).unwrap(), TTL));
        for lease in &leases {
            slots.take(&layout, lease, NOW);
        }

        slots.finds_strays(NOW + TTL * 2);
        assert!(leases.iter().all(|lease| slots.find(&layout, lease).is_some()));

        slots.finds_strays(NOW + TTL * 2 + FORGOTTEN_AFTER);
        assert!(slots.are_free());
    }

    #[test]
    fn a_lease_that_is_kept_and_not_renewed_is_found_once() {
        let (slots, layout) = (Slots::new(), Layout::default());
        let key = LockKey::new("k").unwrap();
        let [asked, fixed, kept] = [(); 3].map(|()| Lease::new(&key, TTL));
        let kept = kept.with_tenure(Tenure::Kept);
        let left = Lease::new(&key, TTL).with_tenure(Tenure::Kept);
        for lease in [&asked, &fixed, &kept, &left] {
            slots.take(&layout, lease, NOW);
        }
        for lease in [&fixed, &kept, &left] {
            slots.grant(lease, 7, NOW);
        }
        slots.leave(&left);
        slots.renew(&kept, NOW + TTL / 2);

        assert!(!slots.finds_strays(NOW + TTL));
        assert!(slots.finds_strays(NOW + TTL * 2));
        assert!(!slots.finds_strays(NOW + TTL * 3));

        slots.renew(&kept, NOW + TTL * 4);
        assert!(slots.finds_strays(NOW + TTL * 5));

        let waits = Lease::new(&key, TTL).with_tenure(Tenure::Kept);
        slots.take(&layout, &waits, NOW + TTL * 6);
        slots.take(&layout, &waits, NOW + TTL * 6 + TTL / 3);
        assert!(!slots.finds_strays(NOW + TTL * 7));
        assert!(slots.finds_strays(NOW + TTL * 7 + TTL / 3));
    }

    #[test]
    fn clients_have_different_keys() {
        let layout = Layout::default();
        let lease = Lease::new(&LockKey::new("k").unwrap(), TTL);

        assert_ne!(
            Slots::new().take(&layout, &lease, NOW),
            Slots::new().take(&layout, &lease, NOW)
        );
    }

    #[test]
    fn a_lease_that_finds_the_lock_free_has_the_key_of_such_leases_until_it_is_asked_for_again() {
        let (slots, layout) = (Slots::new(), Layout::default());
        let key = LockKey::new("k").unwrap();
        let one = Lease::new(&key, TTL);
        let slot = slots.take(&layout, &one, NOW);

        slots.grant_first(&one, 7, NOW);
        assert_eq!(slots.granted(&layout, &one), Some((layout.first(&key), 7)));

        assert_eq!(slots.take(&layout, &one, NOW), slot);
        assert_eq!(slots.find(&layout, &one), Some(slot));
    }
}
