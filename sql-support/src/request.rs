//! The requests to a [`Database`](crate::Database), with the values that the SQL statements
//! need.

use std::time::{Duration, SystemTime};

use leasehold_core::backend::{Charter, Claim, Grant, Lease, Patience, Share};
use leasehold_core::{LockKey, LockOptions};
use uuid::Uuid;

/// A key and its lock-table partition.
///
/// The example for [`postgres`](crate::postgres) creates a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Key {
    /// The row of `leasehold_stripe` that serializes transactions on this key.
    pub stripe: u8,
    /// The encoded name.
    pub key: LockKey,
}

/// Identifies a lease in the table.
///
/// [`Database::release`](crate::Database::release) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// The key.
    pub key: Key,
    /// The tag that identifies the lease among the leases of the key.
    pub tag: Uuid,
}

/// A claim.
///
/// [`Database::acquire`](crate::Database::acquire) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acquire {
    /// The lease to grant.
    pub lease: Named,
    /// The fingerprint for logs, which consists of eight hexadecimal digits.
    pub fingerprint: String,
    /// The description of the holder.
    pub description: Option<String>,
    /// Whether the claim is exclusive.
    pub whole: bool,
    /// The number of requested permits.
    pub units: u32,
    /// The maximum number of permits that may be in use after the grant.
    pub capacity: u32,
    /// How long the lease is valid after the grant.
    pub ttl: Duration,
    /// How many additional tokens the client can use.
    pub spare: u32,
    /// The queue entry to create if the claim cannot be granted, or `None` if the claim must not be
    /// queued.
    pub place: Option<Place>,
    /// The quorum configuration that the store must have joined, or `None` if the store does not
    /// have to be a member.
    pub charter: Option<Charter>,
    /// The requested minimum token of the partition, or 0 if there is none. The token is ahead of
    /// the clock by at most [`Claim::WISHED_AHEAD`].
    pub least_token: i64,
}

/// A queue entry.
///
/// [`Acquire::place`] contains a value of this type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// How long the queue entry is kept.
    pub time: Duration,
    /// How long the queue entry is kept once the claim can be granted, or `None` for the full
    /// `time`.
    pub patience: Option<Duration>,
}

/// A renewal.
///
/// [`Database::renew`](crate::Database::renew) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renew {
    /// The lease to renew.
    pub lease: Named,
    /// Whether the lease is exclusive.
    pub whole: bool,
    /// The new description of the holder.
    pub description: Option<String>,
    /// The new number of permits. If this number is larger than the current number, the renewal
    /// does not change the number of permits.
    pub units: u32,
    /// How long the lease is valid after the renewal.
    pub ttl: Duration,
    /// If the lease has not ended, the renewal raises the partition's token to at least this value.
    /// The value 0 means that there is no minimum.
    pub floor: i64,
}

impl Key {
    /// The number of lock-table partitions.
    pub const STRIPES: u32 = 256;

    /// Returns the key with its lock-table partition. The partition's number is the XOR of all
    /// bytes of the [FNV-1a](leasehold_core::backend::Fingerprint::of) hash of the encoded name.
    pub fn of(key: &LockKey) -> Self {
        let hash = key.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self {
            stripe: hash.to_le_bytes().into_iter().fold(0, |folded, byte| folded ^ byte),
            key: key.clone(),
        }
    }

    /// Returns the encoded name.
    pub fn name(&self) -> &str {
        self.key.as_str()
    }
}

impl Named {
    /// Returns the values that identify `lease` in the table.
    pub fn of(lease: &Lease) -> Self {
        Self { key: Key::of(lease.key()), tag: tag(&lease.id().secret()) }
    }
}

/// A request for one page of a list of keys.
///
/// [`Database::list`](crate::Database::list) takes an argument of this type.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List {
    /// The inclusive lower bound of the listed names.
    pub from: String,
    /// The name after which the page starts, or an empty string for the first page.
    pub after: String,
    /// The exclusive upper bound of the listed names.
    pub to: String,
}

impl List {
    /// The maximum number of keys on a page.
    pub const KEYS: usize = 256;

    pub(crate) fn of(prefix: &str, after: Option<&str>) -> Self {
        let after = after.unwrap_or_default().to_owned();
        // The tilde sorts after all characters of encoded names.
        Self { from: prefix.to_owned(), after, to: format!("{prefix}~") }
    }
}

impl Acquire {
    /// The maximum number of claims in one transaction.
    pub const MAX_TOGETHER: usize = 64;

