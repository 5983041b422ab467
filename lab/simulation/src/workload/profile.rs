//! The options of a simulation.

use std::time::Duration;

use fastrand::Rng;
use leasehold_core::backend::{Capabilities, Feature, Fencing};
use leasehold_core::{LockOptions, RenewalMode};

/// The options that all clients of a simulation share.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) options: LockOptions,
    is_fair: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) renews: bool,
    pub(crate) rounds: usize,
}

impl Profile {
    /// The TTL of most leases.
    const TTL: Duration = Duration::from_secs(1);

    /// The longest TTL of any lease, in milliseconds.
    pub(crate) const LONGEST: u64 = 2_400;

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        // Half of all simulations have plain options, with which leases are handed over.
        let is_plain = rng.bool();
        let mut one_in = |count: u8| rng.u8(..count) == 0 && !is_plain;
        let mut options = LockOptions::new().ttl(Self::TTL).outage_wait(Duration::from_secs(3));
        options = options.hand_over(!one_in(2));
        let is_fair = one_in(3);
        let renews = !one_in(4);
        if !renews {
            options = options.renewal(RenewalMode::Off);
        }
        if one_in(4) {
            options = options.lock_delay(Duration::from_millis(300));
        }
        if one_in(6) {
            options = options.min_hold(Duration::from_millis(400));
        }
        let max_hold = one_in(4).then_some(Duration::from_millis(1_700));
        if let Some(limit) = max_hold {
            options = options.max_hold(limit);
        }
        Self { options, is_fair, max_hold, renews, rounds: 6 }
    }

    /// The options, as far as a store can meet them.
    pub(crate) fn on(&self, store: &Capabilities) -> LockOptions {
        let fencing = store.fencing().min(Fencing::BestEffort);
        let is_fair = self.is_fair && store.supports(Feature::Queue);
        self.options.clone().fair(is_fair).require_fencing(fencing)
    }
}
