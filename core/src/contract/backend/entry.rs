//! The state of one key: its holders, its queue, its revocation request and its last token.
//!
//! [`Entry`] is for stores that keep the state of a key in one place, such as a map in memory, a
//! row or a document. Each operation is a pure step: it takes the time of the store, changes the
//! entry and returns the reply. A store applies the step and writes the entry in one atomic step.

use std::fmt::Debug;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::contract::backend::rules::{fits, grantable, is_same_type};
use crate::contract::backend::{
    Attempt, Claim, Contention, Fingerprint, ForcedRelease, Grant, Inspection, Lease, LeaseId,
    Mode, Patience, Release, Renewal, Revocation, Waiter,
};
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::holder::Holder;

/// The time of a store.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_core::backend::entry::StoreTime;
///
/// // The microseconds since 1970.
/// assert_eq!(1_000_000_i64.after(Duration::from_secs(1)), 2_000_000);
/// assert_eq!(2_000_000_i64.since(500_000), Duration::from_millis(1_500));
/// ```
pub trait StoreTime: Copy + Debug + Ord {
    /// Returns the time that is `duration` later.
    #[must_use]
    fn after(self, duration: Duration) -> Self;

    /// Returns the time that has elapsed since `earlier`, or zero if `earlier` is later.
    fn since(self, earlier: Self) -> Duration;
}

/// The name under which a store keeps a lease.
///
/// [`LeaseId`] is a name. A store that other programs can read keeps a tag that is derived from the
/// lease id, because a program with the id can release the lease.
///
/// See [`Entry`] for an example.
pub trait LeaseName: Clone + Debug + Eq {
    /// Returns the fingerprint of the lease id.
    fn fingerprint(&self) -> Fingerprint;
}

/// The state of one key.
///
/// Call [`expire`](Self::expire) before each step, and use the methods to change an entry. A store
/// that keeps the entry in a different form, for example in rows, reads and writes the public
/// fields. All fields are public, so a new field does not compile until each of these stores keeps
/// it.
///
/// Do not delete an empty entry unless [`Tokens::above`] keeps the last token, because tokens would
/// otherwise start again.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::entry::{Entry, Tokens};
/// use leasehold_core::backend::{Attempt, Claim, Lease, LeaseId, Release};
///
/// let lease = Lease::new(&LockKey::new("k")?, Duration::from_secs(10));
/// let (claim, now) = (Claim::new(lease.clone()), 0_i64);
/// let mut entry = Entry::<LeaseId, i64>::default();
///
/// let attempt = entry.acquire(lease.id(), &claim, Tokens::default(), now)?;
/// assert!(matches!(attempt.reply, Attempt::Granted(grant) if grant.token() == 1));
/// entry.expire(10_000_000);
/// assert_eq!(entry.release(&lease.id(), 10_000_000).reply, Release::NotHeld);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry<N, T> {
    /// The leases in force, in any order.
    pub holders: Vec<Holding<N, T>>,
    /// The queued claims, in the order in which they were queued.
    pub queue: Vec<QueueEntry<N, T>>,
    /// Until this time, the replies to renewals ask all holders to finish early.
    pub asked_until: Option<T>,
    /// The last token that was granted or skipped. The next token is larger.
    pub last_token: u64,
}

/// A lease in force.
///
/// [`Entry::holders`] contains values of this type. See [`Entry`] for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holding<N, T> {
    /// The name of the lease.
    pub name: N,
    /// Whether the lease covers the whole key or a number of its units.
    pub mode: Mode,
    /// The description of the holder.
    pub description: Option<Description>,
    /// The fencing token of the grant.
    pub token: u64,
    /// When the lease was granted, or `None` if the store does not keep this time.
    pub granted_at: Option<T>,
    /// When the lease expires.
    pub ends: T,
    /// Whether this holder alone was asked to finish early.
    pub is_asked: bool,
}

/// A queued claim.
///
/// [`Entry::queue`] contains values of this type. See [`Entry`] for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueueEntry<N, T> {
    /// The name of the requested lease.
    pub name: N,
    /// Whether the claim requests the whole key or a number of its units.
    pub mode: Mode,
    /// The description of the waiter.
    pub description: Option<Description>,
    /// When the queue entry expires.
    pub ends: T,
    /// How long the entry remains after its claim could be granted. If `None`, the entry remains
    /// until `ends`.
    pub reservation: Option<Duration>,
}

/// The limits for the next token, in addition to the last token of the entry. The default has no
/// limits.
///
/// See [`Entry`] for an example.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens {
    /// The next token is larger than this token.
    pub above: u64,
    /// The next token, or the last spare token of a grant, is at least this token.
    pub at_least: u64,
}

