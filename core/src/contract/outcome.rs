//! Outcomes of operators' requests.

use crate::contract::holder::Holder;

/// The outcome of a revocation request.
///
/// See [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested) for an example
/// that sends a request to a holder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Revocation {
    /// The key is free, or the requested lease is no longer in force.
    NotHeld,
    /// The store recorded the request for all holders, or for the requested lease.
    Requested,
}

/// The outcome of a forced release.
///
/// See [`Admin::force_release`](crate::admin::Admin::force_release) for an example that ends the
/// lease of another client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ForcedRelease {
    ended: Vec<Holder>,
    min_token: Option<u64>,
}

impl ForcedRelease {
    /// Creates the outcome of a forced release of a key that was free.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lease that was ended.
    #[must_use]
    pub fn with_ended(mut self, holder: Holder) -> Self {
        self.ended.push(holder);
        self
    }

    /// Sets the minimum token. All later tokens of the key are greater than or equal to the minimum
    /// token, and all earlier tokens are smaller. Set the minimum token only if the key has no
    /// remaining leases.
    #[must_use]
    pub fn with_min_token(mut self, number: u64) -> Self {
        self.min_token = Some(number);
        self
    }

    /// Returns the leases that were ended.
    pub fn ended(&self) -> &[Holder] {
        &self.ended
    }

    /// Returns the minimum token. All later tokens of the key are greater than or equal to the
    /// minimum token, and all earlier tokens are smaller.
    ///
    /// If you pass the minimum token to the protected resource, the resource immediately rejects
    /// writes from the former holder.
    ///
    /// Returns `None` if no lease was ended. Also returns `None` if other leases of the key are
    /// still in force, because a minimum token would also reject the writes of their holders.
    pub fn min_token(&self) -> Option<u64> {
        self.min_token
    }
}
