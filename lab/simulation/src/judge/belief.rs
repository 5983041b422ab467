//! A guard that a caller has, as the judge sees it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::clock::Clock as _;

use crate::clock::DriftingClock;
use crate::workload::Taken;

/// The terms on which a caller takes leases.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) client: usize,
    pub(crate) clock: DriftingClock,
    pub(crate) limit: Limit,
    /// Guards may share a lease.
    pub(crate) is_reentrant: bool,
    /// Tokens come in order.
    pub(crate) is_fenced: bool,
    /// The watchdog renews the lease.
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// The units of a key that may be held at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Limit {
    /// The units of one guard.
    Whole,
    /// So many.
    Units(u64),
}

pub(super) struct Belief {
    taken: Weak<Taken>,
    /// Which of its guards.
    number: usize,
    clock: DriftingClock,
    token: u64,
    units: u64,
    limit: u64,
    /// It is over then in any case.
    max_until: Option<Duration>,
    is_held: bool,
}

impl Belief {
    pub(super) fn new(taken: &Arc<Taken>, number: usize, terms: &Terms, now: Duration) -> Self {
        let guard = &taken.guards()[number];
        let units = guard.units().into();
        // Clocks that are late, and the rounding of timers.
        let max_hold = terms.max_hold.map(|limit| limit + limit / 50 + Duration::from_millis(2));
        Self {
            taken: Arc::downgrade(taken),
            number,
            clock: terms.clock.clone(),
            token: guard.token().number(),
            units,
            limit: match terms.limit {
                Limit::Whole => units,
                Limit::Units(limit) => limit,
            },
            max_until: max_hold.map(|limit| now + limit),
            is_held: true,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.taken.strong_count() > 0
    }

    /// Whether it was held at the last look, for longer than it may.
    pub(super) fn is_beyond(&self, now: Duration) -> bool {
        self.is_held && self.max_until.is_some_and(|until| now > until)
    }

    /// Looks whether its caller would find it held.
    ///
    /// A look at a guard notices a passed deadline and wakes tasks. So the belief of a paused process is read from the clock alone.
    fn look(&mut self) {
        let Some(taken) = self.taken.upgrade() else { return };
        let guard = &taken.guards()[self.number];
        self.is_held = if self.clock.processor().is_paused() {
            self.is_held && self.clock.now() < guard.deadline()
        } else {
            guard.is_held()
        };
    }
}

/// The units that are believed to be held, and how many may be. Guards with the same token share a lease.
pub(super) fn sum(beliefs: &mut [Belief]) -> (u64, u64) {
    let (mut units, mut limit) = (BTreeMap::new(), u64::MAX);
    for belief in beliefs {
        belief.look();
        if belief.is_held {
            units.insert(belief.token, belief.units);
            limit = limit.min(belief.limit);
        }
    }
    (units.into_values().sum(), limit)
}