/// The reply of a step, and whether waiters and observers must be notified.
///
/// See [`Entry`] for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step<R> {
    /// The reply.
    pub reply: R,
    /// Whether the watches of the key and of its claims must fire. The watches of the key's leases
    /// must fire after each forced release and each revocation request.
    pub is_news: bool,
}

/// The reason that a claim cannot be granted. See [`Entry`] for an example that grants a claim.
#[derive(Debug)]
pub enum Obstacle {
    /// Other leases or earlier claims.
    Held(Contention),
    /// The key is in use as a different type of lock.
    WrongType,
}

impl<N: LeaseName, T: StoreTime> Entry<N, T> {
    /// Removes expired leases and expired queue entries.
    pub fn expire(&mut self, now: T) {
        self.holders.retain(|holding| now < holding.ends);
        self.queue.retain(|waiter| now < waiter.ends);
        self.drop_request_if_free();
    }

    /// Returns whether the key has neither holders nor waiters.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Returns whether the key has a holder.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Returns the time by which all leases and queue entries will have expired if nothing changes
    /// before then, or `None` if the entry is empty.
    pub fn ends(&self) -> Option<T> {
        let holders = self.holders.iter().map(|holding| holding.ends);
        holders.chain(self.queue.iter().map(|waiter| waiter.ends)).max()
    }

    /// Returns the names of the queued claims that can be granted now.
    pub fn grantable(&self) -> impl Iterator<Item = &N> {
        let held = self.holders.iter().map(|holding| holding.mode);
        let count = grantable(held, self.queue.iter().map(|waiter| waiter.mode));
        self.queue[..count].iter().map(|waiter| &waiter.name)
    }

    /// Returns the reason that the claim cannot be granted, or `None` if it can be granted.
    pub fn obstacle(&self, name: &N, claim: &Claim, now: T) -> Option<Obstacle> {
        let is_other_type = |first: &Holding<N, T>| !is_same_type(claim.mode(), first.mode);
        if self.holders.first().is_some_and(is_other_type) {
            Some(Obstacle::WrongType)
        } else if self.admits(name, claim.mode()) {
            None
        } else {
            Some(Obstacle::Held(self.contention(name, claim, now)))
        }
    }

    /// Grants the claim, or queues it if its caller waits.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is in use as a
    /// different type of lock.
    pub fn acquire(
        &mut self,
        name: N,
        claim: &Claim,
        tokens: Tokens,
        now: T,
    ) -> Result<Step<Attempt>, Error> {
        self.reserve(now);
        match self.obstacle(&name, claim, now) {
            Some(Obstacle::WrongType) => Err(claim.wrong_type()),
            Some(Obstacle::Held(contention)) => {
                let contention = self.enqueue(name, claim, contention, now);
                Ok(Step { reply: Attempt::Held(contention), is_news: false })
            }
            None => {
                let Step { reply, is_news } = self.grant(name, claim, tokens, now);
                Ok(Step { reply: Attempt::Granted(reply), is_news })
            }
        }
    }

    /// Grants the claim, which must not have an [`obstacle`](Self::obstacle).
    pub fn grant(&mut self, name: N, claim: &Claim, tokens: Tokens, now: T) -> Step<Grant> {
        // The new holder may be a leader, so observers of the election must be notified.
        let is_news = !self.is_held() && !claim.mode().is_mutex();
        self.leave_queue(&name);
        let spare = claim.spare_tokens();
        let token = self.next_token(spare, tokens);
        let lease = claim.lease();
        match self.holding(&name) {
            Some(holding) => {
                holding.token = token;
                holding.renew(lease, now);
            }
            None => {
                let (mode, description) = (lease.mode(), lease.description().cloned());
                let ends = now.after(lease.ttl());
                self.hold(Holding {
                    name,
                    mode,
                    description,
                    token,
                    granted_at: Some(now),
                    ends,
                    is_asked: false,
                });
            }
        }
        let token = NonZeroU64::new(token).expect("it is larger than another token");
        Step { reply: Grant::new(token).with_spare_tokens(spare), is_news }
    }

    /// Renews a lease.
    pub fn renew(&mut self, name: &N, lease: &Lease, now: T) -> Step<Renewal> {
        let is_same = |first: &Holding<N, T>| is_same_type(lease.mode(), first.mode);
        let is_taken = self.holders.first().is_some_and(is_same);
        let are_asked = self.asked_until.is_some_and(|until| now < until);
        let Some(holding) = self.holding(name) else {
            let reply = if is_taken { Renewal::Taken } else { Renewal::Vanished };
            return Step { reply, is_news: false };
        };
        let is_asked = are_asked || holding.is_asked;
        let is_news = holding.renew(lease, now);
        let reply = if is_asked { Renewal::RevocationRequested } else { Renewal::Renewed };
        Step { reply, is_news }
    }

