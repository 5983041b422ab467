//! The replies of a [`Database`](crate::Database).
//!
//! `called` contains the tags of queue entries that can be granted now, except the caller's own
//! entry. The documentation of [`Database`](crate::Database) defines when an entry can be granted.
//! The claims of these entries should be sent again. `called` is only a hint: it may contain
//! additional entries, for example the first few entries of the queue, and duplicates. `called`
//! must contain every entry that can be granted because of this transaction.

use std::time::Duration;

use leasehold_core::admin::Waiter;
use leasehold_core::backend::{Grant, Share};
use leasehold_core::{Description, Error, ErrorKind, Holder};
use uuid::Uuid;

/// The outcome of a claim.
///
/// [`Database::acquire`](crate::Database::acquire) returns this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Acquired {
    /// The lease is in force.
    Granted(Granted),
    /// Too few permits are free for the claim.
    Refused(Refused),
    /// The key is held as a different lock type.
    OtherKind,
}

/// The outcome of several claims.
///
/// [`Database::acquire_all`](crate::Database::acquire_all) returns this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AcquiredAll {
    /// All leases are in force. There is one entry per claim, in order.
    Granted(Vec<Granted>),
    /// The claim with this index cannot be admitted. All earlier claims can be admitted.
    Refused(usize, Refused),
    /// The key of the claim with this index is held as a different lock type.
    OtherKind(usize),
}

/// A granted lease.
///
/// [`Acquired`] contains a value of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    /// The fencing token, which is the smallest token of the grant and never 0.
    pub token: u64,
    /// The number of additional tokens of the grant, which is at most the requested number.
    pub spare: u32,
    /// Queue entries that can be granted now, as defined in [the module](self).
    pub called: Vec<Uuid>,
}

/// Why a claim cannot be admitted.
///
/// [`Acquired`] contains a value of this type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Refused {
    /// The holder whose lease expires first.
    pub holder: Option<HolderRow>,
    /// The time until the earliest expiry among the queue entries ahead of the claim. `None` if no
    /// entry is ahead of the claim, or if the claim is exclusive and the key is held.
    pub first_place_ends: Option<Duration>,
    /// Queue entries that can be granted now, as defined in [the module](self).
    pub called: Vec<Uuid>,
}

/// A holder's lease, as shown to other clients.
///
/// [`Refused`] and [`Forced`] contain values of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HolderRow {
    /// The stored fingerprint.
    pub fingerprint: String,
    /// The stored description of the holder.
    pub description: Option<String>,
    /// The number of permits.
    pub units: u32,
    /// The time until the lease expires.
    pub remaining: Duration,
}

/// The outcome of a renewal.
///
/// [`Database::renew`](crate::Database::renew) returns this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Renewed {
    /// The lease is in force for another TTL.
    Renewed {
        /// Whether the holder has received a revocation request.
        asked: bool,
        /// Queue entries that can be granted now, as defined in [the module](self). Empty unless
        /// the renewal returned permits.
        called: Vec<Uuid>,
    },
    /// The lease is not in force, but a different lease on the key is in force in the same mode.
    Taken,
    /// Neither the lease nor a different lease in the same mode is in force.
    Vanished,
}

/// The outcome of a release.
///
/// [`Database::release`](crate::Database::release) returns this type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Released {
    /// Whether the lease was still held when the release ran. `false` if only a queue entry was
    /// removed.
    pub was_held: bool,
    /// Queue entries that can be granted now, as defined in [the module](self).
    pub called: Vec<Uuid>,
}

/// The outcome of a revocation request.
///
/// [`Database::request_revocation`](crate::Database::request_revocation) returns this type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Whether there are holders.
    pub is_held: bool,
}

/// The outcome of a forced release.
///
/// [`Database::force_release`](crate::Database::force_release) returns this type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Forced {
    /// The revoked leases.
    pub ended: Vec<HolderRow>,
    /// The new token of the lock-table partition, if a lease was revoked.
    pub min_token: Option<u64>,
    /// Queue entries that can be granted now, as defined in [the module](self).
    pub called: Vec<Uuid>,
}

