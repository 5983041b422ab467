//! The entry for one key, which contains its holders and its queue.

use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::{Claim, Fingerprint, Lease, LeaseId, Renewal, Share};
use crate::contract::description::Description;
use crate::contract::holder::Holder;
use crate::contract::inspection::Waiter;
use crate::contract::outcome::Revocation;

/// The leases in force on a key, its queued claims, and its revocation requests.
#[derive(Debug, Default)]
pub(super) struct Entry {
    holdings: Vec<Holding>,
    queue: Vec<Place>,
    /// Until this time, the replies to renewals ask all holders to finish early.
    asked_until: Option<Instant>,
}

/// A lease in force, with its expiry time.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) lease: Lease,
    granted_at: Instant,
    token: u64,
    ends: Instant,
    /// Whether this holder alone was asked to finish early.
    is_asked: bool,
}

/// A queue entry, with its expiry time.
#[derive(Debug)]
struct Place {
    id: LeaseId,
    share: Share,
    description: Option<Description>,
    ends: Instant,
    /// How long the entry remains after its claim could be granted. If `None`, the entry remains
    /// until `ends`.
    patience: Option<Duration>,
}

impl Entry {
    /// Removes expired leases and expired queue entries.
    pub(super) fn expire(&mut self, now: Instant) {
        self.holdings.retain(|holding| now < holding.ends);
        self.queue.retain(|place| now < place.ends);
        self.forget_request_if_free();
    }

    pub(super) fn is_held(&self) -> bool {
        !self.holdings.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holdings.is_empty() && self.queue.is_empty()
    }