    /// Releases a lease and removes its claim from the queue.
    pub fn release(&mut self, name: &N, now: T) -> Step<Release> {
        let was_queued = self.leave_queue(name);
        let before = self.holders.len();
        let any_name = flaw!("memory-release-ignores-id");
        self.holders.retain(|holding| holding.name != *name && !any_name);
        if self.holders.len() == before {
            return Step { reply: Release::NotHeld, is_news: was_queued };
        }
        self.drop_request_if_free();
        self.reserve(now);
        Step { reply: Release::Released, is_news: true }
    }

    /// Grants a free key to the first queued claim for the time of its
    /// [reservation](Claim::reservation), so that no other claim can be granted in the meantime.
    /// Returns the name of the new lease, or `None` if no claim was granted.
    ///
    /// Call this method in the step that frees the key. The waiter does not treat the lease as
    /// granted until it has repeated its claim, which extends the lease to its TTL with a new
    /// token. If the waiter crashed, the lease expires with the reservation.
    ///
    /// Claims for permits and claims without a reservation stay in the queue until their callers
    /// repeat them.
    pub fn hand_over(&mut self, tokens: Tokens, now: T) -> Option<N> {
        let first = self.queue.first().filter(|first| first.mode.is_mutex())?;
        let reservation = first.reservation.filter(|_| !self.is_held())?;
        let QueueEntry { name, mode, description, ends, .. } = self.queue.remove(0);
        let (token, ends) = (self.next_token(0, tokens), ends.min(now.after(reservation)));
        self.hold(Holding {
            name: name.clone(),
            mode,
            description,
            token,
            granted_at: Some(now),
            ends,
            is_asked: false,
        });
        Some(name)
    }

    /// Ends one lease or all leases. If any lease ends, a token is skipped. If the key becomes
    /// free, this token is the minimum token that excludes the former holders.
    pub fn force_release(
        &mut self,
        only: Option<Fingerprint>,
        tokens: Tokens,
        now: T,
    ) -> Step<ForcedRelease> {
        let is_meant =
            |holding: &Holding<N, T>| only.is_none_or(|only| holding.name.fingerprint() == only);
        let mut ended: Vec<Holding<N, T>> =
            self.holders.extract_if(.., |holding| is_meant(holding)).collect();
        self.drop_request_if_free();
        if ended.is_empty() {
            return Step { reply: ForcedRelease::new(), is_news: false };
        }
        self.next_token(0, tokens);
        ended.sort_by_key(|holding| holding.ends);
        let ended = ended.iter().map(|holding| holding.holder(now));
        let forced = ended.fold(ForcedRelease::new(), ForcedRelease::with_ended);
        let is_free = !self.is_held();
        let reply = if is_free { forced.with_min_token(self.last_token) } else { forced };
        Step { reply, is_news: true }
    }

    /// Asks one holder or all holders to finish early. A request to one holder lasts until its
    /// lease ends.
    ///
    /// A request to all holders lasts until the last of their current leases would expire. Each
    /// holder renews its lease before that time and is notified.
    pub fn request_revocation(&mut self, only: Option<Fingerprint>) -> Revocation {
        let is_asked = match only {
            Some(only) => {
                let mut holders = self.holders.iter_mut();
                let holding = holders.find(|holding| holding.name.fingerprint() == only);
                holding.map(|holding| holding.is_asked = true).is_some()
            }
            None => {
                self.asked_until = self.holders.iter().map(|holding| holding.ends).max();
                self.is_held()
            }
        };
        if is_asked { Revocation::Requested } else { Revocation::NotHeld }
    }

    /// Returns the holders, sorted by the time when their leases expire, and the waiters.
    pub fn inspect(&self, now: T) -> Inspection {
        let waiter = |waiter: &QueueEntry<N, T>| {
            let description = waiter.description.clone();
            Waiter::new(waiter.name.fingerprint(), waiter.mode).with_description(description)
        };
        let mut holders: Vec<&Holding<N, T>> = self.holders.iter().collect();
        holders.sort_by_key(|holding| holding.ends);
        let waiting = u64::try_from(self.queue.len()).unwrap_or(u64::MAX);
        let inspection = Inspection::free()
            .with_last_token((self.last_token > 0).then_some(self.last_token))
            .with_queue(waiting, self.queue.iter().map(waiter).collect());
        let holders = holders.into_iter().map(|holding| holding.holder(now));
        holders.fold(inspection, Inspection::with_holder)
    }

    /// Returns whether the claim can be granted in addition to all current holders and all earlier
    /// queue entries. A claim whose own lease is in force can always be granted.
    fn admits(&self, name: &N, mode: Mode) -> bool {
        let is_own = |holding: &Holding<N, T>| holding.name == *name;
        let held = self.holders.iter().map(|holding| holding.mode);
        self.holders.iter().any(is_own)
            || fits(mode, held.chain(self.before(name).map(|waiter| waiter.mode)))
            || mode == Mode::READER && flaw!("memory-reader-joins-writer")
    }