/// A holder or a queue entry of a key, with all information that operators can see.
///
/// [`Inspected`] contains values of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShownRow {
    /// The lease, or the requested lease of a queue entry.
    pub holder: HolderRow,
    /// Whether the lease is exclusive.
    pub whole: bool,
    /// The total number of permits of the lock, as stated in the claim.
    pub capacity: u32,
    /// The fencing token of the grant, or `None` for a queue entry.
    pub token: Option<u64>,
}

/// The state of a key.
///
/// [`Database::inspect`](crate::Database::inspect) returns this type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inspected {
    /// The current leases, sorted by expiry. The list contains at most [`Inspected::LISTED`]
    /// leases.
    pub holders: Vec<ShownRow>,
    /// The queue entries, in order. The list contains at most [`Inspected::LISTED`] entries.
    pub queue: Vec<ShownRow>,
    /// The number of queue entries, including entries that are not listed.
    pub waiting: u64,
    /// The database's wall clock, from which tokens are derived, in microseconds since 1970.
    pub clock: u64,
    /// The number of permits in use, including permits of leases that are not listed.
    pub units: u64,
    /// The last token of the lock-table partition, unless it is 0.
    pub last_token: Option<u64>,
}

impl Inspected {
    /// The maximum number of listed holders and of listed queue entries. The limit is more than
    /// fits on a screen, but still keeps the reply short.
    pub const LISTED: usize = 128;
}

impl ShownRow {
    fn share(&self) -> Share {
        if self.whole {
            Share::Whole
        } else {
            Share::Units { units: self.holder.units, limit: self.capacity }
        }
    }

    /// Converts the row to a holder in the backend contract.
    ///
    /// The token shows when the lease was granted, because tokens are derived from the database's
    /// clock. Many grants or a requested minimum token can push tokens beyond the clock.
    pub(crate) fn holder(self, clock: u64) -> Result<Holder, Error> {
        let (share, token) = (self.share(), self.token);
        let granted_at = token.map(|token| token / Grant::TOKENS_PER_MICROSECOND);
        let held_for = granted_at.map(|at| Duration::from_micros(clock.saturating_sub(at)));
        let holder = self.holder.holder()?.with_share(share).with_token(token);
        Ok(holder.with_held_for(held_for))
    }

    /// Converts the row to a waiter in the backend contract.
    pub(crate) fn waiter(self) -> Result<Waiter, Error> {
        let share = self.share();
        let holder = self.holder.holder()?;
        let waiter = Waiter::new(holder.fingerprint(), share);
        Ok(waiter.with_description(holder.description().cloned()))
    }
}

impl HolderRow {
    /// Converts the row to a holder in the backend contract.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unexpected`] if the fingerprint is not valid. A description that
    /// Leasehold did not write is omitted.
    pub(crate) fn holder(self) -> Result<Holder, Error> {
        let fingerprint = self.fingerprint.parse().map_err(|error| {
            let message = "the store contains an invalid lease fingerprint";
            Error::new(ErrorKind::Unexpected, message).with_source(error)
        })?;
        let description = self.description.and_then(|text| Description::new(text).ok());
        Ok(Holder::new(fingerprint)
            .with_description(description)
            .with_remaining(Some(self.remaining))
            .with_units(self.units))
    }
}

/// Returns the time from `now` to `ends`, both in microseconds, as in the tables. Returns zero if
/// `ends` has passed.
///
/// ```
/// use leasehold_sql_support::reply::remaining;
///
/// assert_eq!(remaining(3_000_000, 1_000_000).as_secs(), 2);
/// ```
pub fn remaining(ends: i64, now: i64) -> Duration {
    Duration::from_micros(ends.saturating_sub(now).try_into().unwrap_or(0))
}
