//! One claim of an attempt to acquire locks.

use leasehold_core::backend::Claim;
use leasehold_core::clock::Instant;

use super::EtcdBackend;
use crate::layout::{Range, tag};

/// A claim, and the etcd keys of its entry.
pub(super) struct KeyedClaim<'a> {
    pub(super) claim: &'a Claim,
    pub(super) tag: String,
    pub(super) range: Range,
    pub(super) entry: String,
    /// The key of the entry, if the claim finds the lock free.
    pub(super) first: String,
    /// Whether this is the first attempt, so that an earlier attempt cannot have left an entry.
    pub(super) is_new: bool,
}

impl EtcdBackend {
    /// Reserves the key of the claim's entry in this client's slots, unless an earlier attempt has
    /// done so.
    pub(super) fn keyed_claim<'a>(&self, claim: &'a Claim, now: Instant) -> KeyedClaim<'a> {
        let range = self.layout.range(claim.key());
        let is_new = self.slots.find(&self.layout, claim.lease()).is_none();
        let entry = self.slots.take(&self.layout, claim.lease(), now);
        let first = self.layout.first(claim.key());
        KeyedClaim { claim, tag: tag(claim.lease()), range, entry, first, is_new }
    }
}
