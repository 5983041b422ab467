//! Records the leases that this client holds or requests, with their nodes and sessions. Also
//! records whether a request to create a node may still reach the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::{Lease, LeaseId, Tenure, unpoisoned};
use leasehold_core::clock::Instant;

use crate::name::State;
use crate::session::Session;

/// A lease is forgotten two TTLs plus this time after its last renewal or attempt. The server may
/// restart the TTL, for example after an election.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The interval at which all leases are checked. At this rate, the check is cheap for any number of
/// leases.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The leases that this client holds or requests.
#[derive(Debug)]
pub(crate) struct Claims {
    known: Mutex<HashMap<LeaseId, Known>>,
    /// The time when all leases are checked again.
    look_at: Mutex<Instant>,
}

/// A lease of this client.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The last known name of the lease's node.
    pub(crate) name: Option<String>,
    pub(crate) state: State,
    /// The last known session to which the lease's node is attached.
    pub(crate) session: Option<Arc<Session>>,
    /// The time and the session of the last request to create the node, if the request may have
    /// been applied or may still be applied.
    pub(crate) in_doubt: Option<(Instant, Arc<Session>)>,
    /// The time when the lease is forgotten, unless it is renewed or requested before that.
    until: Instant,
    /// The time when the lease expires for its holder or waiter, unless it is renewed or requested
    /// before that. Other leases may keep the session alive for longer. `None` if the expiry has
    /// been reported or need not be reported.
    kept_until: Option<Instant>,
}

impl Claims {
    pub(crate) fn new() -> Self {
        Self { known: Mutex::default(), look_at: Mutex::new(Instant::from_zero(Duration::ZERO)) }
    }

    /// Records that the lease is requested. Returns what was known about the lease before.
    pub(crate) fn ask(&self, lease: &Lease, now: Instant) -> Option<Known> {
        let mut all = unpoisoned(&self.known);
        let before = all.get(&lease.id()).cloned();
        let known = all.entry(lease.id()).or_insert_with(|| Known {
            name: None,
            state: State::Queued,
            session: None,
            in_doubt: None,
            until: now,
            kept_until: None,
        });
        known.heard_of(lease, now);
        before
    }

    pub(crate) fn find(&self, lease: &Lease) -> Option<Known> {
        unpoisoned(&self.known).get(&lease.id()).cloned()
    }

    /// Records that a request to create the node of a lease is about to be sent.
    pub(crate) fn sends(&self, lease: &Lease, session: &Arc<Session>, now: Instant) {
        self.change(lease, |known| known.in_doubt = Some((now, Arc::clone(session))));
    }

    /// Records that requests to create the node are no longer in progress.
    pub(crate) fn settle(&self, lease: &Lease) {
        self.change(lease, |known| known.in_doubt = None);
    }

    /// Records the node of a lease and the session that the node is attached to.
    pub(crate) fn lies(&self, lease: &Lease, name: &str, state: State, session: &Arc<Session>) {
        self.change(lease, |known| {
            known.name = Some(name.to_owned());
            known.state = state;
            known.session = Some(Arc::clone(session));
            known.in_doubt = None;
        });
    }

    /// Records that the lease was granted or renewed.
    pub(crate) fn renew(&self, lease: &Lease, now: Instant) {
        self.change(lease, |known| known.heard_of(lease, now));
    }

    /// Forgets a lease that no longer exists in the store.
    pub(crate) fn forget(&self, lease: &Lease) {
        unpoisoned(&self.known).remove(&lease.id());
    }

    /// Records that the lease was abandoned, so that [`Self::finds_strays`] does not report it
    /// again.
    pub(crate) fn leave(&self, lease: &Lease) {
        self.change(lease, |known| known.kept_until = None);
    }

    /// Periodically checks for leases and queue entries that are no longer renewed. Returns whether
    /// a session may keep such an entry alive. Also forgets leases that have not been renewed for a
    /// long time.
    pub(crate) fn finds_strays(&self, now: Instant) -> bool {
        {
            let mut look_at = unpoisoned(&self.look_at);
            if now < *look_at {
                return false;
            }
            *look_at = now + LOOK_EVERY;
        }
        let mut found = false;
        unpoisoned(&self.known).retain(|_, known| {
            found |= known.kept_until.take_if(|until| *until <= now).is_some();
            now < known.until
        });
        found
    }

    fn change(&self, lease: &Lease, change: impl FnOnce(&mut Known)) {
        if let Some(known) = unpoisoned(&self.known).get_mut(&lease.id()) {
            change(known);
        }
    }
}

impl Known {
    fn heard_of(&mut self, lease: &Lease, now: Instant) {
        self.until = now + lease.ttl() * 2 + FORGOTTEN_AFTER;
        self.kept_until = (lease.tenure() == Tenure::Kept).then(|| now + lease.ttl());
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;

    use super::*;

    const NOW: Instant = Instant::from_zero(Duration::from_secs(1_000));

    const TTL: Duration = Duration::from_secs(10);

    fn lease(tenure: Tenure) -> Lease {
        Lease::new(&LockKey::new("k").unwrap(), TTL).with_tenure(tenure)
    }

    #[test]
    fn a_lease_that_is_never_released_is_forgotten_when_it_must_have_ended() {
        let (claims, lease) = (Claims::new(), lease(Tenure::Fixed));
        assert!(claims.ask(&lease, NOW).is_none());
        assert!(claims.ask(&lease, NOW).is_some());

        claims.finds_strays(NOW + TTL * 2);
        assert!(claims.find(&lease).is_some());

        claims.finds_strays(NOW + TTL * 2 + FORGOTTEN_AFTER);
        assert!(claims.find(&lease).is_none());
    }

    #[test]
    fn a_lease_that_is_kept_and_not_renewed_is_found_once() {
        let (claims, kept, left) = (Claims::new(), lease(Tenure::Kept), lease(Tenure::Kept));
        for lease in [&kept, &left, &lease(Tenure::Fixed)] {
            claims.ask(lease, NOW);
        }
        claims.leave(&left);
        claims.renew(&kept, NOW + TTL / 2);

        assert!(!claims.finds_strays(NOW + TTL));
        assert!(claims.finds_strays(NOW + TTL * 2));
        assert!(!claims.finds_strays(NOW + TTL * 3));
    }
}
