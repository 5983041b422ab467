//! Outcomes of operators' requests.

use crate::contract::holder::Holder;

/// The outcome of a request to revoke.
///
/// See [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Revocation {
    /// The key has no holder, or not the one that was meant.
    NotHeld,
    /// The holders of the key are asked, or the one that was meant.
    Requested,
}

/// The outcome of an operator's forced release.
///
/// See [`Admin::force_release`](crate::admin::Admin::force_release) for an example.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ForcedRelease {
    ended: Vec<Holder>,
    min_token: Option<u64>,
}

impl ForcedRelease {
    /// Creates the outcome of a key without a holder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lease that was ended.
    #[must_use]
    pub fn with_ended(mut self, holder: Holder) -> Self {
        self.ended.push(holder);
        self
    }

    /// Adds the number that every later token reaches and no earlier one does, if no lease of the key is left.
    #[must_use]
    pub fn with_min_token(mut self, number: u64) -> Self {
        self.min_token = Some(number);
        self
    }

    /// The leases that were ended.
    pub fn ended(&self) -> &[Holder] {
        &self.ended
    }

    /// The number that every later token reaches and no earlier one does. A resource that is told this number refuses the former holder at
    /// once. `None` if nothing was ended, or if other leases of the key are still in force: their tokens are lower.
    pub fn min_token(&self) -> Option<u64> {
        self.min_token
    }
}
