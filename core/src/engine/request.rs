//! The request of a call for a lock, from the handle to the claim that a store sees.

use std::sync::Arc;

use crate::contract::backend::{Claim, Lease, Patience, Share};
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
    /// How much of the key.
    pub(crate) share: Share,
    /// For those that observe.
    pub(crate) kind: AskedKind,
    /// Whether to stand in the store's queue while waiting.
    pub(crate) queues: bool,
    /// The owner that may enter again, if one may.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) wait: Wait,
}

impl LockRequest<'_> {
    /// The same, with another wait.
    pub(crate) fn within(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// A claim of this request. It has one id per acquisition, for all its attempts.
    pub(crate) fn claim(&self) -> Claim {
        let options = self.options;
        let lease = Lease::new(self.key, options.first_ttl() + options.lock_delay)
            .with_tenure(options.tenure())
            .with_share(self.share)
            .with_description(options.description.clone());
        let patience = if self.wait.is_once() {
            Patience::Leaves
        } else if self.queues || options.fair {
            Patience::Queues(options.place_ttl())
        } else {
            Patience::Waits
        };
        Claim::new(lease)
            .with_spare_tokens(self.spare_tokens())
            .with_patience(patience)
            .with_whole_ttl(options.needs_whole_ttl())
    }

    /// How many tokens it has a use for besides its own; none if its lease may not be passed on.
    fn spare_tokens(&self) -> u32 {
        if self.share.is_whole() { self.options.spare_tokens() } else { 0 }
    }
}