    /// Returns the time by which all leases and queue entries will have expired if nothing changes
    /// before then.
    pub(super) fn ends(&self) -> Instant {
        let holdings = self.holdings.iter().map(|holding| holding.ends);
        let places = self.queue.iter().map(|place| place.ends);
        holdings.chain(places).max().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns whether the key is held in the same mode as `lease`: exclusively, or by units.
    pub(super) fn is_held_like(&self, lease: &Lease) -> bool {
        let whole = lease.share().is_whole();
        self.holdings.first().is_some_and(|first| first.lease.share().is_whole() == whole)
    }

    /// Returns whether the claim can be granted in addition to all current holders and all earlier
    /// queue entries.
    ///
    /// A claim whose own lease is in force can always be granted.
    pub(super) fn admits(&self, claim: &Claim) -> bool {
        if self.holdings.iter().any(|holding| holding.lease.id() == claim.id()) {
            return true;
        }
        let held = self.holdings.iter().map(|holding| holding.lease.share().units());
        let before = self.before(claim.id()).map(|place| place.share.units());
        let wanted = claim.share().units();
        let total: u64 = held.chain(before).chain([wanted]).map(u64::from).sum();
        let is_reader = claim.share() == Share::READER;
        total <= u64::from(claim.share().limit())
            || is_reader && flaw!("memory-reader-joins-writer")
    }

    /// Returns the queue entries ahead of `id`, or all queue entries if `id` is not queued.
    fn before(&self, id: LeaseId) -> impl Iterator<Item = &Place> {
        self.queue.iter().take_while(move |place| place.id != id)
    }

    /// Returns when the first queue entry ahead of the claim expires, if the claim could be granted
    /// at that time.
    pub(super) fn first_place_before(&self, claim: &Claim) -> Option<Instant> {
        if self.is_held() && claim.share().is_whole() {
            return None;
        }
        self.before(claim.id()).map(|place| place.ends).min()
    }

    /// Creates or refreshes the queue entry of the claim. The entry remains until `ends`, but for
    /// at most `patience` after the claim could be granted.
    pub(super) fn queue_up(&mut self, claim: &Claim, ends: Instant, patience: Option<Duration>) {
        match self.queue.iter_mut().find(|place| place.id == claim.id()) {
            Some(place) => (place.ends, place.patience) = (ends, patience),
            None => {
                let (id, share) = (claim.id(), claim.share());
                let description = claim.lease().description().cloned();
                self.queue.push(Place { id, share, description, ends, patience });
            }
        }
    }

    /// For each queued claim that could be granted now, limits the remaining time of its queue
    /// entry to its `patience`.
    pub(super) fn call_up(&mut self, now: Instant) {
        let held = self.holdings.iter().map(|holding| u64::from(holding.lease.share().units()));
        let mut total: u64 = held.sum();
        for place in &mut self.queue {
            total += u64::from(place.share.units());
            if total > u64::from(place.share.limit()) {
                return;
            }
            if let Some(patience) = place.patience {
                place.ends = (now + patience).min(place.ends);
            }
        }
    }

    /// Removes the queue entry of `id`. Returns `false` if `id` is not queued.
    pub(super) fn leave_queue(&mut self, id: LeaseId) -> bool {
        let before = self.queue.len();
        self.queue.retain(|place| place.id != id);
        self.queue.len() < before
    }

    pub(super) fn grant(&mut self, claim: &Claim, token: u64, now: Instant) {
        self.leave_queue(claim.id());
        match self.holding(claim.id()) {
            Some(holding) => {
                holding.token = token;
                holding.renew(claim.lease(), now);
            }
            None => {
                let lease = claim.lease().clone();
                let ends = now + lease.ttl();
                if self.holdings.is_empty() {
                    // Reserve space for one lease only, because most keys have one holder. `Vec`
                    // would reserve space for four.
                    self.holdings.reserve_exact(1);
                }
                self.holdings.push(Holding {
                    lease,
                    granted_at: now,
                    token,
                    ends,
                    is_asked: false,
                });
            }
        }
    }

    /// Returns the lease with this `id` if it is in force.
    pub(super) fn holding(&mut self, id: LeaseId) -> Option<&mut Holding> {
        self.holdings.iter_mut().find(|holding| holding.lease.id() == id)
    }

    /// Returns the outcome of a successful renewal of the lease with this `id`.
    pub(super) fn renewal(&mut self, id: LeaseId, now: Instant) -> Renewal {
        let all_are_asked = self.asked_until.is_some_and(|until| now < until);
        if all_are_asked || self.holding(id).is_some_and(|holding| holding.is_asked) {
            Renewal::RevocationRequested
        } else {
            Renewal::Renewed
        }
    }

    /// Asks one holder or all holders to finish early. A request to one holder lasts until its
    /// lease ends.
    ///
    /// A request to all holders lasts until the last of their current leases would expire. Each
    /// holder renews its lease before that time and is notified.
    pub(super) fn request_revocation(&mut self, only: Option<Fingerprint>) -> Revocation {
        let is_asked = match only {
            Some(fingerprint) => {
                let meant = |holding: &&mut Holding| holding.fingerprint() == fingerprint;
                let holding = self.holdings.iter_mut().find(meant);
                holding.map(|holding| holding.is_asked = true).is_some()
            }
            None => {
                self.asked_until = self.holdings.iter().map(|holding| holding.ends).max();
                self.is_held()
            }
        };
        if is_asked { Revocation::Requested } else { Revocation::NotHeld }
    }

    fn forget_request_if_free(&mut self) {
        if !self.is_held() {
            self.asked_until = None;
        }
    }

    /// Ends the lease with this `id`. Returns `false` if the lease is not in force.
    pub(super) fn end(&mut self, id: LeaseId) -> bool {
        let before = self.holdings.len();
        let any_id = flaw!("memory-release-ignores-id");
        self.holdings.retain(|holding| holding.lease.id() != id && !any_id);
        self.forget_request_if_free();
        self.holdings.len() < before
    }

    /// Ends one lease or all leases, and returns the holders.
    pub(super) fn end_forcibly(&mut self, only: Option<Fingerprint>, now: Instant) -> Vec<Holder> {
        let is_meant = |holding: &Holding| only.is_none_or(|only| holding.fingerprint() == only);
        let mut ended: Vec<Holding> = self.holdings.extract_if(.., |it| is_meant(it)).collect();
        self.forget_request_if_free();
        ended.sort_by_key(|holding| holding.ends);
        ended.into_iter().map(|holding| holding.holder(now)).collect()
    }

    /// Returns the holder whose lease expires first.
    pub(super) fn first_holder(&self, now: Instant) -> Option<Holder> {
        let first = self.holdings.iter().min_by_key(|holding| holding.ends)?;
        Some(first.holder(now))
    }

    /// Returns the holders, sorted by the time when their leases expire.
    pub(super) fn holders(&self, now: Instant) -> Vec<Holder> {
        let mut holdings: Vec<&Holding> = self.holdings.iter().collect();
        holdings.sort_by_key(|holding| holding.ends);
        holdings.into_iter().map(|holding| holding.holder(now)).collect()
    }

    /// Returns the queued claims in queue order.
    pub(super) fn waiters(&self) -> Vec<Waiter> {
        let waiter = |place: &Place| {
            let waiter = Waiter::new(place.id.fingerprint(), place.share);
            waiter.with_description(place.description.clone())
        };
        self.queue.iter().map(waiter).collect()
    }
}

impl Holding {
    /// Replaces the stored lease with `lease`. The number of units never increases.
    pub(super) fn renew(&mut self, lease: &Lease, now: Instant) {
        let share = lease.share().capped_by(self.lease.share());
        self.lease = lease.clone().with_share(share);
        self.ends = now + lease.ttl();
    }

    fn fingerprint(&self) -> Fingerprint {
        self.lease.id().fingerprint()
    }

    fn holder(&self, now: Instant) -> Holder {
        Holder::new(self.fingerprint())
            .with_description(self.lease.description().cloned())
            .with_remaining(Some(self.ends.since(now)))
            .with_share(self.lease.share())
            .with_token(Some(self.token))
            .with_held_for(Some(now.since(self.granted_at)))
    }
}
