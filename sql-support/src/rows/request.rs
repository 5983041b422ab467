//! The requests to a [`Database`](crate::rows::Database), with the values that the SQL statements
//! need.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, Lease, QuorumConfiguration, Vote};
use leasehold_entry::Tag;
use uuid::Uuid;

use crate::remote::Urgency;
use crate::request::token;

/// Identifies a lease in the table.
///
/// [`Database::release_simple`](crate::rows::Database::release_simple) takes an argument of this
/// type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// The key.
    pub key: LockKey,
    /// The tag of the lease.
    pub tag: Tag,
}

/// A claim for the whole key.
///
/// [`Database::acquire_free`](crate::rows::Database::acquire_free) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acquire {
    /// The lease to grant.
    pub lease: Named,
    /// The description of the holder.
    pub description: Option<String>,
    /// How long the lease is valid after the grant.
    pub ttl: Duration,
    /// How many additional tokens the client can use.
    pub spare: u32,
    /// The quorum configuration that the store must have joined, or `None` if the store does not
    /// have to be a member.
    pub membership: Option<QuorumConfiguration>,
    /// The requested minimum token, or 0 if there is none. The database ignores a token that is
    /// ahead of its clock by more than [`Vote::MAX_AHEAD`].
    pub requested_token: i64,
}

/// A granted lease.
///
/// [`Database::acquire_free`](crate::rows::Database::acquire_free) returns a value of this type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Granted {
    /// The fencing token, which is the smallest token of the grant and never 0.
    pub token: u64,
    /// The number of additional tokens of the grant, which is at most the requested number.
    pub spare: u32,
}

/// A renewal of a lease of the whole key.
///
/// [`Database::renew_simple`](crate::rows::Database::renew_simple) takes arguments of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renew {
    /// The lease to renew.
    pub lease: Named,
    /// The new description of the holder.
    pub description: Option<String>,
    /// How long the lease is valid after the renewal.
    pub ttl: Duration,
}

/// A change of one or several keys.
///
/// [`Database::change`](crate::rows::Database::change) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The keys, without duplicates.
    pub keys: Vec<LockKey>,
    /// The tags of the leases that the change may grant or release. A release must reach the
    /// database after all acquisitions of its lease.
    pub leases: Vec<Uuid>,
    /// The quorum configuration that the store must have joined, or `None` if the store does not
    /// have to be a member.
    pub membership: Option<QuorumConfiguration>,
    /// The urgency, which selects a connection.
    pub urgency: Urgency,
}

impl Named {
    /// Returns the values that identify `lease` in the table.
    pub fn of(lease: &Lease) -> Self {
        Self { key: lease.key().clone(), tag: Tag::of(&lease.id()) }
    }
}

impl Acquire {
    /// The maximum number of keys in one [`Change`].
    pub const MAX_TOGETHER: usize = 64;

    /// Creates the request for a [`Claim`]. A claim of a quorum also has a [`Vote`].
    pub fn of(claim: &Claim, vote: Option<&Vote>) -> Self {
        let lease = claim.lease();
        Self {
            lease: Named::of(lease),
            description: description(lease),
            ttl: lease.ttl(),
            spare: claim.spare_tokens(),
            membership: vote.map(|vote| vote.configuration().clone()),
            requested_token: token(vote.map_or(0, Vote::requested_token)),
        }
    }
}

impl Renew {
    /// The maximum number of leases in one statement. The database needs a few milliseconds for a
    /// statement of this size.
    pub const MAX_TOGETHER: usize = 512;

    /// Creates the request that renews `lease`.
    pub fn of(lease: &Lease) -> Self {
        Self { lease: Named::of(lease), description: description(lease), ttl: lease.ttl() }
    }
}

fn description(lease: &Lease) -> Option<String> {
    lease.description().map(|description| description.as_str().to_owned())
}