    /// Creates the request for a [`Claim`].
    pub fn of(claim: &Claim) -> Self {
        let (lease, share) = (claim.lease(), claim.share());
        Self {
            lease: Named::of(lease),
            fingerprint: claim.id().fingerprint().to_string(),
            description: description(lease),
            whole: share == Share::Whole,
            units: share.units(),
            capacity: share.limit(),
            ttl: lease.ttl(),
            spare: claim.spare_tokens(),
            place: Place::of(claim),
            charter: claim.charter().cloned(),
            least_token: token(claim.least_token()),
        }
    }
}

impl Place {
    pub(crate) fn of(claim: &Claim) -> Option<Self> {
        match claim.patience() {
            Patience::Queues(time) => Some(Self { time, patience: None }),
            Patience::Waits => Some(Self {
                time: LockOptions::PLACE_TTL.min(claim.lease().ttl()),
                patience: Some(Patience::RESERVATION),
            }),
            _ => None,
        }
    }
}

impl Renew {
    /// The maximum number of leases in one statement. The database needs a few milliseconds for a
    /// statement of this size.
    pub const MAX_TOGETHER: usize = 512;

    /// Creates the request that renews a lease of the backend contract.
    pub fn of(lease: &Lease) -> Self {
        Self {
            lease: Named::of(lease),
            whole: lease.share().is_whole(),
            description: description(lease),
            units: lease.share().units(),
            ttl: lease.ttl(),
            floor: token(lease.floor()),
        }
    }
}

/// Returns the token of a time in microseconds since 1970. [`Grant::TOKENS_PER_MICROSECOND`] is the
/// factor.
pub fn token_at(micros: i64) -> i64 {
    micros.saturating_mul(token(Grant::TOKENS_PER_MICROSECOND))
}

/// Converts a token to the integer type of the tables' columns, which is large enough for all
/// tokens in use.
///
/// ```
/// assert_eq!(leasehold_sql_support::request::token(7), 7);
/// ```
pub fn token(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn description(lease: &Lease) -> Option<String> {
    lease.description().map(|description| description.as_str().to_owned())
}

/// Returns the tag for the lease ID with this [secret](leasehold_core::backend::LeaseId::secret).
/// The tag is derived from the ID and does not reveal it.
///
/// ```
/// use leasehold_sql_support::request::tag;
///
/// assert_ne!(tag("one secret"), tag("another secret"));
/// ```
pub fn tag(secret: &str) -> Uuid {
    /// A random namespace for the tags of leases.
    const NAMESPACE: Uuid = Uuid::from_u128(0x1b5b_0c1c_77f0_4a36_8a55_24a7_c37d_90e2);

    Uuid::new_v5(&NAMESPACE, secret.as_bytes())
}

/// Returns a duration in microseconds, the unit of the tables. The duration is rounded up, so that
/// no lease is shorter than requested.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(leasehold_sql_support::request::micros(Duration::from_nanos(1_500)), 2);
/// ```
pub fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// Converts a value of a database's clock, in microseconds since 1970, to a system time.
pub(crate) fn time_of(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(name).unwrap()
    }

    #[test]
    fn stripes_stay_where_they_are() {
        let stripes = ["invoice:42", "job", "a", "50%"].map(|name| Key::of(&key(name)).stripe);

        assert_eq!(stripes, [188, 31, 187, 46]);
    }

    #[test]
    fn keys_are_spread_over_all_stripes() {
        let mut counts = [0_u32; Key::STRIPES as usize];
        for n in 0..25_600 {
            counts[usize::from(Key::of(&key(&format!("job:{n}"))).stripe)] += 1;
        }

        assert!(counts.iter().all(|count| (50..200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_tag_is_of_one_lease_and_does_not_tell_its_id() {
        let ttl = Duration::from_secs(10);
        let (one, other) = (Lease::new(&key("job"), ttl), Lease::new(&key("job"), ttl));

        assert_eq!(Named::of(&one), Named::of(&one));
        assert_ne!(Named::of(&one).tag, Named::of(&other).tag);
        let secret = one.id().secret();
        assert!(!format!("{:?}", Acquire::of(&Claim::new(one))).contains(&secret[..8]));
    }

    #[test]
    fn times_are_rounded_up_and_saturate() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_millis(1)), 1000);
        assert_eq!(micros(Duration::MAX), i64::MAX);
    }

    #[test]
    fn a_claim_that_waits_gets_a_place_that_holds_up_others_briefly() {
        let claim = Claim::new(Lease::new(&key("job"), Duration::from_secs(2)));
        let place = |patience| Acquire::of(&claim.clone().with_patience(patience)).place;
        let place_ttl = Duration::from_secs(7);

        assert_eq!(place(Patience::Leaves), None);
        assert_eq!(
            place(Patience::Waits),
            Some(Place { time: Duration::from_secs(2), patience: Some(Patience::RESERVATION) })
        );
        assert_eq!(
            place(Patience::Queues(place_ttl)),
            Some(Place { time: place_ttl, patience: None })
        );
    }
}
