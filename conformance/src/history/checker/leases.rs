//! The rules for the leases that stores grant and that processes hand off.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::Rule;
use crate::history::event::{Event, EventKind, NO_TOKEN};

use super::hold::{Hold, Holds};
use super::rules::{Rules, Violation};

/// The time within which a caller receives a lease that is handed off, which is two steps of a
/// timer.
const HAND_OFF: Duration = Duration::from_millis(2);

/// The state of all leases while the events are read.
#[derive(Debug, Default)]
struct Leases<'e> {
    /// The last grant of each store for each key.
    granted: HashMap<(u32, &'e str), Granted>,
    /// The leases with a revocation request.
    revoked: HashSet<u64>,
    /// When a process was notified of a revocation request for its lease.
    notified: HashMap<(u32, u64), Duration>,
    /// The last hold of each lease of a process.
    holds: HashMap<(u32, u64), usize>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    lease: u64,
    last_token: u64,
}

impl Rules<'_> {
    /// [`Rule::TokenOrder`] for grants of stores, and [`Rule::HandOff`].
    pub(super) fn check_leases(&mut self, events: &[Event], holds: &Holds) {
        let mut leases = Leases::default();
        for event in events {
            let Event { at, process, kind } = event;
            match kind {
                EventKind::Granted { store, key, lease, token, last_token } => {
                    let granted = Granted { lease: *lease, last_token: *last_token };
                    let before = leases.granted.insert((*store, key), granted);
                    let Some(before) = before else { continue };
                    if *token <= before.last_token {
                        let before = before.last_token;
                        let text = format!(
                            "{key} was granted with token {token} after the token {before}"
                        );
                        self.violate(Violation::new(Rule::TokenOrder, *at, key, text));
                    }
                    // The same request may be granted again if the reply was lost. A revocation
                    // request for the first grant does not apply to the second grant.
                    leases.forget_revocation(*lease);
                }
                EventKind::RevocationRequested { store, key } => {
                    if let Some(Granted { lease, .. }) = leases.granted.get(&(*store, key)) {
                        leases.revoked.insert(*lease);
                    }
                }
                EventKind::Notified { store, key } => {
                    if let Some(Granted { lease, .. }) = leases.granted.get(&(*store, key))
                        && leases.revoked.contains(lease)
                    {
                        leases.notified.entry((*process, *lease)).or_insert(*at);
                    }
                }
                EventKind::ForceReleased { store, key } => {
                    if let Some(Granted { lease, .. }) = leases.granted.get(&(*store, key)) {
                        leases.forget_revocation(*lease);
                    }
                }
                EventKind::TokensLost { store } => {
                    leases.granted.retain(|(of, _), _| of != store);
                }
                EventKind::Entered { hold, .. } => {
                    if let Some(place) = holds.place(*process, *hold) {
                        self.check_hand_off(&mut leases, holds.all(), place);
                    }
                }
                _ => {}
            }
        }
    }

    fn check_hand_off(&mut self, leases: &mut Leases<'_>, all: &[Hold], place: usize) {
        let Hold { process, key, from, token, lease, deadline_at_entry, .. } = &all[place];
        let before = leases.holds.insert((*process, lease.id), place);
        // Two leases can have the same number, because the number is only a fingerprint.
        let Some(before) = before.filter(|before| all[*before].key == *key) else { return };
        let ended = all[before].until;
        let is_same_grant = match *token {
            NO_TOKEN => all[before].shares_lease_with(&all[place]),
            token => all[before].token >= token,
        };
        if is_same_grant || ended > *from {
            return;
        }
        self.handed_off += 1;
        let violation = |text| Violation::new(Rule::HandOff, *from, key, text).by([before, place]);
        if leases.notified.get(&(*process, lease.id)).is_some_and(|notified| *notified < ended) {
            let text = format!("{key} was handed off despite a revocation request");
            self.violate(violation(text));
        }
        let left = deadline_at_entry.saturating_sub(*from);
        if *from < ended + HAND_OFF && all[place].is_real() && left + HAND_OFF < lease.ttl / 2 {
            let text = format!("{key} was handed off {left:.1?} before its deadline");
            self.violate(violation(text));
        }
    }
}

impl Leases<'_> {
    fn forget_revocation(&mut self, lease: u64) {
        self.revoked.remove(&lease);
        self.notified.retain(|(_, notified), _| *notified != lease);
    }
}
