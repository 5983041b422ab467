//! A store as a pure state machine, which serves as the executable specification for every backend.

mod entry;

use std::collections::BTreeSet;
use std::collections::hash_map::Entry as Slot;
use std::num::NonZeroU64;
use std::slice;
use std::time::Duration;

use self::entry::Entry;
use crate::clock::Instant;
use crate::contract::backend::{
    Attempt, AttemptAll, Charter, Claim, Contention, Enlistment, Fingerprint, Grant, KeyPage,
    Lease, Patience, Release, Renewal, Standing, StoreId,
};
use crate::contract::inspection::Inspection;
use crate::contract::key::{Hashed, KeyMap, LockKey};
use crate::contract::outcome::{ForcedRelease, Revocation};
use crate::options::LockOptions;

/// A store of leases that does no I/O and has no clock. The caller passes the current time to each
/// operation.
///
/// Property tests compare the behavior of each backend with the behavior of this store.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Attempt, Claim, Lease, Release};
/// use leasehold_core::clock::Instant;
/// use leasehold_core::memory::{Machine, Op, Outcome};
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
    keys: KeyMap<Entry>,
    /// All keys, sorted by the time when their last lease or queue entry expires.
    ends: BTreeSet<(Instant, LockKey)>,
    counts: Counts,
    /// The identity of the data, and the time when the data was created.
    identity: Option<(StoreId, Instant)>,
    /// The configuration of the quorum to which the store belongs.
    charter: Option<Charter>,
}

/// The counters that all keys share.
#[derive(Debug, Default)]
struct Counts {
    last_token: u64,
    changes: u64,
}