    /// Returns the queue entries ahead of `name`, or all queue entries if `name` is not queued.
    fn before(&self, name: &N) -> impl Iterator<Item = &QueueEntry<N, T>> {
        self.queue.iter().take_while(move |waiter| waiter.name != *name)
    }

    fn contention(&self, name: &N, claim: &Claim, now: T) -> Contention {
        let first = self.holders.iter().min_by_key(|holding| holding.ends);
        let contention = match first {
            Some(first) => Contention::new().with_holder(first.holder(now)),
            None => Contention::new(),
        };
        // Behind a holder of the whole key, queue entries do not matter.
        let waits_for_holder = self.is_held() && claim.mode().is_mutex();
        match self.before(name).map(|waiter| waiter.ends).min() {
            Some(ends) if !waits_for_holder => contention.with_retry_after(ends.since(now)),
            _ => contention,
        }
    }

    /// Queues a refused claim if its caller waits. A later attempt refreshes the queue entry.
    fn enqueue(&mut self, name: N, claim: &Claim, contention: Contention, now: T) -> Contention {
        let Some(ttl) = claim.queue_ttl() else { return contention };
        let (ends, reservation) = (now.after(ttl), claim.reservation());
        match self.queue.iter_mut().find(|waiter| waiter.name == name) {
            Some(waiter) => (waiter.ends, waiter.reservation) = (ends, reservation),
            None => {
                let (mode, description) = (claim.mode(), claim.lease().description().cloned());
                self.queue.push(QueueEntry { name, mode, description, ends, reservation });
            }
        }
        match claim.patience() {
            Patience::Waits => contention.with_queue_entry(ttl),
            Patience::Leaves | Patience::Queues(_) => contention,
        }
    }

    /// Limits the queue entries of all claims that can be granted now to their reservations.
    fn reserve(&mut self, now: T) {
        let count = self.grantable().count();
        for waiter in &mut self.queue[..count] {
            if let Some(reservation) = waiter.reservation {
                waiter.ends = waiter.ends.min(now.after(reservation));
            }
        }
    }

    /// Removes a queue entry. Returns `false` if `name` is not queued.
    fn leave_queue(&mut self, name: &N) -> bool {
        let before = self.queue.len();
        self.queue.retain(|waiter| waiter.name != *name);
        self.queue.len() < before
    }

    /// Raises the last token, and returns the token of a grant with `spare` further tokens.
    fn next_token(&mut self, spare: u32, tokens: Tokens) -> u64 {
        let first = self.last_token.max(tokens.above) + 1;
        self.last_token = (first + u64::from(spare)).max(tokens.at_least);
        self.last_token - u64::from(spare)
    }

    fn hold(&mut self, holding: Holding<N, T>) {
        if self.holders.is_empty() {
            // Reserve space for one lease only, because most keys have one holder. `Vec` would
            // reserve space for four.
            self.holders.reserve_exact(1);
        }
        self.holders.push(holding);
    }

    fn holding(&mut self, name: &N) -> Option<&mut Holding<N, T>> {
        self.holders.iter_mut().find(|holding| holding.name == *name)
    }

    fn drop_request_if_free(&mut self) {
        if !self.is_held() {
            self.asked_until = None;
        }
    }
}

impl<N: LeaseName, T: StoreTime> Holding<N, T> {
    /// Applies `lease`. The number of units never increases. Returns whether observers see a
    /// change.
    fn renew(&mut self, lease: &Lease, now: T) -> bool {
        let mode = lease.mode().capped_by(self.mode);
        let is_news = mode != self.mode || self.description.as_ref() != lease.description();
        self.mode = mode;
        self.description = lease.description().cloned();
        self.ends = now.after(lease.ttl());
        is_news
    }

    fn holder(&self, now: T) -> Holder {
        Holder::new(self.name.fingerprint())
            .with_description(self.description.clone())
            .with_remaining(Some(self.ends.since(now)))
            .with_mode(self.mode)
            .with_token(Some(self.token))
            .with_held_for(self.granted_at.map(|granted_at| now.since(granted_at)))
    }
}

impl<N, T> Default for Entry<N, T> {
    fn default() -> Self {
        Self { holders: Vec::new(), queue: Vec::new(), asked_until: None, last_token: 0 }
    }
}

impl LeaseName for LeaseId {
    fn fingerprint(&self) -> Fingerprint {
        Self::fingerprint(self)
    }
}

/// Microseconds. Durations are rounded up, so that no lease is shorter than requested.
impl StoreTime for i64 {
    fn after(self, duration: Duration) -> Self {
        let micros = Self::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(Self::MAX);
        self.saturating_add(micros)
    }

    fn since(self, earlier: Self) -> Duration {
        let micros = self.saturating_sub(earlier);
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
