//! A store as a pure state machine, which serves as the executable specification for every backend.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry as Slot;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::entry::{Entry, Obstacle, Step, Tokens};
use crate::contract::backend::{
    Attempt, AttemptAll, Claim, Finding, Fingerprint, ForcedRelease, Grant, Inspection,
    JoinRequest, KeyPage, Lease, LeaseId, MemberStatus, QuorumConfiguration, Release, Renewal,
    Reply, Request, Revocation, StoreId, Vote,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::{Hashed, KeyMap, LockKey};

/// A store of leases that does no I/O and has no clock. The caller passes the current time to each
/// operation.
///
/// Property tests compare the behavior of each backend with the behavior of this store.
///
/// ```
/// use std::borrow::Cow;
/// use std::time::Duration;
///
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Attempt, Claim, Lease, Release, Request};
/// use leasehold_core::clock::Instant;
/// use leasehold_core::memory::Machine;
///
/// let (start, ttl) = (Instant::from_zero(Duration::ZERO), Duration::from_secs(10));
/// let lease = Lease::new(&LockKey::new("k")?, ttl);
/// let mut store = Machine::default();
///
/// let claim = Claim::new(lease.clone());
/// let reply = store.apply(&Request::Acquire(Cow::Owned(claim)), start)?;
/// assert!(matches!(reply.read()?, Attempt::Granted(_)));
/// let reply = store.apply(&Request::Release(Cow::Owned(lease)), start + ttl)?;
/// assert_eq!(reply.read::<Release>()?, Release::NotHeld, "it has just expired");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Machine {
    keys: KeyMap<Entry<LeaseId, Instant>>,
    /// All keys, sorted by the time when their last lease or queue entry expires.
    ends: BTreeSet<(Instant, LockKey)>,
    counts: Counts,
    /// The identity of the data, and the time when the data was created.
    identity: Option<(StoreId, Instant)>,
    /// The configuration of the quorum to which the store belongs.
    configuration: Option<QuorumConfiguration>,
}

/// The counters that all keys share.
#[derive(Debug, Default)]
struct Counts {
    last_token: u64,
    changes: u64,
}

impl Machine {
    /// The number of expired entries that each access to an entry removes.
    ///
    /// Without this removal, a key that does not receive any further requests would keep its entry
    /// indefinitely. An access adds at most one entry, so a number larger than 1 removes entries
    /// faster than they are added.
    const CLEARED_PER_LOOK: usize = 2;

    const KEYS_PER_PAGE: usize = 256;