/// An operation on the store.
///
/// See [`Machine`](crate::memory::Machine) for an example that acquires and releases a lease.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Corresponds to [`LockBackend::enlist`](crate::backend::LockBackend::enlist).
    Enlist(&'a Enlistment),
    /// Corresponds to [`LockBackend::force_release`](crate::backend::LockBackend::force_release).
    ForceRelease(&'a LockKey, Option<Fingerprint>),
    /// Corresponds to [`LockBackend::inspect`](crate::backend::LockBackend::inspect).
    Inspect(&'a LockKey),
    /// Corresponds to [`LockBackend::list`](crate::backend::LockBackend::list).
    List {
        /// The prefix of the encoded key names.
        prefix: &'a str,
        /// The position where the previous page ended.
        after: Option<&'a str>,
    },
    /// Corresponds to [`LockBackend::release`](crate::backend::LockBackend::release).
    Release(&'a Lease),
    /// Corresponds to [`LockBackend::renew`](crate::backend::LockBackend::renew).
    Renew(&'a Lease),
    /// Corresponds to [`LockBackend::request_revocation`](crate::backend::LockBackend::request_revocation).
    RequestRevocation(&'a LockKey, Option<Fingerprint>),
    /// Corresponds to [`LockBackend::standing`](crate::backend::LockBackend::standing).
    Standing(StoreId),
    /// Corresponds to [`LockBackend::try_acquire`](crate::backend::LockBackend::try_acquire).
    TryAcquire(&'a Claim),
    /// Corresponds to [`LockBackend::try_acquire_all`](crate::backend::LockBackend::try_acquire_all).
    TryAcquireAll(&'a [Claim]),
}

/// The outcome of an operation.
///
/// See [`Machine`](crate::memory::Machine) for an example that checks the outcomes of two
/// operations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The outcome of [`Op::TryAcquire`].
    Attempt(Attempt),
    /// The outcome of [`Op::TryAcquireAll`].
    AttemptAll(AttemptAll),
    /// The outcome of [`Op::ForceRelease`].
    ForcedRelease(ForcedRelease),
    /// The outcome of [`Op::Inspect`].
    Inspection(Inspection),
    /// The outcome of [`Op::List`].
    KeyPage(KeyPage),
    /// The outcome of [`Op::TryAcquire`] and [`Op::TryAcquireAll`] if the claim for this key
    /// requires a quorum configuration that the store does not have.
    NotEnlisted(LockKey),
    /// The outcome of [`Op::Release`].
    Release(Release),
    /// The outcome of [`Op::Renew`].
    Renewal(Renewal),
    /// The outcome of [`Op::RequestRevocation`].
    Revocation(Revocation),
    /// The outcome of [`Op::Enlist`] and [`Op::Standing`].
    Standing(Standing),
    /// The outcome of [`Op::TryAcquire`] and [`Op::TryAcquireAll`] if the claim and the holders of
    /// this key use different modes (exclusive or units).
    WrongType(LockKey),
}

/// The reason that a claim cannot be granted.
enum Obstacle {
    Held(Contention),
    OtherKind,
}

impl Op<'_> {
    /// Returns the keys that the operation concerns.
    pub(super) fn keys(&self) -> impl Iterator<Item = &LockKey> {
        let only = match self {
            Self::ForceRelease(key, _) | Self::Inspect(key) | Self::RequestRevocation(key, _) => {
                Some(*key)
            }
            Self::Release(lease) | Self::Renew(lease) => Some(lease.key()),
            _ => None,
        };
        only.into_iter().chain(self.claims().iter().map(Claim::key))
    }

    /// Returns the claims of the operation, if it requests leases.
    pub(super) fn claims(&self) -> &[Claim] {
        match *self {
            Self::TryAcquire(claim) => slice::from_ref(claim),
            Self::TryAcquireAll(claims) => claims,
            _ => &[],
        }
    }
}

impl Machine {
    /// The number of expired entries that each access to an entry removes.
    ///
    /// Without this removal, a key that does not receive any further requests would keep its entry
    /// indefinitely. An access adds at most one entry, so a number larger than 1 removes entries
    /// faster than they are added.
    const CLEARED_PER_LOOK: usize = 2;

    const KEYS_PER_PAGE: usize = 256;

    /// Applies `op` as one atomic step at the time `now`, which must not be earlier than in
    /// previous calls.
    pub fn apply(&mut self, op: Op<'_>, now: Instant) -> Outcome {
        match op {
            Op::Enlist(enlistment) => Outcome::Standing(self.enlist(enlistment, now)),
            Op::ForceRelease(key, only) => {
                Outcome::ForcedRelease(self.force_release(key, only, now))
            }
            Op::Inspect(key) => Outcome::Inspection(self.inspect(key, now)),
            Op::List { prefix, after } => Outcome::KeyPage(self.list(prefix, after, now)),
            Op::Release(lease) => Outcome::Release(self.release(lease, now)),
            Op::Renew(lease) => Outcome::Renewal(self.renew(lease, now)),
            Op::RequestRevocation(key, only) => {
                Outcome::Revocation(self.at(key, now, |_, entry| entry.request_revocation(only)))
            }
            Op::Standing(fresh) => Outcome::Standing(self.standing(fresh, now)),
            Op::TryAcquire(claim) => self.try_acquire(claim, now),
            Op::TryAcquireAll(claims) => self.try_acquire_all(claims, now),
        }
    }

    /// Returns the number of keys with an entry.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Returns a number that increases with each change that waiters or observers must be notified
    /// of.
    pub fn changes(&self) -> u64 {
        self.counts.changes
    }

    fn try_acquire(&mut self, claim: &Claim, now: Instant) -> Outcome {
        if !self.is_member_for(claim) {
            return Outcome::NotEnlisted(claim.key().clone());
        }
        self.at(claim.key(), now, |counts, entry| {
            entry.call_up(now);
            match obstacle(entry, claim, now) {
                Some(Obstacle::OtherKind) => Outcome::WrongType(claim.key().clone()),
                Some(Obstacle::Held(contention)) => {
                    Outcome::Attempt(Attempt::Held(queue_up(entry, claim, contention, now)))
                }
                None => Outcome::Attempt(Attempt::Granted(counts.grant(entry, claim, now))),
            }
        })
    }

    fn try_acquire_all(&mut self, claims: &[Claim], now: Instant) -> Outcome {
        if let Some(claim) = claims.iter().find(|claim| !self.is_member_for(claim)) {
            return Outcome::NotEnlisted(claim.key().clone());
        }
        for claim in claims {
            let key = claim.key().clone();
            match self.at(&key, now, |_, entry| obstacle(entry, claim, now)) {
                Some(Obstacle::OtherKind) => return Outcome::WrongType(key),
                Some(Obstacle::Held(contention)) => {
                    return Outcome::AttemptAll(AttemptAll::Held { key, contention });
                }
                None => {}
            }
        }
        let grant = |claim: &Claim| {
            self.at(claim.key(), now, |counts, entry| counts.grant(entry, claim, now))
        };
        Outcome::AttemptAll(AttemptAll::Granted(claims.iter().map(grant).collect()))
    }

    fn renew(&mut self, lease: &Lease, now: Instant) -> Renewal {
        self.at(lease.key(), now, |counts, entry| {
            let Some(holding) = entry.holding(lease.id()) else {
                return if entry.is_held_like(lease) { Renewal::Taken } else { Renewal::Vanished };
            };
            let before = holding.lease.clone();
            holding.renew(lease, now);
            counts.last_token = counts.last_token.max(lease.floor());
            if holding.lease.share() != before.share()
                || holding.lease.description() != before.description()
            {
                counts.changes += 1;
            }
            entry.renewal(lease.id(), now)
        })
    }

    fn release(&mut self, lease: &Lease, now: Instant) -> Release {
        self.at(lease.key(), now, |counts, entry| {
            if entry.leave_queue(lease.id()) {
                counts.changes += 1;
            }
            if entry.end(lease.id()) {
                entry.call_up(now);
                counts.changes += 1;
                Release::Released
            } else {
                Release::NotHeld
            }
        })
    }

    fn inspect(&mut self, key: &LockKey, now: Instant) -> Inspection {
        let last_token = (self.counts.last_token > 0).then_some(self.counts.last_token);
        let inspection = Inspection::free().with_last_token(last_token);
        let look = |_: &mut Counts, entry: &mut Entry| (entry.holders(now), entry.waiters());
        let (holders, queue) = self.at(key, now, look);
        let waiting = u64::try_from(queue.len()).unwrap_or(u64::MAX);
        let inspection = inspection.with_queue(waiting, queue);
        holders.into_iter().fold(inspection, Inspection::with_holder)
    }

    fn list(&self, prefix: &str, after: Option<&str>, now: Instant) -> KeyPage {
        let is_next = |key: &LockKey| after.is_none_or(|after| key.as_str() > after);
        let is_in_use = |(_, entry): &(&Hashed, &Entry)| now < entry.ends();
        let keys = self.keys.iter().filter(is_in_use).map(|(Hashed(key), _)| key);
        let mut keys: Vec<LockKey> =
            keys.filter(|key| key.as_str().starts_with(prefix) && is_next(key)).cloned().collect();
        keys.sort_unstable();
        let is_last = keys.len() <= Self::KEYS_PER_PAGE;
        keys.truncate(Self::KEYS_PER_PAGE);
        let next = keys.last().filter(|_| !is_last).map(ToString::to_string);
        KeyPage::new(keys).with_next(next)
    }

    fn force_release(
        &mut self,
        key: &LockKey,
        only: Option<Fingerprint>,
        now: Instant,
    ) -> ForcedRelease {
        self.at(key, now, |counts, entry| {
            let ended = entry.end_forcibly(only, now);
            if ended.is_empty() {
                return ForcedRelease::new();
            }
            counts.changes += 1;
            counts.last_token += 1;
            let forced = ended.into_iter().fold(ForcedRelease::new(), ForcedRelease::with_ended);
            if entry.is_held() { forced } else { forced.with_min_token(counts.last_token) }
        })
    }

    fn is_member_for(&self, claim: &Claim) -> bool {
        claim.charter().is_none() || claim.charter() == self.charter.as_ref()
    }

    fn standing(&mut self, fresh: StoreId, now: Instant) -> Standing {
        let (store, since) = *self.identity.get_or_insert((fresh, now));
        Standing::new(store)
            .with_charter(self.charter.clone())
            .with_floor(self.counts.last_token)
            .with_age(now.since(since))
    }

    fn enlist(&mut self, enlistment: &Enlistment, now: Instant) -> Standing {
        let charter = enlistment.charter();
        let is_it = self.identity.is_some_and(|(store, _)| store == enlistment.store());
        if is_it && self.charter.as_ref().is_none_or(|mine| mine == charter) {
            self.charter = Some(charter.clone());
            self.counts.last_token = self.counts.last_token.max(enlistment.floor());
        }
        // Do not adopt the identity in the request. If the data was lost, the store would then
        // immediately accept a later request to join.
        self.standing(StoreId::new(), now)
    }

    /// Runs `work` on the entry of `key` after removing everything that has expired at `now`.
    fn at<T>(
        &mut self,
        key: &LockKey,
        now: Instant,
        work: impl FnOnce(&mut Counts, &mut Entry) -> T,
    ) -> T {
        self.clear_expired(now);
        match self.keys.entry(Hashed(key.clone())) {
            Slot::Vacant(slot) => {
                let mut entry = Entry::default();
                let outcome = work(&mut self.counts, &mut entry);
                if !entry.is_empty() {
                    self.ends.insert((entry.ends(), key.clone()));
                    slot.insert(entry);
                }
                outcome
            }
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                let before = entry.ends();
                entry.expire(now);
                let outcome = work(&mut self.counts, entry);
                if entry.is_empty() {
                    self.ends.remove(&(before, key.clone()));
                    slot.remove();
                } else if entry.ends() != before {
                    self.ends.remove(&(before, key.clone()));
                    self.ends.insert((entry.ends(), key.clone()));
                }
                outcome
            }
        }
    }

    fn clear_expired(&mut self, now: Instant) {
        for _ in 0..Self::CLEARED_PER_LOOK {
            match self.ends.first() {
                Some((ends, _)) if *ends <= now => {
                    let (_, key) = self.ends.pop_first().expect("it was there just now");
                    self.keys.remove(&Hashed(key));
                }
                _ => return,
            }
        }
    }
}

impl Counts {
    fn grant(&mut self, entry: &mut Entry, claim: &Claim, now: Instant) -> Grant {
        // The new holder may be a leader, so observers of the election must be notified.
        if !entry.is_held() && !claim.share().is_whole() {
            self.changes += 1;
        }
        let spare = claim.spare_tokens();
        self.last_token = (self.last_token + 1 + u64::from(spare)).max(heeded(claim, now));
        let token = self.last_token - u64::from(spare);
        entry.grant(claim, token, now);
        let token = NonZeroU64::new(token).expect("it has grown");
        Grant::new(token).with_spare_tokens(spare)
    }
}

/// Returns the requested minimum token, or 0 if the requested token is too far ahead of the clock.
fn heeded(claim: &Claim, now: Instant) -> u64 {
    let zero = Instant::from_zero(Duration::ZERO);
    let ahead = (now + Claim::WISHED_AHEAD).since(zero).as_micros();
    let ahead = ahead * u128::from(Grant::TOKENS_PER_MICROSECOND);
    if u128::from(claim.least_token()) <= ahead { claim.least_token() } else { 0 }
}

/// Returns the reason that `claim` cannot be granted, or `None` if it can be granted.
fn obstacle(entry: &Entry, claim: &Claim, now: Instant) -> Option<Obstacle> {
    if entry.is_held() && !entry.is_held_like(claim.lease()) {
        Some(Obstacle::OtherKind)
    } else if entry.admits(claim) {
        None
    } else {
        Some(Obstacle::Held(contention(entry, claim, now)))
    }
}

/// Queues a rejected claim. A claim that requested a queue entry keeps its entry for the requested
/// time. A claim that only waits delays later claims for at most [`Patience::RESERVATION`].
fn queue_up(entry: &mut Entry, claim: &Claim, contention: Contention, now: Instant) -> Contention {
    match claim.patience() {
        Patience::Queues(place) => {
            entry.queue_up(claim, now + place, None);
            contention
        }
        Patience::Waits => {
            let place = LockOptions::PLACE_TTL.min(claim.lease().ttl());
            entry.queue_up(claim, now + place, Some(Patience::RESERVATION));
            contention.with_place(place)
        }
        Patience::Leaves => contention,
    }
}

fn contention(entry: &Entry, claim: &Claim, now: Instant) -> Contention {
    let mut contention = Contention::new();
    if let Some(holder) = entry.first_holder(now) {
        contention = contention.with_holder(holder);
    }
    match entry.first_place_before(claim) {
        Some(ends) => contention.with_retry_after(ends.since(now)),
        None => contention,
    }
}

/// Converts an [`Outcome`] to the result type of the operation.
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

outcome_of!(
    Attempt,
    AttemptAll,
    ForcedRelease,
    Inspection,
    KeyPage,
    Release,
    Renewal,
    Revocation,
    Standing
);
