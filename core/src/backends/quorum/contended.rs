//! The keys that clients compete for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

/// How long claims for a contended key ask only the deciding member. After this time, a claim asks
/// all members again.
///
/// The deciding member may have a lease that no majority has, for example of a client that was
/// killed while it acquired the lock.
const SURVEY_EVERY: Duration = Duration::from_secs(1);

/// Old entries are removed only if there are more entries than this.
const FEW: usize = 64;

/// The contended keys of a client. Clones share them.
///
/// If all claims for a contended key asked all members, each claim would get some votes and no
/// claim would get a majority. Therefore, claims ask one member first, the deciding member, and
/// wait in its queue.
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

/// The order in which a claim asks the members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    /// All members at the same time.
    All,
    /// First the deciding member. If it refuses, no other members are asked.
    DecidingMember,
    /// First the deciding member, and then all other members, even if the deciding member refuses.
    DecidingMemberFirst,
}

impl ContendedKeys {
    pub(super) fn order(&self, key: &LockKey, now: Instant) -> Order {
        match lock(&self.0).surveyed.get(key) {
            None => Order::All,
            Some(surveyed) if now.since(*surveyed) < SURVEY_EVERY => Order::DecidingMember,
            Some(_) => Order::DecidingMemberFirst,
        }
    }

    /// Records that a claim was refused after a majority had answered.
    pub(super) fn refused(&self, key: &LockKey, now: Instant, max_ttl: Duration) {
        let mut state = lock(&self.0);
        state.surveyed.insert(key.clone(), now);
        if state.surveyed.len() > state.limit.max(FEW) {
            state.surveyed.retain(|_, surveyed| now.since(*surveyed) < max_ttl);
            state.limit = 2 * state.surveyed.len();
        }
    }

    /// Records that a claim was granted. The key is no longer contended, unless the claim was
    /// refused before.
    pub(super) fn granted(&self, key: &LockKey, was_refused: bool, now: Instant) {
        if was_refused {
            self.released(key, now);
        } else {
            lock(&self.0).surveyed.remove(key);
        }
    }

    /// Records that a lease of this client was released.
    pub(super) fn released(&self, key: &LockKey, now: Instant) {
        if let Some(surveyed) = lock(&self.0).surveyed.get_mut(key) {
            *surveyed = now;
        }
    }
}