    /// Applies `request` as one atomic step at the time `now`, which must not be earlier than in
    /// previous calls.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`] if a claim and the holders of its key use different modes
    /// (exclusive or permits). Returns [`ErrorKind::Unavailable`] for a vote if the store does not
    /// have the configuration of the vote. In both cases, the request is not applied.
    pub fn apply(&mut self, request: &Request<'_>, now: Instant) -> Result<Reply, Error> {
        Ok(match request {
            Request::Acquire(claim) => self.acquire(claim, 0, now)?.into(),
            Request::AcquireAll(claims) => self.acquire_all(claims, now)?.into(),
            Request::Diagnose => Vec::<Finding>::new().into(),
            Request::ForceRelease(key, only) => self.force_release(key, *only, now).into(),
            Request::Inspect(key) => self.inspect(key, now).into(),
            Request::Join(request) => self.join(request, now).into(),
            Request::List { prefix, after } => self.list(prefix, after.as_deref(), now).into(),
            Request::Ping => ().into(),
            Request::Raise(lease, min_token) => self.renew(lease, *min_token, now).into(),
            Request::Release(lease) => self.release(lease, now).into(),
            Request::Renew(lease) => self.renew(lease, 0, now).into(),
            Request::RenewAll(leases) => {
                let renewals = leases.iter().map(|lease| Ok(self.renew(lease, 0, now)));
                renewals.collect::<Vec<Result<Renewal, Error>>>().into()
            }
            Request::RequestRevocation(key, only) => {
                self.request_revocation(key, *only, now).into()
            }
            Request::Status(fresh) => self.status(*fresh, now).into(),
            Request::Vote(vote) => self.vote(vote, now)?.into(),
        })
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

    pub(super) fn acquire(
        &mut self,
        claim: &Claim,
        requested_token: u64,
        now: Instant,
    ) -> Result<Attempt, Error> {
        self.at(claim.key(), now, |counts, entry| {
            let tokens = counts.tokens(requested_token);
            let attempt = entry.acquire(claim.id(), claim, tokens, now)?;
            Ok(counts.note(entry, attempt))
        })
    }

    pub(super) fn acquire_all(
        &mut self,
        claims: &[Claim],
        now: Instant,
    ) -> Result<AttemptAll, Error> {
        for claim in claims {
            let obstacle = |_: &mut Counts, entry: &mut Entry<LeaseId, Instant>| {
                entry.obstacle(&claim.id(), claim, now)
            };
            match self.at(claim.key(), now, obstacle) {
                Some(Obstacle::WrongType) => return Err(claim.wrong_type()),
                Some(Obstacle::Held(contention)) => {
                    return Ok(AttemptAll::Held { key: claim.key().clone(), contention });
                }
                None => {}
            }
        }
        let grant = |claim: &Claim| {
            self.at(claim.key(), now, |counts, entry| {
                let grant = entry.grant(claim.id(), claim, counts.tokens(0), now);
                counts.note(entry, grant)
            })
        };
        Ok(AttemptAll::Granted(claims.iter().map(grant).collect()))
    }

    pub(super) fn vote(&mut self, vote: &Vote, now: Instant) -> Result<Attempt, Error> {
        if self.configuration.as_ref() != Some(vote.configuration()) {
            let message = "the store is not, or is no longer, a member of this quorum";
            let error = Error::new(ErrorKind::Unavailable, message);
            return Err(error.with_key(vote.claim().key()));
        }
        self.acquire(vote.claim(), heeded(vote.requested_token(), now), now)
    }

    pub(super) fn renew(&mut self, lease: &Lease, min_token: u64, now: Instant) -> Renewal {
        self.at(lease.key(), now, |counts, entry| {
            let renewal = entry.renew(&lease.id(), lease, now);
            if matches!(renewal.reply, Renewal::Renewed | Renewal::RevocationRequested) {
                counts.last_token = counts.last_token.max(min_token);
            }
            counts.note(entry, renewal)
        })
    }

    pub(super) fn release(&mut self, lease: &Lease, now: Instant) -> Release {
        self.at(lease.key(), now, |counts, entry| {
            let release = entry.release(&lease.id(), now);
            counts.note(entry, release)
        })
    }

    pub(super) fn inspect(&mut self, key: &LockKey, now: Instant) -> Inspection {
        let last_token = (self.counts.last_token > 0).then_some(self.counts.last_token);
        self.at(key, now, |_, entry| entry.inspect(now)).with_last_token(last_token)
    }

    pub(super) fn force_release(
        &mut self,
        key: &LockKey,
        only: Option<Fingerprint>,
        now: Instant,
    ) -> ForcedRelease {
        self.at(key, now, |counts, entry| {
            let forced = entry.force_release(only, counts.tokens(0), now);
            counts.note(entry, forced)
        })
    }

    pub(super) fn request_revocation(
        &mut self,
        key: &LockKey,
        only: Option<Fingerprint>,
        now: Instant,
    ) -> Revocation {
        self.at(key, now, |_, entry| entry.request_revocation(only))
    }

    pub(super) fn list(&self, prefix: &str, after: Option<&str>, now: Instant) -> KeyPage {
        let is_next = |key: &LockKey| after.is_none_or(|after| key.as_str() > after);
        let is_in_use = |(_, entry): &(&Hashed, &Entry<LeaseId, Instant>)| now < ends(entry);
        let keys = self.keys.iter().filter(is_in_use).map(|(Hashed(key), _)| key);
        let mut keys: Vec<LockKey> =
            keys.filter(|key| key.as_str().starts_with(prefix) && is_next(key)).cloned().collect();
        keys.sort_unstable();
        let is_last = keys.len() <= Self::KEYS_PER_PAGE;
        keys.truncate(Self::KEYS_PER_PAGE);
        let next = keys.last().filter(|_| !is_last).map(ToString::to_string);
        KeyPage::new(keys).with_next(next)
    }

    pub(super) fn status(&mut self, fresh: StoreId, now: Instant) -> MemberStatus {
        let (store, since) = *self.identity.get_or_insert((fresh, now));
        MemberStatus::new(store)
            .with_configuration(self.configuration.clone())
            .with_min_token(self.counts.last_token)
            .with_age(now.since(since))
    }

    pub(super) fn join(&mut self, request: &JoinRequest, now: Instant) -> MemberStatus {
        let configuration = request.configuration();
        let is_it = self.identity.is_some_and(|(store, _)| store == request.store());
        if is_it && self.configuration.as_ref().is_none_or(|mine| mine == configuration) {
            self.configuration = Some(configuration.clone());
            self.counts.last_token = self.counts.last_token.max(request.min_token());
        }
        // Do not adopt the identity in the request. If the data was lost, the store would then
        // immediately accept a later request to join.
        self.status(StoreId::new(), now)
    }

    /// Runs `work` on the entry of `key` after removing everything that has expired at `now`.
    fn at<T>(
        &mut self,
        key: &LockKey,
        now: Instant,
        work: impl FnOnce(&mut Counts, &mut Entry<LeaseId, Instant>) -> T,
    ) -> T {
        self.clear_expired(now);
        match self.keys.entry(Hashed(key.clone())) {
            Slot::Vacant(slot) => {
                let mut entry = Entry::default();
                let outcome = work(&mut self.counts, &mut entry);
                if !entry.is_empty() {
                    self.ends.insert((ends(&entry), key.clone()));
                    slot.insert(entry);
                }
                outcome
            }
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                let before = ends(entry);
                entry.expire(now);
                let outcome = work(&mut self.counts, entry);
                if entry.is_empty() {
                    self.ends.remove(&(before, key.clone()));
                    slot.remove();
                } else if ends(entry) != before {
                    self.ends.remove(&(before, key.clone()));
                    self.ends.insert((ends(entry), key.clone()));
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
    /// Returns the limits for the next token of any key.
    fn tokens(&self, requested_token: u64) -> Tokens {
        Tokens { above: self.last_token, at_least: requested_token }
    }

    /// Counts the outcome of a step on `entry`.
    fn note<R>(&mut self, entry: &Entry<LeaseId, Instant>, step: Step<R>) -> R {
        self.last_token = self.last_token.max(entry.last_token);
        self.changes += u64::from(step.is_news);
        step.reply
    }
}

/// Returns the requested minimum token, or 0 if the requested token is too far ahead of the clock.
fn heeded(requested_token: u64, now: Instant) -> u64 {
    let zero = Instant::from_zero(Duration::ZERO);
    let ahead = (now + Vote::MAX_AHEAD).since(zero).as_micros();
    let ahead = ahead * u128::from(Grant::TOKENS_PER_MICROSECOND);
    if u128::from(requested_token) <= ahead { requested_token } else { 0 }
}

/// Returns the time by which the last lease and queue entry of `entry` expires.
fn ends(entry: &Entry<LeaseId, Instant>) -> Instant {
    entry.ends().unwrap_or(Instant::FAR_FUTURE)
}
