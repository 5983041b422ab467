//! The requests to a [`Database`](crate::Database), as its statements take them.

use std::time::{Duration, SystemTime};

use leasehold_core::backend::{Charter, Claim, Grant, Lease, Patience, Share};
use leasehold_core::{LockKey, LockOptions};
use uuid::Uuid;

/// A key, and the stripe that it belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Key {
    /// The row of `leasehold_stripe` that serializes its transactions.
    pub stripe: u8,
    /// Its encoded name.
    pub key: LockKey,
}

/// A lease as the table knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// The key.
    pub key: Key,
    /// Which of that key.
    pub tag: Uuid,
}

/// A claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acquire {
    /// The lease that a grant gives.
    pub lease: Named,
    /// How logs name it: eight hexadecimal digits.
    pub fingerprint: String,
    /// The holder, in words.
    pub description: Option<String>,
    /// Whether it is for the whole key.
    pub whole: bool,
    /// How many units it is for.
    pub units: u32,
    /// How many there may be in use with it.
    pub capacity: u32,
    /// For how long it is to be in force.
    pub ttl: Duration,
    /// How many tokens beyond the first there is a use for.
    pub spare: u32,
    /// The place in the queue that it gets if it is refused; `None`: no place.
    pub place: Option<Place>,
    /// The charter under which the store must be enlisted; `None`: under any, or none.
    pub charter: Option<Charter>,
    /// The number that the stripe's token shall reach, within [`Claim::WISHED_AHEAD`] of the clock; 0: none.
    pub least_token: i64,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// For how long it is kept.
    pub time: Duration,
    /// For how long of that once there is room for the claim; `None`: for all of it.
    pub patience: Option<Duration>,
}

/// A renewal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Renew {
    /// Which lease.
    pub lease: Named,
    /// Whether it is of the whole key.
    pub whole: bool,
    /// The holder, in words, from now on.
    pub description: Option<String>,
    /// How many units it has from now on, if that is fewer.
    pub units: u32,
    /// For how long it is to be in force.
    pub ttl: Duration,
    /// The number that the stripe's token reaches if the lease is in force; 0: none.
    pub floor: i64,
}

impl Key {
    /// How many stripes there are.
    pub const STRIPES: u32 = 256;

    /// Finds the stripe of `key`: the bytes of the [FNV-1a](leasehold_core::backend::Fingerprint::of) hash of its encoded name, added up
    /// without carry (exclusive or).
    pub fn of(key: &LockKey) -> Self {
        let hash = key.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self {
            stripe: hash.to_le_bytes().into_iter().fold(0, |folded, byte| folded ^ byte),
            key: key.clone(),
        }
    }

    /// The encoded name.
    pub fn name(&self) -> &str {
        self.key.as_str()
    }
}

impl Named {
    /// Finds how the table knows `lease`.
    pub fn of(lease: &Lease) -> Self {
        Self { key: Key::of(lease.key()), tag: tag(&lease.id().secret()) }
    }
}

/// A page of a list of keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List {
    /// The first name that may be listed.
    pub from: String,
    /// The name after which the page begins; empty for the first.
    pub after: String,
    /// The name before which the list ends.
    pub to: String,
}

impl List {
    /// How many keys a page has, at most.
    pub const KEYS: usize = 256;

    pub(crate) fn of(prefix: &str, after: Option<&str>) -> Self {
        let after = after.unwrap_or_default().to_owned();
        // The tilde comes after all characters of encoded names.
        Self { from: prefix.to_owned(), after, to: format!("{prefix}~") }
    }
}

impl Acquire {
    /// The most claims that one transaction grants together.
    pub const MAX_TOGETHER: usize = 64;

    /// Takes from a claim all that the statements need.
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
    /// The most leases that one statement renews: some milliseconds of the database's time.
    pub const MAX_TOGETHER: usize = 512;

    /// Takes from a lease all that the statement needs.
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

/// The token of a time, which is in microseconds since 1970: see [`Grant::TOKENS_PER_MICROSECOND`].
pub fn token_at(micros: i64) -> i64 {
    micros.saturating_mul(token(Grant::TOKENS_PER_MICROSECOND))
}

/// A token as the tables have it. They give out none so large that it has no room.
pub fn token(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn description(lease: &Lease) -> Option<String> {
    lease.description().map(|description| description.as_str().to_owned())
}

/// The table's name for the id with this [secret](leasehold_core::backend::LeaseId::secret): a client that has the id finds the row
/// by it, and it does not tell the id.
pub fn tag(secret: &str) -> Uuid {
    /// Drawn once, for the tags of leases.
    const NAMESPACE: Uuid = Uuid::from_u128(0x1b5b_0c1c_77f0_4a36_8a55_24a7_c37d_90e2);

    Uuid::new_v5(&NAMESPACE, secret.as_bytes())
}

/// A span of time as the tables count it: in microseconds, rounded up, so that no lease is shorter than was asked for.
pub fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// The time of day that a database's clock shows, in microseconds since 1970.
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
