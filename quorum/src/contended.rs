//! The keys that several clients are trying to acquire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::Instant;

/// How long claims for a contended key are sent only to the deciding member. After this time, a
/// claim is sent to all members again.
///
/// The deciding member may hold a lease that a majority does not hold, for example if a client was
/// killed while it was acquiring the lock.
const SURVEY_EVERY: Duration = Duration::from_secs(1);

/// Old entries are removed only if there are more entries than this.
const FEW: usize = 64;

/// The contended keys of a client. Clones share the same state.
///
/// If every claim for a contended key were sent to all members, each claim would get some votes,
/// but no claim would get a majority. Claims are therefore sent first to a single member, the
/// deciding member, and wait in its queue.
#[derive(Clone, Default)]
pub(super) struct ContendedKeys(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The time when this client last checked whether a majority of the members has granted the
    /// key.
    surveyed: HashMap<LockKey, Instant>,
    /// Old entries are removed if there are more entries than this.
    limit: usize,
}

/// The order in which a claim is sent to the members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    /// All members at the same time.
    All,
    /// First the deciding member. If the deciding member rejects the claim, no other member is
    /// asked.
    DecidingMember,
    /// First the deciding member, and then all other members, even if the deciding member rejects
    /// the claim.
    DecidingMemberFirst,
}

impl ContendedKeys {
    pub(super) fn order(&self, key: &LockKey, now: Instant) -> Order {
        match unpoisoned(&self.0).surveyed.get(key) {
            None => Order::All,
            Some(surveyed) if now.since(*surveyed) < SURVEY_EVERY => Order::DecidingMember,
            Some(_) => Order::DecidingMemberFirst,
        }
    }

    /// Records that a claim was rejected after a majority had replied.
    pub(super) fn refused(&self, key: &LockKey, now: Instant, max_ttl: Duration) {
        let mut state = unpoisoned(&self.0);
        state.surveyed.insert(key.clone(), now);
        if state.surveyed.len() > state.limit.max(FEW) {
            state.surveyed.retain(|_, surveyed| now.since(*surveyed) < max_ttl);
            state.limit = 2 * state.surveyed.len();
        }
    }

    /// Records that a claim was granted. The key is no longer contended unless the claim was
    /// rejected before.
    pub(super) fn granted(&self, key: &LockKey, was_refused: bool, now: Instant) {
        if was_refused {
            self.released(key, now);
        } else {
            unpoisoned(&self.0).surveyed.remove(key);
        }
    }

    /// Records that a lease of this client was released.
    pub(super) fn released(&self, key: &LockKey, now: Instant) {
        if let Some(surveyed) = unpoisoned(&self.0).surveyed.get_mut(key) {
            *surveyed = now;
        }
    }
}
