//! Outcomes of operators' requests.

use crate::contract::holder::Holder;

/// The outcome of a request to revoke.
///
/// See the example of [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Revocation {
    /// The key has no holder.
    NotHeld,
    /// The holders of the key are asked.
    Requested,
}

/// The outcome of an operator's forced release.
///
/// See the example of [`Admin::force_release`](crate::admin::Admin::force_release).
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

    /// Adds the number that every later token reaches and no earlier one does.
    #[must_use]
    pub fn with_min_token(mut self, number: u64) -> Self {
        self.min_token = Some(number);
        self
    }

    /// The leases that were ended.
    pub fn ended(&self) -> &[Holder] {
        &self.ended
    }

    /// The number that every later token reaches and no earlier one does: a resource that is told
    /// it refuses the former holder at once.
    pub fn min_token(&self) -> Option<u64> {
        self.min_token
    }
}
