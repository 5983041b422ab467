//! Leases and their ids.

use std::fmt::{self, Write as _};
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::{Builder, Uuid};

use crate::contract::backend::Mode;
use crate::contract::description::Description;
use crate::contract::key::LockKey;

/// The identity of a lease: a random id that is generated for each acquisition.
///
/// A lease id is a secret, because a process that knows it can renew and release the lease. `Debug`
/// prints only its [`Fingerprint`]. Only backends need [`LeaseId::secret`].
///
/// ```
/// use leasehold_core::backend::LeaseId;
///
/// let id = LeaseId::new();
/// assert_ne!(id, LeaseId::new());
/// assert_eq!(format!("{id:?}"), format!("LeaseId({})", id.fingerprint()));
/// assert_eq!(LeaseId::from_secret(&id.secret()), Some(id));
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct LeaseId {
    random: Uuid,
    count: u64,
}

impl LeaseId {
    /// Generates a new id from a counter and 122 random bits from the operating system.
    ///
    /// The random bits are never generated in advance, because a copy of the process, such as one
    /// in a restored snapshot of a virtual machine, would then generate the same ids. Because of
    /// the counter, the ids of a process are unique even if the operating system returns the same
    /// bits twice.
    ///
    /// # Panics
    ///
    /// Panics if the operating system cannot provide random bytes.
    #[expect(clippy::new_without_default, reason = "two default values would differ")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);

        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system returns random bytes");
        let random = Builder::from_random_bytes(bytes).into_uuid();
        Self { random, count: COUNT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns the id as a string, which must be kept secret. The string is intended only for the
    /// store, and does not contain spaces.
    pub fn secret(&self) -> String {
        let mut text = String::with_capacity(2 * size_of::<Self>() + 1);
        self.write_secret(&mut text);
        text
    }

    /// Appends the id to `text`, in the form that [`secret`](Self::secret) returns.
    pub fn write_secret(&self, text: &mut String) {
        text.push_str(self.random.simple().encode_lower(&mut Uuid::encode_buffer()));
        write!(text, "-{:x}", self.count).expect("writing to a string succeeds");
    }

    /// Parses an id that a store has kept as its [`secret`](Self::secret). Returns `None` if `text`
    /// is not an id.
    pub fn from_secret(text: &str) -> Option<Self> {
        let (random, count) = text.split_once('-')?;
        let random = Uuid::try_parse(random).ok()?;
        Some(Self { random, count: u64::from_str_radix(count, 16).ok()? })
    }

    /// Returns a number that is almost certainly unique to this id. Numbers from the same process
    /// differ in their lower halves. Numbers from different processes almost always differ in their
    /// upper halves.
    pub(super) fn number(&self) -> u64 {
        let (random, _) = self.random.as_u64_pair();
        (random << 32) ^ self.count
    }

    /// Returns the fingerprint of the id, which can be printed in logs.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.secret().as_bytes())
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({})", self.fingerprint())
    }
}

/// Eight hexadecimal digits that identify a lease without revealing its id.
///
/// ```
/// use leasehold_core::backend::{Fingerprint, LeaseId};
///
/// let fingerprint = LeaseId::new().fingerprint();
/// assert_eq!(fingerprint.to_string().len(), 8);
/// assert_eq!(fingerprint.to_string().parse::<Fingerprint>().ok(), Some(fingerprint));
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint(u32);

impl Fingerprint {
    /// Computes the fingerprint of a lease id from the [secret string](LeaseId::secret) that the
    /// store contains. The lease id may belong to another client.
    ///
    /// The fingerprint is a 64-bit FNV-1a hash, folded to 32 bits. All versions of Leasehold
    /// compute the same value on all machines. A fingerprint is too short to reveal a lease id,
    /// which has 122 random bits.
    pub fn of(secret: &[u8]) -> Self {
        let hash = secret.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let folded = (hash >> 32) ^ (hash & u64::from(u32::MAX));
        Self(u32::try_from(folded).expect("the upper half was masked out"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Parses the output of `Display`.
impl FromStr for Fingerprint {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        u32::from_str_radix(text, 16).map(Self)
    }
}

/// Whether the holder of a lease keeps renewing it.
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Lease, Tenure};
///
/// let lease = Lease::new(&LockKey::new("leader")?, Duration::from_secs(10));
/// assert_eq!(lease.with_tenure(Tenure::Kept).tenure(), Tenure::Kept);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tenure {
    /// Unless the lease is renewed, it expires after its TTL, as measured by the store's clock,
    /// even if its holder is still running.
    Fixed,
    /// The holder renews the lease until it releases the lease. The client renews all its kept
    /// leases with the same TTL together.
    ///
    /// A store may therefore use a shared TTL for all leases that a client renews together. With a
    /// shared TTL, a lease that is not renewed may stay in force as long as the client renews its
    /// other leases. If the release of a lease failed, or if the reply to its grant was lost, a
    /// shared TTL must not keep the lease in force.
    Kept,
}

/// A lease that a backend acquires, renews or releases: its key, its id and the fields that the
/// store keeps.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Lease, Mode};
///
/// let lease = Lease::new(&LockKey::new("invoice:42")?, Duration::from_secs(30));
/// assert_eq!(lease.mode(), Mode::Exclusive);
/// assert_eq!(lease.ttl(), Duration::from_secs(30));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    key: LockKey,
    id: LeaseId,
    ttl: Duration,
    tenure: Tenure,
    mode: Mode,
    description: Option<Description>,
}

impl Lease {
    /// Creates an exclusive lease on `key` with a new id. The lease takes effect when the store
    /// grants it.
    pub fn new(key: &LockKey, ttl: Duration) -> Self {
        Self {
            key: key.clone(),
            id: LeaseId::new(),
            ttl,
            tenure: Tenure::Fixed,
            mode: Mode::Exclusive,
            description: None,
        }
    }

    /// Sets whether the holder keeps renewing the lease.
    #[must_use]
    pub fn with_tenure(mut self, tenure: Tenure) -> Self {
        self.tenure = tenure;
        self
    }

    /// Sets whether the lease covers the whole key or a number of its units.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the description of the holder, which operators and waiters can see.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// Sets the TTL of the lease. A renewal applies the new TTL.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Returns the key of the lease.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the id that the store compares.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Returns how long the store keeps the lease without renewal. A backend rounds this duration
    /// up to its TTL granularity.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns whether the holder keeps renewing the lease.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// Returns whether the lease covers the whole key or a number of its units.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the description of the holder.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_uniform() {
        let ids: Vec<LeaseId> = (0..100_000).map(|_| LeaseId::new()).collect();

        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        // The version and the variant of a UUID fix six bits, so the two bytes that contain those
        // bits are skipped.
        for position in (0..16).filter(|position| ![6, 8].contains(position)) {
            let mut counts = [0_f64; 256];
            for id in &ids {
                counts[usize::from(id.random.as_bytes()[position])] += 1.0;
            }
            let expected = 100_000.0 / 256.0;
            let chi_square: f64 =
                counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
            // With 255 degrees of freedom, a random sample exceeds 400 once in 10^8 cases.
            assert!(chi_square < 400.0, "byte {position}: chi-square {chi_square}");
        }
    }

    #[test]
    fn debug_shows_a_fingerprint_and_not_the_id() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(1));
        let secret = lease.id().secret();

        let shown = format!("{lease:?}");

        assert!(!shown.contains(&secret[..8]), "{shown}");
        assert!(shown.contains(&lease.id().fingerprint().to_string()));
    }
}
