//! A lock request, from the call of a public method to the claim that the store receives.

use std::sync::Arc;

use crate::contract::backend::{Claim, Lease, Mode, Patience};
use crate::contract::key::LockKey;
use crate::contract::owner::OwnerId;
use crate::engine::wait::Wait;
use crate::observe::AskedKind;
use crate::options::LockOptions;

/// The request of one call for one key.
#[derive(Clone, Copy)]
pub(crate) struct LockRequest<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) options: &'a Arc<LockOptions>,
    pub(crate) mode: Mode,
    /// The lock type to report in events.
    pub(crate) kind: AskedKind,
    /// Whether the caller always joins the store's queue while it waits.
    pub(crate) queues: bool,
    /// The owner, if the lock is reentrant.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) wait: Wait,
}

impl LockRequest<'_> {
    /// Returns this request with a different wait.
    pub(crate) fn within(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// Creates the claim of this request. All attempts of an acquisition share its lease ID.
    pub(crate) fn claim(&self) -> Claim {
        let options = self.options;
        let lease = Lease::new(self.key, options.first_ttl() + options.lock_delay)
            .with_tenure(options.tenure())
            .with_mode(self.mode)
            .with_description(options.description.clone());
        let patience = if self.wait.is_once() {
            Patience::Leaves
        } else if self.queues || options.fair {
            Patience::Queues(options.place_ttl())
        } else {
            Patience::Waits
        };
        Claim::new(lease).with_spare_tokens(self.spare_tokens()).with_patience(patience)
    }

    /// Returns how many additional tokens the caller can use. Returns 0 if the lease cannot be
    /// handed off.
    fn spare_tokens(&self) -> u32 {
        if self.mode.is_mutex() { self.options.spare_tokens() } else { 0 }
    }
}
